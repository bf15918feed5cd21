"""q1, currency conversion: the price of every bid in euros."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import streamcp as sc
from benchmarks.nexmark.model import Bid, Event, is_bid
from benchmarks.nexmark.query import Query

EUROS_PER_DOLLAR = 0.908


class EuroBid(NamedTuple):
    auction: int
    bidder: int
    price: float
    time: int
    extra: str


def in_euros(bid: Bid) -> EuroBid:
    return EuroBid(bid.auction, bid.bidder, bid.price * EUROS_PER_DOLLAR, bid.time, bid.extra)


def q1(events: sc.Stream[Event]) -> sc.Stream[EuroBid]:
    return events.filter(is_bid).map(in_euros)


def by_hand(events: Iterable[Event]) -> Iterator[EuroBid]:
    for event in events:
        if type(event) is Bid:
            yield in_euros(event)


SQL = "SELECT auction, bidder, price * 0.908::DOUBLE, time, extra FROM bid"

Q1 = Query("q1", q1, by_hand, SQL)
