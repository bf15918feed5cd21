"""W10: records that take long, or become many. Where unaligned checkpoints do not help.

- `await`: one record in a thousand takes the sink 500 ms, I/O-slow. A barrier never waits for a
  coroutine, so here, other than in Flink, it does not wait for a long record either.
- `spin`: a plain function computes for 500 ms for one record in a thousand, CPU-slow. Nothing else
  runs in that event loop meanwhile: neither a barrier nor the trigger, in no mode. The trigger is
  drawn at random, and what it is late counts as delay.
- `fan-out`: a `flat_map` makes a hundred records of one before the slow sink, so that what is
  queued before it weighs a hundred times as much for an aligned barrier.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import streamcp as sc
from benchmarks.harness import Row, Run, Suite, bootstrap_interval
from benchmarks.workloads import judging
from benchmarks.workloads.taking import (
    ADAPTIVE,
    ALIGNED,
    UNALIGNED,
    Entry,
    Stay,
    completed,
    in_processes,
    take,
    visits_of,
)
from benchmarks.workloads.topology import MAY_BE_IDLE, Gate, Record, Service, identity, records

Long: TypeAlias = Literal["await", "spin", "fan-out"]
SECONDS = 0.5  # of a long record
ONE_IN = 1000
FAN_OUT = 100
PAYLOAD = 100


class NowAndThen(Service):
    """Takes `SECONDS` for one record in a thousand."""

    def seconds_for(self, record: object) -> float:
        return SECONDS if self.served % ONE_IN == ONE_IN - 1 else self.seconds


@dataclass(frozen=True, slots=True)
class LongRecords:
    """The chain of Flink's benchmark with records of one of the kinds."""

    kind: Long
    service: float
    capacity: int
    parallelism: int = 4
    hops: int = 2

    def build(self, job: sc.Job) -> tuple[Service, Gate]:
        service = (NowAndThen if self.kind == "await" else Service)(self.service)
        spread = job.source(records(self.parallelism, PAYLOAD), name="records").rebalance()
        if self.kind == "fan-out":
            stream = spread.flat_map(hundred, name="middle")
        else:
            stream = spread.map(Spinning() if self.kind == "spin" else identity, name="middle")
        stream.rebalance().for_each(service.take, name="slow", concurrency=1)
        # A long record holds one subtask up; with its queues full, the others wait for records.
        idle = 0.1 if self.kind == "fan-out" else MAY_BE_IDLE
        return service, Gate(("records",), "slow", idle=idle)

    def aligned_delay(self, rate: float) -> float:
        """By the rate that was measured, in which long records are. Before the `flat_map` each
        record counts as those that are made of it."""
        before = FAN_OUT if self.kind == "fan-out" else 1
        return (before + 1) * self.parallelism * self.capacity / rate


class Spinning:
    """A plain function that computes for `SECONDS` for one record in a thousand."""

    def __init__(self) -> None:
        self._taken = 0

    def __call__(self, record: Record) -> Record:
        self._taken += 1
        if self._taken % ONE_IN == 0:
            until = time.perf_counter() + SECONDS
            while time.perf_counter() < until:
                pass
        return record


def hundred(record: Record) -> list[Record]:
    number, payload = record
    return [(FAN_OUT * number + piece, payload) for piece in range(FAN_OUT)]


# ---- the benchmark

TOPOLOGIES: dict[Long, LongRecords] = {
    "await": LongRecords("await", service=0.001, capacity=50),
    # 800 records a second: the event loop computes for 0.4 s of each.
    "spin": LongRecords("spin", service=0.005, capacity=10),
    "fan-out": LongRecords("fan-out", service=0.0002, capacity=10),
}
SPREAD = 1.0  # seconds behind the gate, in which the trigger of `spin` is drawn


@dataclass(frozen=True, slots=True)
class Sizes:
    """The kinds of long records; per process and kind, checkpoints of each mode."""

    kinds: tuple[Long, ...]
    processes: int
    unaligned: int
    adaptive: int
    aligned: int


FULL = Sizes(("await", "spin", "fan-out"), 3, unaligned=10, adaptive=4, aligned=4)
QUICK = Sizes(("await", "fan-out"), 1, unaligned=4, adaptive=2, aligned=2)


async def long_records(run: Run[Sizes]) -> Sequence[Row]:
    """Does an unaligned checkpoint help where single records take long, or become many?"""
    sizes = run.sizes
    visits = visits_of(sizes.unaligned, sizes.adaptive, sizes.aligned)
    stays = [
        Stay(kind, asdict(TOPOLOGIES[kind]), visits, spread=SPREAD if kind == "spin" else 0.0)
        for kind in sizes.kinds
    ]
    entries = await in_processes(run, take_of_long, stays, sizes.processes)
    run.keep("checkpoints", entries)
    rows: list[Row] = []
    for kind in sizes.kinds:
        rows += _rows(entries, kind, run.seed)
    return rows + judging.sanity_rows(entries)


def _rows(entries: Sequence[Entry], kind: Long, seed: int) -> list[Row]:
    if kind == "spin":  # no target: this is where nothing helps
        means = [_mean_row(entries, mode, seed) for mode in (UNALIGNED, ADAPTIVE, ALIGNED)]
        return [*means, *judging.times_faster(entries, kind)]
    return judging.setting_rows(entries, kind, overtaking=3 * TOPOLOGIES[kind].service)


def _mean_row(entries: Sequence[Entry], mode: str, seed: int) -> Row:
    """The mean: a barrier waits for a long record, or it does not."""
    delays = [1000 * judging.barrier(one) for one in completed(entries, mode, "spin")]
    return Row(
        f"{mode}: barrier delay, mean, spin",
        _mean(delays),
        "ms",
        bootstrap_interval([delays], _mean, seed),
        detail=f"CPU-slow; n = {len(delays)}, max {max(delays):.0f} ms, drawn again: checkpoints",
        samples=tuple(delays),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


async def take_of_long(spec: Any) -> list[Entry]:
    """The cell."""
    return await take(spec, LongRecords)


SUITE = Suite("long_records", {"long_records": long_records}, FULL, QUICK)
