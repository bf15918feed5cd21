"""The two ends of random jobs: sources and sinks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any, Protocol

from streamcp.api.sources import source
from streamcp.connectors.files.sink import JsonLines
from streamcp.operators.watermarks import Watermarks
from streamcp.testing.simulation.disk_process import DiskProcess
from streamcp.testing.simulation.files import Files
from streamcp.testing.simulation.kinds import Hooks, Step, common
from streamcp.testing.simulation.records import FIRST_TIMESTAMP, AnyItem, Item, Loose, as_row
from streamcp.testing.simulation.targets import (
    Call,
    Effect,
    PlainSink,
    StagedSink,
    Target,
    TransactionalSink,
)

SINKS = ("transactional", "staged", "plain", "files")
"""Sinks of every contract; what reaches "plain" may come more than once."""
_SIMULATED = {"transactional": TransactionalSink, "staged": StagedSink, "plain": PlainSink}


class Ends(Hooks, Protocol):
    """What sources and sinks of a simulated job work with."""

    opened: list[str]

    @property
    def target(self) -> Target:
        """Where simulated sinks write to."""
        ...

    @property
    def files(self) -> Files:
        """Where file sinks write to."""
        ...

    @property
    def disk(self) -> DiskProcess:
        """By which they write."""
        ...

    async def call_target(self, name: str, effect: Effect, /) -> Any:
        """Call the target."""
        ...


def draw_source(rnd: random.Random, *, first: bool, longest: int) -> dict[str, Any]:
    """Draw how many records come, in how many splits, and how slowly."""
    count = rnd.randint(1, longest) if first else rnd.choice((0, 1, longest // 2))
    return {
        "count": count,
        "keys": rnd.choice((1, 3, 8)),
        "splits": rnd.choice((0, 1, 2, 3)),
        "waits": rnd.choice((0, 0, 1, 7)),
        "loose": rnd.random() < 0.3,
    }


def draw_sink(rnd: random.Random) -> dict[str, Any]:
    """Draw how long each call of the target takes, in seconds."""
    return {"call": rnd.choice((0, 0, 0, 0, 0.001, 0.005))}


def source_records(step: Step, split: int) -> list[Any]:
    """All records of a split, in their order."""
    make: type[Any] = Loose if step.options["loose"] else Item
    keys, count = step.options["keys"], step.options["count"] + split * 2
    return [make((i * 7 + split) % keys, f"{step.name}-{split}", (i,)) for i in range(count)]


def build_source(job: Any, step: Step, ends: Ends, *, timed: bool) -> Any:
    """Add the source to a job; `timed` records are never late, and later than every timer."""
    splits = step.options["splits"]
    made = _divided(step, ends) if splits else _undivided(step, ends)
    watermarks = Watermarks(timestamp_of) if timed else None
    return job.source(made, watermarks=watermarks, **common(step))


def timestamp_of(item: AnyItem) -> int:
    """The timestamp of a source's record: they ascend within each split."""
    return FIRST_TIMESTAMP + 10 * item.seq[0]


async def _pause(waits: int, i: int) -> None:
    if waits and i % waits == 0:
        await asyncio.sleep(0.001 if i % 2 else 0)


def _undivided(step: Step, ends: Ends) -> Any:
    records, waits = source_records(step, 0), step.options["waits"]

    async def read(position: int = 0) -> AsyncIterator[tuple[AnyItem, int]]:
        ends.opened.append(step.name)
        try:
            for i in range(position, len(records)):
                await _pause(waits, i)
                yield records[i], i + 1
        finally:
            ends.opened.remove(step.name)

    return source(read)()


def _divided(step: Step, ends: Ends) -> Any:
    waits, splits = step.options["waits"], step.options["splits"]

    async def read(split: int, position: int = 0) -> AsyncIterator[tuple[Sequence[AnyItem], int]]:
        records, size = source_records(step, split), 1 + split * 3
        ends.opened.append(step.name)
        try:
            for i in range(position, len(records), size):
                await _pause(waits, i)
                yield records[i : i + size], min(i + size, len(records))
        finally:
            ends.opened.remove(step.name)

    return source(splits=lambda: list(range(splits)), batches=True)(read)()


async def _slow_call(call: Call, seconds: float, name: str, effect: Effect) -> Any:
    if seconds:
        await asyncio.sleep(seconds)
    return await call(name, effect)


def build_sink(step: Step, stream: Any, ends: Ends) -> None:
    """Write a stream as plain values."""
    rows = stream.map(as_row, parallelism=step.parallelism)
    if step.kind == "files":
        open_sink: Any = partial(JsonLines, ends.files.folder(step.name), files=ends.disk.files)
    else:
        call = partial(_slow_call, ends.call_target, step.options["call"])
        open_sink = partial(_SIMULATED[step.kind], ends.target, step.name, call, ends.opened)
    rows.sink(open_sink, **common(step))
