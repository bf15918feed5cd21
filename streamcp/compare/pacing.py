"""Sources that give out their records when they are due, whether or not anybody takes them.

Open loop: record i of a reader is due at its rate, i / rate after the beginning, and nothing that
the job does changes that. Records that are due while the job has no room wait outside, and keep the
time at which they were due. They come in ticks: an event loop cannot wake up for each of them.
Knows nothing of checkpoints; a restored reader goes on behind the record where it was.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import math
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from streamcp.clock import Clock, SystemClock
from streamcp.compare.histogram import Histogram
from streamcp.operators.sources import Source

# Timers are late by about a millisecond: what is due within one is given out together.
TICK = 0.001


class Pace:
    """When the records of all readers are due, and how that went.

    `waited` counts, for every record, how long after it was due it was given out: it waited outside
    for the job. `late` counts, for every tick that was waited for, how late the pace itself was."""

    def __init__(self, rates: Mapping[str, float], clock: Clock | None = None) -> None:
        """`rates` has the records per second of each reader."""
        self._rates = dict(rates)
        self._clock = clock or SystemClock()
        self._began: float | None = None
        self._began_ms = 0
        self.given: dict[str, int] = {}
        self.waited = Histogram()
        self.late = Histogram()
        self.first_given: dict[int, float] = {}

    def now(self) -> float:
        """Seconds since the beginning, which is when the first reader asks."""
        now = self._clock.monotonic()
        if self._began is None:
            self._began, self._began_ms = now, self._clock.wall_ms()
        return now - self._began

    def due(self, reader: str, number: int) -> float:
        """When record `number` of a reader is due, in seconds since the beginning; at once for a
        reader without a rate, which had nothing to give out when rates were found."""
        return number / self._rates.get(reader, math.inf)

    def stamp(self, due: float) -> int:
        """The time of the machine at which that is, in whole milliseconds."""
        return self._began_ms + round(due * 1000)

    def since(self, stamp: int) -> float:
        """Seconds since the beginning at which a stamp was due."""
        return (stamp - self._began_ms) / 1000

    def give(self, reader: str, due: float) -> int:
        """Note that the next record of a reader, due then, is given out now; return its stamp."""
        now = self.now()
        self.given[reader] = self.given.get(reader, 0) + 1
        self.waited.add(now - due)
        stamp = self.stamp(due)
        self.first_given.setdefault(stamp, now)
        return stamp

    def waiting(self, limits: Mapping[str, int]) -> int:
        """How many records are due and were not taken; no reader has more than its limit."""
        if self._began is None:
            return 0
        now = self.now()
        due = {reader: min(now * rate, limits[reader]) for reader, rate in self._rates.items()}
        return sum(max(int(due[one]) - self.given.get(one, 0), 0) for one in due)

    async def until(self, due: float) -> None:
        """Wait until a record is due, or for the next tick."""
        target = max(due, self.now() + TICK)
        waited = False
        while due > self.now():  # a loop may wake up a little early
            waited = True
            await asyncio.sleep(target - self.now())
        if waited:
            self.late.add(self.now() - target)


def paced(source: Source[Any], name: str, pace: Pace, *, stamped: bool) -> Source[Any]:
    """Make `source` keep a pace. Its positions are then `(position, records so far, how many of
    them lie behind the position)`: a batch is given out in parts.

    With `stamped` a record is a pair with the stamp of when it was due, for a `PacedWatermarks`."""
    start = (source.start, 0, 0)
    make = functools.partial(_read, pace=pace, batches=source.batches, stamped=stamped)
    fn = _undivided(source, name, make) if source.splits is None else _divided(source, name, make)
    return dataclasses.replace(source, fn=fn, start=start)


Reading = Callable[..., AsyncIterator[tuple[Any, Any]]]


def _undivided(source: Source[Any], name: str, make: Reading) -> Reading:
    @functools.wraps(source.fn)
    def read(position: Any, *args: Any, **kwargs: Any) -> AsyncIterator[tuple[Any, Any]]:
        return make(source.fn(position[0], *args, **kwargs), name, position)

    return read


def _divided(source: Source[Any], name: str, make: Reading) -> Reading:
    @functools.wraps(source.fn)
    def read(
        split: Any, position: Any, *args: Any, **kwargs: Any
    ) -> AsyncIterator[tuple[Any, Any]]:
        opened = source.fn(split, position[0], *args, **kwargs)
        return make(opened, f"{name}[{split!r}]", position)

    return read


async def _read(
    opened: AsyncIterator[tuple[Any, Any]],
    reader: str,
    start: tuple[Any, int, int],
    *,
    pace: Pace,
    batches: bool,
    stamped: bool,
) -> AsyncIterator[tuple[Any, Any]]:
    before, given, skipped = start
    try:
        while True:
            await pace.until(pace.due(reader, given))
            try:
                read, behind = await anext(opened)
            except StopAsyncIteration:
                return
            records = list(read) if batches else [read]
            skipped, done = max(skipped - len(records), 0), min(skipped, len(records))
            while done < len(records):
                part = await _due_part(records[done:], reader, given, pace)
                done, given = done + len(part), given + len(part)
                whole = done == len(records)
                position = (behind, given, 0) if whole else (before, given, done)
                out = part if stamped else [record for record, _ in part]
                yield (out if batches else out[0]), position
            before = behind
    finally:
        if hasattr(opened, "aclose"):
            await opened.aclose()


async def _due_part(
    records: list[Any], reader: str, given: int, pace: Pace
) -> list[tuple[Any, int]]:
    """The first of `records`, when it is due, and all that are due by then."""
    await pace.until(pace.due(reader, given))
    now, part = pace.now(), []
    for number, record in enumerate(records, given):
        due = pace.due(reader, number)
        if due > now:
            break
        part.append((record, pace.give(reader, due)))
    return part
