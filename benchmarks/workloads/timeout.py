"""The timeout sweep: how long adaptive checkpoints take, and what they capture, by their timeout.

The chain with 1 ms per record in the sink, at three levels of backpressure: 10, 100 and 300 records
per channel, which an aligned barrier waits for 80 ms, 0.8 s and 2.4 s. The prediction is off, so
that every checkpoint starts aligned and pays its timeout.

The trap: barriers that are stuck in full output queues. At these topologies the first barrier comes
to the sinks when nearly all of the delay is over, and the others with it; a timer that started at
a subtask's first barrier would hardly ever fire. streamcp's runs from the trigger. What the other
would give is calculated from the phases of aligned checkpoints.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from benchmarks.harness import Row, Run, Suite, at_most, median_row
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


@dataclass(frozen=True, slots=True)
class Sizes:
    """Capacities are the levels of backpressure; per process, level and timeout, checkpoints."""

    capacities: tuple[int, ...]
    timeouts: tuple[float, ...]
    processes: int
    unaligned: int
    adaptive: int
    aligned: int


FULL = Sizes(
    capacities=(10, 100, 300),
    timeouts=(0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
    processes=3,
    unaligned=6,
    adaptive=3,
    aligned=2,
)
QUICK = Sizes((100,), (0.01, 0.1), 1, unaligned=4, adaptive=2, aligned=2)


async def timeout(run: Run[Sizes]) -> Sequence[Row]:
    """How long do adaptive checkpoints take, and what do they capture, depending on the timeout?"""
    entries: list[Entry] = []
    rows: list[Row] = []
    for capacity in run.sizes.capacities:
        stay = _stay(run.sizes, capacity)
        entries += await in_processes(run, take_of_chain, [stay], run.sizes.processes)
        rows += judging.unaligned_rows(entries, stay.setting, overtaking=3 * SERVICE)
        rows += judging.aligned_rows(entries, stay.setting, queued=capacity >= 100)
        for timeout in run.sizes.timeouts:
            rows += _rows(entries, stay.setting, timeout)
    run.keep("checkpoints", entries)
    run.keep("timer from the first barrier", _trapped(entries, run.sizes.timeouts))
    return rows + judging.sanity_rows(entries)


def _stay(sizes: Sizes, capacity: int) -> Stay:
    visits = [
        Visit(UNALIGNED, sizes.unaligned),
        *(Visit(ADAPTIVE, sizes.adaptive, timeout) for timeout in sizes.timeouts),
        Visit(ALIGNED, sizes.aligned),
    ]
    return Stay(f"capacity {capacity:,}", asdict(Chain(SERVICE, capacity)), visits)


def _rows(entries: Sequence[Entry], setting: str, timeout: float) -> list[Row]:
    name = f"adaptive, {setting}, timeout {1000 * timeout:g} ms"
    taken = [one for one in completed(entries, ADAPTIVE, setting) if one["timeout"] == timeout]
    unaligned = statistics.median(map(judging.barrier, completed(entries, UNALIGNED, setting)))
    limit = timeout + judging.UNALIGNED_SHARE * unaligned + judging.ALLOWANCE
    shares = [judging.barrier(one) / judging.aligned_delay(entries, one) for one in taken]
    captured = statistics.median(one["channel_records"] for one in taken)
    size = statistics.median(one["in_flight_bytes"] for one in taken)
    return [
        judging.delay_row(f"{name}: barrier delay", taken, limit=limit),
        median_row(
            f"{name}: barrier delay / aligned",
            shares,
            "×",
            target=at_most(judging.MAY_EXCEED),
            detail=f"{captured:.0f} records captured of channels, {size / 1e6:.3g} MB in flight",
        ),
        _trap_row(name, entries, setting, timeout),
    ]


# ---- the trap


def _trap_row(name: str, entries: Sequence[Entry], setting: str, timeout: float) -> Row:
    delays = [
        1000 * from_first_barrier(one["tasks"], timeout)
        for one in completed(entries, ALIGNED, setting)
        if one["tasks"]
    ]
    detail = "calculated from aligned checkpoints; not what streamcp does"
    return median_row(f"{name}: with a timer from the first barrier", delays, "ms", detail=detail)


def _trapped(entries: Sequence[Entry], timeouts: Sequence[float]) -> list[dict[str, Any]]:
    return [
        {
            "setting": one["setting"],
            "timeout": timeout,
            "barrier_delay": from_first_barrier(one["tasks"], timeout),
        }
        for one in entries
        if one["mode"] == ALIGNED and one["tasks"]
        for timeout in timeouts
    ]


def from_first_barrier(subtasks: Sequence[Mapping[str, Any]], timeout: float) -> float:
    """What an aligned checkpoint would have taken, had each subtask turned unaligned so long after
    its first barrier. Tasks are looked at in the order of the job: the first one in which an
    alignment takes longer overtakes everything behind it."""
    for _, task in groupby(subtasks, key=lambda one: str(one["subtask"]).rpartition("[")[0]):
        own = list(task)
        if any(one["alignment"] > timeout for one in own):
            return max(float(one["start_delay"] + min(one["alignment"], timeout)) for one in own)
    return max(float(one["barrier_delay"]) for one in subtasks)


SUITE = Suite("timeout", {"timeout": timeout}, FULL, QUICK)
