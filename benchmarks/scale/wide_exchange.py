"""What an unaligned barrier takes across 64 × 64 channels whose queues are full.

Sources → exchange → sinks, 64 subtasks each: 4,096 channels, each of which the barrier overtakes
and whose records it captures. A sink takes one record at a time and awaits something slow, so the
exchange is full; a checkpoint is triggered only when the sources have waited for room, and the
sinks for nothing.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness import Row, Run, Suite, at_most, median_row
from benchmarks.workloads.saturation import saturated
from benchmarks.workloads.taking import TIMEOUT
from benchmarks.workloads.topology import Chain
from streamcp.checkpoint.statistics import CheckpointStatistics


@dataclass(frozen=True, slots=True)
class Sizes:
    """Subtasks on each side; records per channel; checkpoints; seconds per record in a sink."""

    parallelism: int
    capacity: int
    checkpoints: int
    service: float


FULL = Sizes(64, 32, 30, 0.1)
QUICK = Sizes(16, 16, 7, 0.02)


async def exchange(run: Run[Sizes]) -> Sequence[Row]:
    """How long does an unaligned barrier take across 64 × 64 channels whose queues are full?"""
    sizes, taken, filled = run.sizes, list[CheckpointStatistics](), list[float]()
    topology = Chain(sizes.service, sizes.capacity, stages=1, parallelism=sizes.parallelism)
    async with saturated(topology, timeout=TIMEOUT, predict=False) as (job, _):
        for number in range(sizes.checkpoints):
            run.say(f"checkpoint {number + 1} of {sizes.checkpoints}")
            filled.append(await job.at_gate())
            taken.append(await job.running.checkpoint())
            await asyncio.sleep(sizes.service)
    return _rows(sizes, taken, filled)


def _rows(
    sizes: Sizes, taken: Sequence[CheckpointStatistics], filled: Sequence[float]
) -> list[Row]:
    delays = [one.barrier_delay * 1000 for one in taken]
    channels = sizes.parallelism**2
    records = statistics.median(one.in_flight_records for one in taken)
    name = f"{channels:,} channels"
    return [
        median_row(
            f"unaligned barrier delay, {name}",
            delays,
            "ms",
            target=at_most(50.0),
            detail=f"max {max(delays):.1f} ms; {records:,.0f} records captured, queues "
            f"{statistics.median(filled):.0%} full",
        ),
        median_row(f"per channel, {name}", [one * 1000 / channels for one in delays], "µs"),
        median_row(
            f"durable delay, {name}", [(one.durable_delay or 0.0) * 1000 for one in taken], "ms"
        ),
    ]


SUITE = Suite("wide_exchange", {"barrier": exchange}, FULL, QUICK)
