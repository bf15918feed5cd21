"""Joins: what they cost beside a loop that keeps the records of both sides in lists per key.

Each window of a figure is one whole job, as in `micro`: two sources, each with half of the records,
fifty keys, ten milliseconds of event time per record of a source. In the interval join a record
meets three of the other side; in the as-of join one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeAlias

import streamcp as sc
from benchmarks.harness import Row, Run, Suite
from benchmarks.harness.ratios import ratio
from benchmarks.windows import BATCH, FULL, QUICK, Sizes, key_of, time_of

BEFORE = 1_000
Keyed: TypeAlias = sc.KeyedStream[int, int]
ByKey: TypeAlias = defaultdict[int, list[tuple[int, int]]]


def pair(left: int, right: int) -> tuple[int, int]:
    return left, right


# ---- the bare loops; they return how many rows there are


async def bare_interval(n: int) -> int:
    rows = 0
    lefts: ByKey = defaultdict(list)
    rights: ByKey = defaultdict(list)
    for first in range(0, n // 2, BATCH):
        values = range(first, min(first + BATCH, n // 2))
        for value in values:
            time, key = time_of(value), key_of(value)
            for at, right in rights[key]:
                if time - BEFORE <= at <= time:
                    _ = pair(value, right)
                    rows += 1
            lefts[key].append((time, value))
        for value in values:
            time, key = time_of(value), key_of(value)
            for at, left in lefts[key]:
                if at - BEFORE <= time <= at:
                    _ = pair(left, value)
                    rows += 1
            rights[key].append((time, value))
        newest = time_of(values[-1])
        for kept in lefts.values():
            kept.clear()
        for kept in rights.values():
            del kept[: bisect_right(kept, (newest - BEFORE,))]
    return rows


async def bare_asof(n: int) -> int:
    rows = 0
    waiting: ByKey = defaultdict(list)
    versions: ByKey = defaultdict(list)
    for first in range(0, n // 2, BATCH):
        values = range(first, min(first + BATCH, n // 2))
        for value in values:
            waiting[key_of(value)].append((time_of(value), value))
        for value in values:
            versions[key_of(value)].append((time_of(value), value))
        for key, kept in waiting.items():
            of_key = versions[key]
            for time, left in kept:
                place = bisect_right(of_key, (time + 1,)) - 1
                if place >= 0:
                    _ = pair(left, of_key[place][1])
                    rows += 1
            kept.clear()
            del of_key[:-1]
    return rows


# ---- the jobs


def described(n: int, join: Callable[[Keyed, Keyed], sc.Stream[tuple[int, int]]]) -> sc.Job:
    """A job that joins, and drops what comes out."""
    job = sc.Job("joins")
    left, right = (
        job.source(sc.items(range(n // 2)), name=name, watermarks=sc.Watermarks(time_of))
        for name in ("left", "right")
    )
    join(left.key_by(key_of), right.key_by(key_of)).sink(sc.discard(), name="out")
    return job


def interval_join(left: Keyed, right: Keyed) -> sc.Stream[tuple[int, int]]:
    return left.join(right, pair, before=f"{BEFORE}ms")


def asof_join(left: Keyed, right: Keyed) -> sc.Stream[tuple[int, int]]:
    return left.join_asof(right, pair)


# ---- the figures


async def interval(run: Run[Sizes]) -> Sequence[Row]:
    """Each left record with those of the second before it."""
    name = "interval join / bare loop"
    n, rounds = run.sizes.records, run.sizes.rounds
    return await ratio(
        name, bare_interval, lambda n: described(n, interval_join).run_async(), n, rounds, None
    )


async def asof(run: Run[Sizes]) -> Sequence[Row]:
    """Each left record with the newest right one."""
    name = "as-of join / bare loop"
    n, rounds = run.sizes.records, run.sizes.rounds
    return await ratio(
        name, bare_asof, lambda n: described(n, asof_join).run_async(), n, rounds, None
    )


SUITE = Suite("joins", {"interval": interval, "asof": asof}, FULL, QUICK)
