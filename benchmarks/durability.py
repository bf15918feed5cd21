"""How long a small unaligned checkpoint takes to be durable, beside what the disk takes at least.

A saturated job with short queues (four subtasks, two exchanges): a few hundred records in flight.
After each checkpoint a plain loop writes as many bytes into the same folder in the way in which
anybody would make a checkpoint atomic: the data, fsynced; a manifest of the same length as the
checkpoint's, fsynced, renamed, and its directory fsynced. So the disk is in the same state for
both, and what is left are the freezing, the ways between event loop and threads, and what streamcp
does besides: a log that fences, and a directory per checkpoint. What is acknowledged is in the
hands of storage; data as small as here is written when the checkpoint is completed.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from benchmarks.harness import Row, Run, Suite, at_most, median_row
from benchmarks.workloads.saturation import saturated
from benchmarks.workloads.taking import TIMEOUT
from benchmarks.workloads.topology import Chain
from streamcp.checkpoint.statistics import CheckpointStatistics


@dataclass(frozen=True, slots=True)
class Sizes:
    """Records per channel; checkpoints; seconds per record in a sink."""

    capacity: int
    checkpoints: int
    service: float


FULL = Sizes(10, 60, 0.01)
QUICK = Sizes(10, 7, 0.01)


@dataclass(frozen=True, slots=True)
class Taken:
    """A checkpoint, and the seconds of the plain loop behind it."""

    checkpoint: CheckpointStatistics
    plain: float

    @property
    def durable(self) -> float:
        """Seconds from the trigger until the completion is durable."""
        assert self.checkpoint.durable_delay is not None
        return self.checkpoint.durable_delay


def atomic_write_time(data: int, manifest: int, folder: Path) -> float:
    """Seconds to write so many bytes of data, and durably, at once, a manifest that names them."""
    contents = os.urandom(data), os.urandom(manifest)
    directory = folder / "plain"
    directory.mkdir(exist_ok=True)
    started = time.perf_counter()
    _write_durably(directory / "data", contents[0])
    _write_durably(directory / "draft", contents[1])
    os.replace(directory / "draft", directory / "manifest")
    descriptor = os.open(directory, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    seconds = time.perf_counter() - started
    (directory / "data").unlink()
    (directory / "manifest").unlink()
    return seconds


def beside(data: int, folder: Path) -> float:
    """The same with a manifest as long as the newest checkpoint's."""
    manifest = max(folder.glob("*/chk-*/_metadata")).stat().st_size
    return atomic_write_time(data, manifest, folder)


def _write_durably(file: Path, data: bytes) -> None:
    with open(file, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


async def durability(run: Run[Sizes]) -> Sequence[Row]:
    """How long does a small checkpoint take to be durable, beside a plain atomic write?"""
    sizes, taken = run.sizes, list[Taken]()
    topology = Chain(sizes.service, sizes.capacity)
    async with saturated(topology, timeout=TIMEOUT, predict=False) as (job, folder):
        for number in range(sizes.checkpoints):
            run.say(f"checkpoint {number + 1} of {sizes.checkpoints}")
            await job.at_gate()
            one = await job.running.checkpoint()
            data = one.state_bytes + one.in_flight_bytes
            plain = await anyio.to_thread.run_sync(beside, data, folder)
            taken.append(Taken(one, plain))
    return _rows(taken)


def _rows(taken: Sequence[Taken]) -> list[Row]:
    plain = statistics.median(one.plain for one in taken) * 1000
    size = statistics.median(one.checkpoint.in_flight_bytes for one in taken)
    return [
        median_row(
            "small unaligned checkpoint: durable delay / plain atomic write",
            [one.durable / one.plain for one in taken],
            "×",
            target=at_most(3.0),
            detail=f"plain: {plain:.2f} ms; {size / 1000:.0f} kB in flight",
        ),
        median_row(
            "trigger to durable",
            [one.durable * 1000 for one in taken],
            "ms",
            detail=f"max {max(one.durable for one in taken) * 1000:.1f} ms",
        ),
        median_row(
            "trigger to barrier passed",
            [one.checkpoint.barrier_delay * 1000 for one in taken],
            "ms",
        ),
        median_row(
            "trigger to acknowledged by all",
            [one.checkpoint.end_to_end * 1000 for one in taken],
            "ms",
        ),
    ]


SUITE = Suite("durability", {"small": durability}, FULL, QUICK)
