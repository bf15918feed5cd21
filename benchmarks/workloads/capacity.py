"""W3: the chain of `service_time` with 1 to 10,000 records per channel.

1 ms and 100 bytes per record. An aligned checkpoint of 10,000 would take more than a minute: it is
told by the law. Small capacities are the alternative to overtaking, and shown as that. With one
record per channel the sources are blocked as ever, but the sinks are not always busy: no queue
keeps the next record ready.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from benchmarks.harness import Row, Run, Suite, at_most
from benchmarks.workloads import judging
from benchmarks.workloads.taking import (
    ADAPTIVE,
    ALIGNED,
    UNALIGNED,
    Entry,
    Stay,
    Visit,
    completed,
    in_processes,
    take_of_chain,
)
from benchmarks.workloads.topology import Chain

SERVICE = 0.001
LONG_FROM = 100  # records: of shorter queues as much is on its way between two of them
HARDLY = at_most(0.1)  # the slope of what does not depend on the capacity


@dataclass(frozen=True, slots=True)
class Sizes:
    """Per process: checkpoints of each kind; aligned ones by capacity, the others by the law."""

    capacities: tuple[int, ...]
    processes: int
    unaligned: int
    adaptive: int
    aligned: Mapping[int, int]


FULL = Sizes(
    capacities=(1, 10, 100, 1000, 10_000),
    processes=3,
    unaligned=10,
    adaptive=6,
    aligned={1: 6, 10: 6, 100: 4, 1000: 1},
)
QUICK = Sizes(capacities=(10, 1000), processes=1, unaligned=6, adaptive=2, aligned={10: 2})


async def capacity(run: Run[Sizes]) -> Sequence[Row]:
    """How does a checkpoint's time depend on how many records a channel holds?"""
    entries: list[Entry] = []
    rows: list[Row] = []
    for capacity in run.sizes.capacities:
        stay = _stay(run.sizes, capacity)
        entries += await in_processes(run, take_of_chain, [stay], run.sizes.processes)
        rows += _rows(entries, stay.setting, capacity)
    run.keep("checkpoints", entries)
    return [
        *rows,
        _slope_row(entries, run.sizes.capacities, run.seed),
        *judging.sanity_rows(entries),
    ]


def setting_of(capacity: int) -> str:
    return f"capacity {capacity:,}"


def _stay(sizes: Sizes, capacity: int) -> Stay:
    visits = [
        Visit(UNALIGNED, sizes.unaligned),
        Visit(ADAPTIVE, sizes.adaptive),
        Visit(ALIGNED, sizes.aligned.get(capacity, 0)),
    ]
    return Stay(setting_of(capacity), asdict(Chain(SERVICE, capacity)), visits)


def _rows(entries: Sequence[Entry], setting: str, capacity: int) -> list[Row]:
    rows = judging.unaligned_rows(entries, setting, overtaking=3 * SERVICE)
    rows += judging.aligned_rows(entries, setting, queued=capacity >= LONG_FROM)
    if not completed(entries, ALIGNED, setting):
        law = Chain(SERVICE, capacity).aligned_delay(1 / SERVICE)
        rows.append(Row(f"aligned barrier delay by the law, {setting}", law, "s"))
    return [
        *rows,
        *judging.adaptive_rows(entries, setting),
        *judging.times_faster(entries, setting),
    ]


def _slope_row(entries: Sequence[Entry], capacities: Sequence[int], seed: int) -> Row:
    delays = {
        float(capacity): [
            judging.barrier(entry) for entry in completed(entries, UNALIGNED, setting_of(capacity))
        ]
        for capacity in capacities
    }
    name = "slope of log(unaligned delay + 2 ms) over log(capacity)"
    return judging.slope_row(name, delays, seed, HARDLY)


SUITE = Suite("capacity", {"capacity": capacity}, FULL, QUICK)
