"""q2, selection: the prices offered for every 123rd auction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import streamcp as sc
from benchmarks.nexmark.model import Bid, Event, is_bid
from benchmarks.nexmark.query import Query


class Offer(NamedTuple):
    auction: int
    price: int


def is_chosen(bid: Bid) -> bool:
    return bid.auction % 123 == 0


def offer(bid: Bid) -> Offer:
    return Offer(bid.auction, bid.price)


def q2(events: sc.Stream[Event]) -> sc.Stream[Offer]:
    return events.filter(is_bid).filter(is_chosen).map(offer)


def by_hand(events: Iterable[Event]) -> Iterator[Offer]:
    for event in events:
        if type(event) is Bid and event.auction % 123 == 0:
            yield Offer(event.auction, event.price)


SQL = "SELECT auction, price FROM bid WHERE auction % 123 = 0"

Q2 = Query("q2", q2, by_hand, SQL)
