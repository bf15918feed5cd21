"""q12, processing time: how many bids did each bidder make in ten seconds by the machine's clock?

The answer depends on when the events come, so it can be checked only where that is known: when
each comes at its own time, by a clock in virtual time. Timers of processing time end with the job;
a source that ends must wait until the last window has closed.
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


class Activity(NamedTuple):
    bidder: int
    bids: int
    start: int
    end: int


@dataclass
class Window:
    """The window of a bidder that is open, if it holds a bid."""

    end: int = 0
    bids: int = 0


def count(bid: Bid, window: Window, ctx: sc.KeyContext[int]) -> list[Activity]:
    # A bid may come when the window is over, but before its timer.
    closed = close(ctx.timestamp, window, ctx) if ctx.timestamp >= window.end else []
    if not window.bids:
        window.end = ctx.timestamp // SIZE * SIZE + SIZE
        ctx.set_timer(window.end)
    window.bids += 1
    return closed


def close(now: int, window: Window, ctx: sc.KeyContext[int]) -> list[Activity]:
    if not window.bids or now < window.end:
        return []
    activity = Activity(ctx.key, window.bids, window.end - SIZE, window.end)
    window.bids = 0
    return [activity]


def q12(events: sc.Stream[Event]) -> sc.Stream[Activity]:
    bids = events.filter(is_bid).key_by(lambda bid: bid.bidder)
    return bids.process(count, state=Window, on_timer=close, name="activity")


def by_clock(events: Iterable[Event], now: Clock) -> Iterator[Activity]:
    """The windows that are open at the end are given as well: the loop does not wait for them."""
    counts: dict[int, int] = {}
    end = 0
    for event in events:
        if type(event) is Bid:
            at = now(event)
            if at >= end:
                yield from activities(counts, end)
                counts, end = {}, at // SIZE * SIZE + SIZE
            counts[event.bidder] = counts.get(event.bidder, 0) + 1
    yield from activities(counts, end)


def activities(counts: dict[int, int], end: int) -> Iterator[Activity]:
    return (Activity(bidder, bids, end - SIZE, end) for bidder, bids in counts.items())


SQL = """
    SELECT bidder, count(*), time // 10000 * 10000 AS start, start + 10000
    FROM bid GROUP BY bidder, start
"""

Q12 = Query("q12", q12, partial(by_clock, now=wall_clock), SQL, by_clock=by_clock)
