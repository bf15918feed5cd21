"""Timers: how many are set and fired in a second, with one for each record.

A timer costs a place in a queue of due times, in the state of its key, and a call when event time
has reached it. The bare loop keeps a heap, and calls the same function. The records are those of
`windows`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import streamcp as sc
from benchmarks.harness import Row, Run, Suite, at_least, median_row, paired, timed
from benchmarks.harness.ratios import ratio_rows
from benchmarks.windows import BATCH, Sizes, key_of, time_of

AFTER = 1_000  # a timer fires a hundred records later

FULL = Sizes(300_000, 31)
QUICK = Sizes(50_000, 7)


@dataclass
class Fired:
    """What a key keeps: how many of its timers have fired."""

    count: int = 0


def set_one(value: int, fired: Fired, context: sc.KeyContext[int]) -> None:
    context.set_timer(context.timestamp + AFTER)


def on_timer(timestamp: int, fired: Fired, context: object) -> None:
    fired.count += 1


async def bare(n: int) -> None:
    states: dict[int, Fired] = {}
    due: list[tuple[int, int]] = []
    for first in range(0, n, BATCH):
        newest = 0
        for value in range(first, min(first + BATCH, n)):
            key, newest = key_of(value), time_of(value)
            if key not in states:
                states[key] = Fired()
            heapq.heappush(due, (newest + AFTER, key))
        while due and due[0][0] <= newest:
            timestamp, key = heapq.heappop(due)
            on_timer(timestamp, states[key], None)


async def job(n: int) -> None:
    described = sc.Job("timers")
    numbers = described.source(sc.items(range(n)), watermarks=sc.Watermarks(time_of))
    numbers.key_by(key_of).process(set_one, state=Fired, on_timer=on_timer).sink(sc.discard())
    await described.run_async()


async def event_time(run: Run[Sizes]) -> Sequence[Row]:
    """A timer in event time for each record."""
    n, rounds = run.sizes.records, run.sizes.rounds
    pairs = await paired(lambda: timed(lambda: bare(n)), lambda: timed(lambda: job(n)), rounds)
    per_second = [n / subject.clock for _, subject in pairs]
    return [
        median_row("a timer per record", per_second, "/s", target=at_least(200_000)),
        *ratio_rows("a timer per record / bare loop with a heap", pairs, n),
    ]


SUITE = Suite("timers", {"event time": event_time}, FULL, QUICK)
