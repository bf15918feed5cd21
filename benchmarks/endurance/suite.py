"""The questions about endurance, and their options."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence

from benchmarks.endurance import damage, disk, kills, takeover
from benchmarks.endurance.failing import failing
from benchmarks.endurance.sizes import FULL, QUICK, Sizes
from benchmarks.endurance.stuck import stuck
from benchmarks.harness import Row, Run, Suite, skipped


async def killed(run: Run[Sizes]) -> Sequence[Row]:
    """Kill -9 at random moments, start again with another parallelism, compare the output."""
    rows: list[Row] = []
    for load in _loads(run.sizes):
        if load.missing:
            rows.append(skipped(load.name, load.missing))
        else:
            rows += await kills.measure(load, run.sizes.modes, run.seed, run.say)
    return rows


async def frozen(run: Run[Sizes]) -> Sequence[Row]:
    """SIGSTOP a job, let a second copy take over, and continue the first."""
    rows: list[Row] = []
    for load in _loads(run.sizes):
        if load.missing:
            rows.append(skipped(load.name, load.missing))
        else:
            rows += await takeover.measure(load, run.sizes.modes, run.say)
    return rows


def _loads(sizes: Sizes) -> list[kills.Load]:
    own = kills.Load("own job", sizes.kills, sizes.latency, sizes.records)
    if not sizes.flights:
        return [own]
    flights = kills.Load("flights", sizes.flight_kills, sizes.latency, sizes.flights, flights=True)
    return [own, flights]


async def damaged(run: Run[Sizes]) -> Sequence[Row]:
    """Truncate, change or delete each file of the newest checkpoint, and start again."""
    return await damage.measure(run.say)


async def short_of_disk(run: Run[Sizes]) -> Sequence[Row]:
    """Disk full, or writing forbidden: checkpoints fail by name, the job goes on."""
    return await disk.measure(run.say)


def _add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("endurance")
    group.add_argument("--stuck-seconds", type=float, help="how long each stuck job runs")
    group.add_argument("--kills", type=int, help="how often each job is killed")


def _resize(sizes: Sizes, options: argparse.Namespace) -> Sizes:
    if options.stuck_seconds is not None:
        sizes = dataclasses.replace(sizes, stuck_seconds=options.stuck_seconds)
    if options.kills is not None:
        sizes = dataclasses.replace(
            sizes,
            kills=options.kills,
            flight_kills=options.kills,
            records=max(sizes.records, sizes.records * options.kills // sizes.kills),
            flights=max(sizes.flights, sizes.flights * options.kills // sizes.flight_kills),
        )
    return sizes


SUITE = Suite(
    "endurance",
    {
        "kills": killed,
        "frozen": frozen,
        "stuck": stuck,
        "failing": failing,
        "damage": damaged,
        "disk": short_of_disk,
    },
    FULL,
    QUICK,
    _add_options,
    _resize,
    needs_loop=False,
)
