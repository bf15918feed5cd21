"""Does a record cost the same, however many subtasks there are?

One job: sources → exchange by key → running count → sink, every step with as many subtasks as the
row says, so that the exchange has as many channels as their square. All in one process: more
subtasks can make nothing faster, and shall make nothing slower. Processor time is judged.

The jobs run beside each other and take turns: one works off a window of records while the others
wait. Before anything is measured every sender has seen every key.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from benchmarks.harness import Row, Run, Suite, at_most, median_row, timed
from benchmarks.scale.feed import Feed, counting_job

KEYS = 10_000
STRIDE = 7919  # a prime: keys that come one after the other are far apart


@dataclass(frozen=True, slots=True)
class Sizes:
    """Records per window, windows per parallelism, and the parallelisms; the first is the base."""

    records: int
    rounds: int
    parallelisms: tuple[int, ...]


FULL = Sizes(256 * 1024, 21, (1, 2, 4, 16, 64))
QUICK = Sizes(64 * 1024, 7, (1, 16))


def keys_of(split: int) -> list[int]:
    """All keys once, in an order in which neighbours are far apart, each split from another on."""
    return [(number + 157 * split) * STRIDE % KEYS for number in range(KEYS)]


async def subtasks(run: Run[Sizes]) -> Sequence[Row]:
    """Does a record cost the same, however many parallel subtasks there are?"""
    costs: dict[int, list[float]] = {p: [] for p in run.sizes.parallelisms}
    async with AsyncExitStack() as stack:
        feeds: dict[int, Feed] = {}
        for parallelism in run.sizes.parallelisms:
            run.say(f"{parallelism} subtasks see all keys")
            feed = feeds[parallelism] = Feed(keys_of, parallelism)
            await stack.enter_async_context(counting_job(feed, parallelism).start())
            await feed.give(KEYS * parallelism)
        for number in range(-1, run.sizes.rounds):
            run.say(f"round {number + 1} of {run.sizes.rounds}")
            for parallelism, feed in feeds.items():
                cost = await _per_record(feed, run.sizes.records)
                if number >= 0:  # the first round only warms up
                    costs[parallelism].append(cost)
    return [row for p in costs for row in _rows(p, costs)]


async def _per_record(feed: Feed, records: int) -> float:
    """Nanoseconds of the processor per record."""
    return (await timed(lambda: feed.give(records))).processor / records * 1e9


def _rows(parallelism: int, costs: dict[int, list[float]]) -> list[Row]:
    first = min(costs)
    own, base = costs[parallelism], costs[first]
    cost = median_row(f"processor time per record, parallelism {parallelism}", own, "ns")
    if parallelism == first:
        return [cost]
    factors = [one / other for one, other in zip(own, base, strict=True)]
    name = f"time per record at parallelism {parallelism} / {first}"
    detail = f"{parallelism**2:,} channels; {statistics.median(base):,.0f} ns at {first}"
    return [cost, median_row(name, factors, "×", target=at_most(1.5), detail=detail)]


SUITE = Suite("parallelism", {"subtasks": subtasks}, FULL, QUICK)
