"""q20, expanded bids: each bid in an auction of category 10, with all that is known of the auction.

A join without windows of the largest two streams. Some bids come before their auction; those in
auctions of another category wait in vain, as in any plan that filters first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import streamcp as sc
from benchmarks.nexmark.model import Auction, Bid, Event, is_auction, is_bid
from benchmarks.nexmark.query import Query

CATEGORY = 10


class ExpandedBid(NamedTuple):
    auction: int
    bidder: int
    price: int
    bid_time: int
    bid_extra: str
    item: str
    description: str
    initial_bid: int
    reserve: int
    auction_time: int
    expires: int
    seller: int
    category: int
    auction_extra: str


@dataclass
class Sale:
    """The auction, if it is known yet, and the bids that came before it."""

    auction: Auction | None = None
    bids: list[Bid] = field(default_factory=list)


def is_chosen(auction: Auction) -> bool:
    return auction.category == CATEGORY


def on_auction(auction: Auction, sale: Sale, ctx: sc.KeyContext[int]) -> list[ExpandedBid]:
    sale.auction = auction
    waiting, sale.bids = sale.bids, []
    return [expanded(bid, auction) for bid in waiting]


def on_bid(bid: Bid, sale: Sale, ctx: sc.KeyContext[int]) -> list[ExpandedBid]:
    if sale.auction is None:
        sale.bids.append(bid)
        return []
    return [expanded(bid, sale.auction)]


def expanded(bid: Bid, auction: Auction) -> ExpandedBid:
    return ExpandedBid(
        bid.auction,
        bid.bidder,
        bid.price,
        bid.time,
        bid.extra,
        auction.item,
        auction.description,
        auction.initial_bid,
        auction.reserve,
        auction.time,
        auction.expires,
        auction.seller,
        auction.category,
        auction.extra,
    )


def q20(events: sc.Stream[Event]) -> sc.Stream[ExpandedBid]:
    auctions = events.filter(is_auction).filter(is_chosen).key_by(lambda auction: auction.id)
    bids = events.filter(is_bid).key_by(lambda bid: bid.auction)
    return auctions.connect(bids).process(on_auction, on_bid, state=Sale, name="sales")


def by_hand(events: Iterable[Event]) -> Iterator[ExpandedBid]:
    auctions: dict[int, Auction] = {}
    waiting: defaultdict[int, list[Bid]] = defaultdict(list)
    for event in events:
        if type(event) is Bid:
            auction = auctions.get(event.auction)
            if auction is None:
                waiting[event.auction].append(event)
            else:
                yield expanded(event, auction)
        elif type(event) is Auction and event.category == CATEGORY:
            auctions[event.id] = event
            for bid in waiting.pop(event.id, ()):
                yield expanded(bid, event)


SQL = """
    SELECT
        bid.auction, bid.bidder, bid.price, bid.time, bid.extra,
        auction.item, auction.description, auction.initial_bid, auction.reserve,
        auction.time, auction.expires, auction.seller, auction.category, auction.extra
    FROM bid JOIN auction ON bid.auction = auction.id
    WHERE auction.category = 10
"""

Q20 = Query("q20", q20, by_hand, SQL)
