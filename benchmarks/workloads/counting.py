"""The job of the open-loop workloads: source → key_by → stateful count → sink, four subtasks each.

A record is a key, its intended time, 100 bytes, and the time at which the source gave it out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import streamcp as sc
from benchmarks.harness.open_loop import Intake, now
from benchmarks.harness.recorder import Recorder

PARALLELISM = 4
KEYS = 10_000
PAYLOAD = 100

Record: TypeAlias = tuple[int, int, bytes, int]
Counted: TypeAlias = tuple[int, int, int, int]  # key, count, intended, given


@dataclass
class Count:
    """The state of a key."""

    records: int = 0


def key_of(record: Record) -> int:
    return record[0]


def key(index: int) -> int:
    """The key of a record: each as often as the others."""
    return index * 7919 % KEYS


def count(record: Record, state: Count, ctx: sc.KeyContext[int]) -> tuple[Counted]:
    state.records += 1
    return ((record[0], state.records, record[1], record[3]),)


def source(intake: Intake) -> sc.Source[Record]:
    """Give out what is due."""

    @sc.source(splits=lambda: range(PARALLELISM), batches=True)
    async def due(split: int, position: int = 0) -> AsyncIterator[tuple[list[Record], int]]:
        intended, begun = intake.times.intended, intake.begun
        async for indexes in intake.batches(split, position):
            given = now()
            position += len(indexes)
            yield (
                [
                    (key(index), begun + intended(index), index.to_bytes(PAYLOAD, "big"), given)
                    for index in indexes
                ],
                position,
            )

    return due()


class RecordingSink:
    """Tells a recorder the stamps of what it gets."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def write(self, records: Sequence[Counted]) -> None:
        """Count."""
        self._recorder.write([one[2] for one in records], [one[3] for one in records])


Ending: TypeAlias = Callable[[sc.Stream[Counted]], object]
"""Draws the sink of what was counted."""


def recording_sink(recorder: Recorder) -> Ending:
    """A sink that takes no time."""
    return lambda counted: counted.sink(lambda: RecordingSink(recorder), name="results")


def counting_job(intake: Intake, ending: Ending, **settings: Any) -> sc.Job:
    """Describe it, with settings of `sc.Job`."""
    job = sc.Job("counting", parallelism=PARALLELISM, **settings)
    counted = job.source(source(intake), name="due").key_by(key_of)
    ending(counted.process(count, state=Count, name="count"))
    return job
