"""W4: the chain with one to eight exchanges before the slow stage.

1 ms per record, 25 records per channel: an aligned barrier waits for k full exchanges, an unaligned
one only passes k tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from benchmarks.harness import Row, Run, Suite
from benchmarks.workloads import judging
from benchmarks.workloads.taking import (
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
CAPACITY = 25


@dataclass(frozen=True, slots=True)
class Sizes:
    """Exchanges; per process and depth, checkpoints of each kind."""

    depths: tuple[int, ...]
    processes: int
    unaligned: int
    aligned: int


FULL = Sizes(depths=(1, 2, 3, 4, 5, 6, 7, 8), processes=3, unaligned=10, aligned=2)
QUICK = Sizes(depths=(1, 4), processes=1, unaligned=4, aligned=2)


async def depth(run: Run[Sizes]) -> Sequence[Row]:
    """How does a checkpoint's time depend on how many exchanges are full?"""
    visits = [Visit(UNALIGNED, run.sizes.unaligned), Visit(ALIGNED, run.sizes.aligned)]
    stays = [
        Stay(setting_of(k), asdict(Chain(SERVICE, CAPACITY, stages=k)), visits)
        for k in run.sizes.depths
    ]
    entries = await in_processes(run, take_of_chain, stays, run.sizes.processes)
    run.keep("checkpoints", entries)
    rows: list[Row] = []
    for k in run.sizes.depths:
        rows += judging.setting_rows(entries, setting_of(k), overtaking=(k + 1) * SERVICE)
    rows += [_slope_row(entries, mode, run) for mode in (UNALIGNED, ALIGNED)]
    return rows + judging.sanity_rows(entries)


def setting_of(exchanges: int) -> str:
    return "1 exchange" if exchanges == 1 else f"{exchanges} exchanges"


def _slope_row(entries: Sequence[Entry], mode: str, run: Run[Sizes]) -> Row:
    delays = {
        float(k): [judging.barrier(one) for one in completed(entries, mode, setting_of(k))]
        for k in run.sizes.depths
    }
    name = f"slope of log({mode} delay + 2 ms) over log(exchanges)"
    return judging.slope_row(name, delays, run.seed)


SUITE = Suite("depth", {"depth": depth}, FULL, QUICK)
