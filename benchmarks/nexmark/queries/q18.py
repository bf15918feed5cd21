"""q18, last bids: what has each bidder bidden last in each auction? One state per pair of them.

Every bid gives a new answer for its pair; the last one counts. Of bids in one millisecond the
highest is the last, so that only one answer is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple

import streamcp as sc
from benchmarks.nexmark.model import Bid, Event, is_bid
from benchmarks.nexmark.query import Query, Row


def last(one: Bid, other: Bid) -> Bid:
    if one.time != other.time:
        return one if one.time > other.time else other
    return one if (one.price, one.extra) > (other.price, other.extra) else other


def q18(events: sc.Stream[Event]) -> sc.Stream[Bid]:
    bids = events.filter(is_bid).key_by(lambda bid: (bid.bidder, bid.auction))
    return bids.reduce(last, name="last")


def by_hand(events: Iterable[Event]) -> Iterator[Bid]:
    lasts: dict[tuple[int, int], Bid] = {}
    for event in events:
        if type(event) is Bid:
            key = (event.bidder, event.auction)
            before = lasts.get(key)
            found = lasts[key] = event if before is None else last(before, event)
            yield found


SQL = """
    SELECT auction, bidder, price, time, extra FROM bid
    QUALIFY 1 = row_number() OVER (
        PARTITION BY bidder, auction ORDER BY time DESC, price DESC, extra DESC
    )
"""


def rows(bids: Sequence[Bid]) -> Iterable[Row]:
    """The answer that came last for each pair."""
    return map(astuple, {(bid.bidder, bid.auction): bid for bid in bids}.values())


Q18 = Query("q18", q18, by_hand, SQL, rows=rows)
