"""q12-running, CheckMate's variant of q12: the count of a bidder with every bid, begun anew every
ten seconds of processing time. As in q12 the answer depends on the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import streamcp as sc
from benchmarks.nexmark.model import Bid, Event, is_bid
from benchmarks.nexmark.query import Clock, Query, wall_clock

SIZE = 10_000


class RunningCount(NamedTuple):
    bidder: int
    bids: int


@dataclass
class Window:
    """The bids of a bidder in the window that ends so."""

    end: int = 0
    bids: int = 0


def count(bid: Bid, window: Window, ctx: sc.KeyContext[int]) -> list[RunningCount]:
    if ctx.timestamp >= window.end:
        window.bids = 0
        window.end = ctx.timestamp // SIZE * SIZE + SIZE
        ctx.set_timer(window.end)
    window.bids += 1
    return [RunningCount(ctx.key, window.bids)]


def forget(now: int, window: Window, ctx: sc.KeyContext[int]) -> None:
    if now >= window.end:
        ctx.clear_state()


def q12_running(events: sc.Stream[Event]) -> sc.Stream[RunningCount]:
    bids = events.filter(is_bid).key_by(lambda bid: bid.bidder)
    return bids.process(count, state=Window, on_timer=forget, name="counts")


def by_clock(events: Iterable[Event], now: Clock) -> Iterator[RunningCount]:
    counts: dict[int, int] = {}
    end = 0
    for event in events:
        if type(event) is Bid:
            at = now(event)
            if at >= end:
                counts, end = {}, at // SIZE * SIZE + SIZE
            found = counts[event.bidder] = counts.get(event.bidder, 0) + 1
            yield RunningCount(event.bidder, found)


SQL = """
    SELECT bidder, row_number() OVER (PARTITION BY bidder, time // 10000) FROM bid
"""

Q12_RUNNING = Query(
    "q12-running", q12_running, partial(by_clock, now=wall_clock), SQL, by_clock=by_clock
)
