"""q5, hot items: which auctions had the most bids in the last ten seconds? Asked every two.

Two shuffles: by auction to count, by window to compare. All auctions that share the first place
are told.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

import streamcp as sc
from benchmarks.nexmark.model import OUT_OF_ORDERNESS_MS, Bid, Event, is_bid
from benchmarks.nexmark.query import Query

EVERY = 2_000
SLICES = 5  # of two seconds, in ten
Counted: TypeAlias = sc.WindowResult[int, int]


class HotItem(NamedTuple):
    auction: int
    bids: int
    start: int


def keep_hottest(hottest: list[Counted], one: Counted) -> list[Counted]:
    if not hottest or one.value > hottest[0].value:
        return [one]
    return [*hottest, one] if one.value == hottest[0].value else hottest


def items(window: sc.WindowResult[int, list[Counted]]) -> Iterator[HotItem]:
    return (HotItem(one.key, one.value, one.start) for one in window.value)


def q5(events: sc.Stream[Event]) -> sc.Stream[HotItem]:
    bids = events.filter(is_bid).key_by(lambda bid: bid.auction)
    counts = bids.window(sc.Sliding("10s", every="2s"), name="counts").count()
    rivals = counts.key_by(lambda count: count.start)
    return rivals.window(sc.Tumbling("2s"), name="hottest").fold(list, keep_hottest).flat_map(items)


def by_hand(events: Iterable[Event]) -> Iterator[HotItem]:
    slices: defaultdict[int, Counter[int]] = defaultdict(Counter)
    end = 0  # of the earliest window that is still open
    for event in events:
        if type(event) is Bid:
            start = event.time - event.time % EVERY
            if start not in slices:
                end = min(end, start + EVERY) if slices else start + EVERY
            slices[start][event.auction] += 1
            while event.time - OUT_OF_ORDERNESS_MS >= end:
                yield from hottest(slices, end)
                end += EVERY
    while slices:
        yield from hottest(slices, end)
        end += EVERY


def hottest(slices: defaultdict[int, Counter[int]], end: int) -> Iterator[HotItem]:
    """Compare the auctions of the window that ends so, and drop the slice it began with."""
    first = end - SLICES * EVERY
    total: Counter[int] = Counter()
    for start in range(first, end, EVERY):
        total.update(slices.get(start, {}))
    slices.pop(first, None)
    most = max(total.values(), default=0)
    return (HotItem(auction, bids, first) for auction, bids in total.items() if bids == most)


SQL = """
    SELECT auction, count(*) AS bids, time // 2000 * 2000 - 2000 * earlier.slices AS start
    FROM bid, range(5) AS earlier(slices)
    GROUP BY auction, start
    QUALIFY bids = max(bids) OVER (PARTITION BY start)
"""

Q5 = Query("q5", q5, by_hand, SQL, event_time=True)
