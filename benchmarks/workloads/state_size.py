"""W9: how state and in-flight data share a checkpoint, with 1,000 to 100,000 keys of 100 bytes.

Source → key_by → the newest record of each key → sink. First the job is at rest: its source has
given every key once, and waits. Then it is saturated: the sink takes 1 ms per record, I/O-slow, and
100 records per channel are queued. What many more keys cost alone is measured elsewhere.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import streamcp as sc
from benchmarks.harness import Row, Run, Suite, median_row
from benchmarks.workloads import judging
from benchmarks.workloads.taking import (
    UNALIGNED,
    Entry,
    Stay,
    completed,
    in_processes,
    take,
    visits_of,
)
from benchmarks.workloads.topology import BATCH, MAY_BE_IDLE, Gate, Record, Service, filling

SERVICE = 0.001
CAPACITY = 100
PAYLOAD = 100


class FillingService(Service):
    """Takes no time for the first records, by which the state is filled."""

    def __init__(self, seconds: float, first: int) -> None:
        super().__init__(seconds)
        self._first = first

    def seconds_for(self, record: object) -> float:
        return self.seconds if self.served >= self._first else 0.0


@dataclass(frozen=True, slots=True)
class Keyed:
    """A state of so many keys; at rest, or saturated."""

    keys: int
    saturated: bool
    service: float = SERVICE
    capacity: int = CAPACITY
    parallelism: int = 4
    hops: int = 2

    def build(self, job: sc.Job) -> tuple[Service, Gate]:
        service = FillingService(self.service, self.keys)
        source = keyed(self.parallelism, self.keys, endless=self.saturated)
        newest = job.source(source, name="records").key_by(key_of).reduce(newer, name="newest")
        newest.for_each(service.take, name="slow", concurrency=1)
        # Keys are not divided evenly: while the queues before the subtask with most of them are
        # full, the others wait for records.
        sources = ("records",) if self.saturated else ()
        return service, Gate(sources, "slow", idle=MAY_BE_IDLE, taken=self.keys)

    def aligned_delay(self, rate: float) -> float:
        """Before a sink are the p channels of the exchange, and the one from its own state."""
        return (self.parallelism + 1) * self.capacity / rate if self.saturated else 0.0


def keyed(parallelism: int, keys: int, *, endless: bool) -> Any:
    """Records of each key in turn; unless `endless`, one of each, and then nothing more."""

    @sc.source(splits=lambda: range(parallelism), batches=True)
    async def in_turn(split: int, position: int = 0) -> AsyncIterator[tuple[list[Record], int]]:
        own = range(split, keys, parallelism)
        while endless or position < len(own):
            numbers = [own[at % len(own)] for at in range(position, position + BATCH)]
            if not endless:
                numbers = numbers[: len(own) - position]
            yield [(number, filling(number, PAYLOAD)) for number in numbers], position + BATCH
            position += BATCH
        await asyncio.Event().wait()

    return in_turn()


def key_of(record: Record) -> int:
    return record[0]


def newer(old: Record, new: Record) -> Record:
    return new


# ---- the benchmark


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many keys; per process, number of keys and load, checkpoints of each kind."""

    keys: tuple[int, ...]
    processes: int
    unaligned: int
    adaptive: int
    aligned: int


FULL = Sizes((1_000, 10_000, 100_000), 3, unaligned=10, adaptive=4, aligned=2)
QUICK = Sizes((1_000,), 1, unaligned=4, adaptive=2, aligned=2)


async def state_size(run: Run[Sizes]) -> Sequence[Row]:
    """How do state and in-flight data share a checkpoint, and its time?"""
    sizes = run.sizes
    visits = visits_of(sizes.unaligned, sizes.adaptive, sizes.aligned)
    stays = [
        Stay(setting_of(keys, saturated), asdict(Keyed(keys, saturated)), visits)
        for keys in sizes.keys
        for saturated in (False, True)
    ]
    entries = await in_processes(run, take_of_keyed, stays, sizes.processes)
    run.keep("checkpoints", entries)
    rows: list[Row] = []
    for stay in stays:
        rows += _rows(entries, stay.setting, saturated=stay.topology["saturated"])
    return rows + judging.sanity_rows(entries)


def setting_of(keys: int, saturated: bool) -> str:
    return f"{keys:,} keys, {'saturated' if saturated else 'at rest'}"


def _rows(entries: Sequence[Entry], setting: str, *, saturated: bool) -> list[Row]:
    overtaking = 3 * SERVICE if saturated else 0.0
    rows = judging.unaligned_rows(entries, setting, overtaking=overtaking)
    if saturated:
        rows += judging.aligned_rows(entries, setting)
        rows += judging.adaptive_rows(entries, setting)
    unaligned = completed(entries, UNALIGNED, setting)
    state = statistics.median(one["state_bytes"] for one in unaligned)
    flying = statistics.median(one["in_flight_bytes"] for one in unaligned)
    sync = [1000 * one["sync"] for one in unaligned]
    return [
        *rows,
        median_row(f"longest pause for a snapshot, unaligned, {setting}", sync, "ms"),
        Row(
            f"in-flight share of the bytes, unaligned, {setting}",
            flying / (state + flying),
            detail=f"state {state / 1e6:.3g} MB, in flight {flying / 1e6:.3g} MB",
        ),
    ]


async def take_of_keyed(spec: Any) -> list[Entry]:
    """The cell."""
    return await take(spec, Keyed)


SUITE = Suite("state_size", {"state_size": state_size}, FULL, QUICK)
