"""q0, pass through: every bid as it is. What does the framework itself cost?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple

import streamcp as sc
from benchmarks.nexmark.model import Bid, Event, is_bid
from benchmarks.nexmark.query import Query


def q0(events: sc.Stream[Event]) -> sc.Stream[Bid]:
    return events.filter(is_bid)


def by_hand(events: Iterable[Event]) -> Iterator[Bid]:
    for event in events:
        if type(event) is Bid:
            yield event


SQL = "SELECT auction, bidder, price, time, extra FROM bid"

Q0 = Query("q0", q0, by_hand, SQL, rows=lambda bids: map(astuple, bids))
