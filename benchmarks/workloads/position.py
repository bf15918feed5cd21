"""W5: four stages, of which the first, second, third or last one is slow.

1 ms per record, 50 records per channel. Only exchanges before the slow stage fill, and an aligned
barrier waits for these alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from benchmarks.harness import Row, Run, Suite
from benchmarks.workloads import judging
from benchmarks.workloads.taking import (
    Stay,
    in_processes,
    take_of_chain,
    visits_of,
)
from benchmarks.workloads.topology import Chain

SERVICE = 0.001
CAPACITY = 50
STAGES = 4


@dataclass(frozen=True, slots=True)
class Sizes:
    """Which stages are slow in turn; per process and stage, checkpoints of each kind."""

    positions: tuple[int, ...]
    processes: int
    unaligned: int
    adaptive: int
    aligned: int


FULL = Sizes(positions=(1, 2, 3, 4), processes=3, unaligned=10, adaptive=4, aligned=2)
QUICK = Sizes(positions=(1, 4), processes=1, unaligned=4, adaptive=2, aligned=2)


async def position(run: Run[Sizes]) -> Sequence[Row]:
    """How does a checkpoint's time depend on which of four stages is slow?"""
    sizes = run.sizes
    visits = visits_of(sizes.unaligned, sizes.adaptive, sizes.aligned)
    stays = [
        Stay(setting_of(slow), asdict(Chain(SERVICE, CAPACITY, stages=STAGES, slow=slow)), visits)
        for slow in sizes.positions
    ]
    entries = await in_processes(run, take_of_chain, stays, sizes.processes)
    run.keep("checkpoints", entries)
    rows: list[Row] = []
    for slow in sizes.positions:
        setting = setting_of(slow)
        # An unaligned barrier passes the stages behind the slow one too.
        rows += judging.setting_rows(entries, setting, overtaking=(STAGES + 1) * SERVICE)
    return rows + judging.sanity_rows(entries)


def setting_of(slow: int) -> str:
    return f"stage {slow} of {STAGES} slow"


SUITE = Suite("position", {"position": position}, FULL, QUICK)
