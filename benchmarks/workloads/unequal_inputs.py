"""W7: two sources → co-map → slow sink, of which one gives as much as, a tenth of or a hundredth of
the other's records.

Of the frequent input's records each has 1 byte, of the rare one's 1 KiB; the co-map is a keyed step
with two inputs. 1 ms per record in the sink, I/O-slow, 50 records per channel. At 1:1 both inputs
are full; else the rare one's channels are nearly empty, its barrier is early, and aligned it stands
still until the frequent one's barrier has come through full queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import streamcp as sc
from benchmarks.harness import Row, Run, Suite, median_row
from benchmarks.workloads import judging
from benchmarks.workloads.taking import (
    ADAPTIVE,
    ALIGNED,
    Entry,
    Stay,
    completed,
    in_processes,
    take,
    visits_of,
)
from benchmarks.workloads.topology import Gate, Record, Service, filling, records

SERVICE = 0.001
CAPACITY = 50
KEYS = 1000


@dataclass(slots=True)
class Seen:
    """What the co-map knows of a key."""

    records: int = 0


@dataclass(frozen=True, slots=True)
class Inputs:
    """Two inputs, of which the second gives one record to `ratio` of the first."""

    ratio: int
    service: float = SERVICE
    capacity: int = CAPACITY
    parallelism: int = 4
    hops: int = 2

    def build(self, job: sc.Job) -> tuple[Service, Gate]:
        service = Service(self.service)
        rare = records(self.parallelism, 1024)
        if self.ratio > 1:
            rare = paced(self.parallelism, 1024, 1 / self.service / (1 + self.ratio))
        left = job.source(records(self.parallelism, 1), name="frequent").key_by(key_of)
        right = job.source(rare, name="rare").key_by(key_of)
        both = left.connect(right).process(seen, seen, state=Seen, name="co-map")
        both.rebalance().for_each(service.take, name="slow", concurrency=1)
        full = ("frequent", "rare") if self.ratio == 1 else ("frequent",)
        return service, Gate(full, "slow")

    def aligned_delay(self, rate: float) -> float:
        """The sink's queues, and those of the co-map's inputs that are full."""
        exchanges = 3 if self.ratio == 1 else 2
        return exchanges * self.parallelism * self.capacity / rate


def key_of(record: Record) -> int:
    return record[0] % KEYS


def seen(record: Record, state: Seen, context: object) -> Iterable[Record]:
    state.records += 1
    return (record,)


def paced(parallelism: int, payload: int, rate: float) -> Any:
    """An endless source of so many records per second and subtask."""

    @sc.source(splits=lambda: range(parallelism), batches=True)
    async def seldom(split: int, position: int = 0) -> AsyncIterator[tuple[list[Record], int]]:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + 1 / rate, loop.time() - 1.0)
            await asyncio.sleep(due - loop.time())
            yield [(position, filling(position, payload))], position + 1
            position += 1

    return seldom()


# ---- the benchmark


@dataclass(frozen=True, slots=True)
class Sizes:
    """The ratios; per process and ratio, checkpoints of each kind."""

    ratios: tuple[int, ...]
    processes: int
    unaligned: int
    adaptive: int
    aligned: int


FULL = Sizes((1, 10, 100), 3, unaligned=10, adaptive=4, aligned=4)
QUICK = Sizes((1, 100), 1, unaligned=4, adaptive=2, aligned=2)


async def unequal_inputs(run: Run[Sizes]) -> Sequence[Row]:
    """How long do a checkpoint take, and an input stand still, when one of two inputs is full?"""
    sizes = run.sizes
    visits = visits_of(sizes.unaligned, sizes.adaptive, sizes.aligned)
    stays = [Stay(f"1:{ratio}", asdict(Inputs(ratio)), visits) for ratio in sizes.ratios]
    entries = await in_processes(run, take_of_inputs, stays, sizes.processes)
    run.keep("checkpoints", entries)
    rows: list[Row] = []
    for stay in stays:
        rows += judging.setting_rows(entries, stay.setting, overtaking=3 * SERVICE)
        rows += [_blocked_row(entries, mode, stay.setting) for mode in (ALIGNED, ADAPTIVE)]
    return rows + judging.sanity_rows(entries)


async def take_of_inputs(spec: Any) -> list[Entry]:
    """The cell."""
    return await take(spec, Inputs)


def _blocked_row(entries: Sequence[Entry], mode: str, setting: str) -> Row:
    blocked = [1000 * one["longest_blocked"] for one in completed(entries, mode, setting)]
    return median_row(f"longest that a channel stood still, {mode}, {setting}", blocked, "ms")


SUITE = Suite("unequal_inputs", {"unequal_inputs": unequal_inputs}, FULL, QUICK)
