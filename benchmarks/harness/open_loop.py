"""Open loop: records that are due at times fixed in advance, whatever the system makes of them.

Record i has its intended time on a `Schedule`. A driver in a process of its own, on a core of its
own, tells when records have become due (`Driver`); the job's source gives out everything that is
due, each record with its own intended time (`Intake`). What the job has no room for waits outside:
as a number, since a record is made of its index when the job takes it. So the driver never slows
with the system, a job that is dead finds what became due meanwhile, and the latency that is
counted from intended times leaves nothing out. Making the records is part of the job's cost.

The driver knows how late it was itself. Where that is more than a tenth of a percentile, the
percentile tells of the driver; and where others had the job's processor, of them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import tempfile
import time
from array import array
from bisect import bisect_right
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from benchmarks.harness.children import Child
from benchmarks.harness.histogram import Histogram

SECOND = 1_000_000_000
NUMBER = 8  # bytes of each number on the way from the driver
UPPER_BOUND = "an upper bound"  # how the detail of such a figure begins
LATENESS = 0.1  # of the reported percentile
TAKEN = 0.02  # of the time, that others may have the job's processor


@dataclass(frozen=True)
class Schedule:
    """When each of `count` records is due: `rate` per second evenly, or, with a `seed`, as a
    Poisson process draws it. Times are nanoseconds since the beginning."""

    rate: int
    count: int
    seed: int | None = None

    def times(self) -> Times:
        """Work it out."""
        return EvenTimes(self) if self.seed is None else PoissonTimes(self)

    @property
    def seconds(self) -> float:
        """How long it takes."""
        return self.count / self.rate


class EvenTimes:
    """Record i is due at i / rate."""

    def __init__(self, schedule: Schedule) -> None:
        self.count = schedule.count
        self._rate = schedule.rate

    def intended(self, index: int) -> int:
        """When a record is due."""
        return index * SECOND // self._rate

    def due(self, elapsed: int) -> int:
        """How many records are due at that time."""
        if elapsed < 0:
            return 0
        return min(((elapsed + 1) * self._rate - 1) // SECOND + 1, self.count)


class PoissonTimes:
    """The pauses are drawn from an exponential distribution."""

    def __init__(self, schedule: Schedule) -> None:
        self.count = schedule.count
        chance, often = random.Random(schedule.seed), schedule.rate / SECOND
        pauses = (chance.expovariate(often) for _ in range(schedule.count))
        self._times = array("q", map(int, itertools.accumulate(pauses)))

    def intended(self, index: int) -> int:
        """When a record is due."""
        return self._times[index]

    def due(self, elapsed: int) -> int:
        """How many records are due at that time."""
        return bisect_right(self._times, elapsed)


Times: TypeAlias = EvenTimes | PoissonTimes


def taken_by_others(waited: float) -> str:
    """Say why no percentile tells of a job which had to wait for its processor for such a share of
    the time; nothing if that is little."""
    return f"others had its processor for {waited:.0%} of the time" if waited > TAKEN else ""


def is_rejected(lateness: Histogram, reported: float, share: float = 0.99) -> bool:
    """Tell whether the driver was too late for a percentile (milliseconds) to be the system's."""
    return not lateness.quantile(share) <= LATENESS * reported


def bound_by(lateness: Histogram, reported: float, share: float) -> str:
    """Say of a percentile which is nobody's target that the driver was late, which is in it;
    nothing if it was not."""
    if not is_rejected(lateness, reported, share):
        return ""
    late = f"{lateness.quantile(share):.2f} ms late (p{share * 100:g})"
    return f"{UPPER_BOUND}: the driver was {late}"


# ---- the driver, seen from whoever measures


class Driver:
    """The process that tells when records are due, from the first connection on."""

    def __init__(self, child: Child, socket: Path) -> None:
        self._child = child
        self.socket = str(socket)

    async def lateness(self) -> Histogram:
        """How late it was with each record; waits until the last one has become due."""
        return Histogram(buckets=json.loads(await self._child.line(timeout=600)))


@asynccontextmanager
async def driver(schedule: Schedule) -> AsyncIterator[Driver]:
    """Run a driver, until the body is left."""
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "driver"
        command = ["benchmarks.harness.driver", json.dumps(asdict(schedule)), str(socket)]
        async with Child(command) as child:
            await child.line()  # it listens
            yield Driver(child, socket)


# ---- the intake, in the process of the job


class Intake(asyncio.Protocol):
    """What is known in the job's process of what is due. Records go to `splits` sources in turn.

    `begun` is the time of the clock (CLOCK_MONOTONIC, the same in all processes) that the schedule
    begins at."""

    def __init__(self, times: Times, splits: int) -> None:
        self.times = times
        self.begun = 0
        self.due = 0
        self._splits = splits
        self._bytes = b""
        self._waiting: list[asyncio.Future[None]] = []

    async def connect(self, socket: str) -> None:
        """Hear of what is due from now on, and of all that has become due before."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self, socket)
        while not self.begun:
            await self._told()

    def data_received(self, data: bytes) -> None:
        """The driver sends the beginning first, and then how many are due: the last one counts."""
        self._bytes += data
        whole = len(self._bytes) // NUMBER * NUMBER
        numbers = array("q", self._bytes[:whole])
        self._bytes = self._bytes[whole:]
        if numbers and not self.begun:
            self.begun = numbers.pop(0)
        if numbers:
            self.due = numbers[-1]
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def batches(self, split: int, taken: int, most: int = 256) -> AsyncIterator[range]:
        """Give the indexes of what is due of a split, from the `taken`-th one on, until the end."""
        while (left := self._of_split(split, self.times.count) - taken) > 0:
            ready = min(self._of_split(split, self.due) - taken, left, most)
            if ready <= 0:
                await self._told()
                continue
            first = split + taken * self._splits
            taken += ready
            yield range(first, split + taken * self._splits, self._splits)

    def _of_split(self, split: int, count: int) -> int:
        """How many of the first `count` records are of a split."""
        return max(count - split + self._splits - 1, 0) // self._splits

    async def _told(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future


def now() -> int:
    """The clock of all stamps, in nanoseconds."""
    return time.monotonic_ns()


def waited_for_processor() -> float:
    """Seconds that this thread could have run and others did; 0 where the system does not tell."""
    try:
        text = Path("/proc/thread-self/schedstat").read_text(encoding="ascii")
    except OSError:
        return 0.0
    return int(text.split()[1]) / SECOND


def use_core_of(*, driver: bool) -> None:
    """Keep this process on the last core, for a driver, or on all others, where there are two."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) > 1:
        os.sched_setaffinity(0, cores[-1:] if driver else cores[:-1])
