"""One open-loop run of the counting job: a driver, a job in a fresh process, and what came out."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, cast

import streamcp as sc
from benchmarks.harness import in_fresh_process
from benchmarks.harness.histogram import Histogram, merged
from benchmarks.harness.open_loop import (
    SECOND,
    Intake,
    Schedule,
    driver,
    is_rejected,
    now,
    taken_by_others,
    use_core_of,
    waited_for_processor,
)
from benchmarks.harness.recorder import Recorder, backlog, checkpoint_json
from benchmarks.harness.sustainable import highest_sustained, is_sustained
from benchmarks.workloads.counting import PARALLELISM, counting_job, recording_sink
from benchmarks.workloads.service import Service, service_sink
from streamcp.config import Mode

MODES = ("none", "aligned", "unaligned", "adaptive")
COOL = 0.5  # seconds, so that the end of the job is not in the figures
AT_ONCE = 100_000_000  # records per second: everything is due at the beginning


@dataclass(frozen=True, slots=True)
class Load:
    """How the job is loaded: the seconds that are measured lie between others that are not.

    `service`: the sink is an outside service that takes so many records per second, and `slow`
    tells from when to when it takes a tenth. `drain`: the job ends with its last record; else it is
    ended when the measured seconds are over, whatever is left."""

    rate: int
    seconds: int
    warm: float
    mode: str = "none"
    every: str = "1s"
    timeout: str = "100ms"
    seed: int | None = None
    capacity: int | None = None
    service: float | None = None
    slow: tuple[float, float] | None = None
    drain: bool = True

    @property
    def schedule(self) -> Schedule:
        """When records are due."""
        return Schedule(self.rate, round(self.rate * (self.warm + self.seconds + COOL)), self.seed)

    def measured(self, slices: Sequence[Sequence[float]]) -> Sequence[Sequence[float]]:
        """The slices of what is measured."""
        end = self.warm + self.seconds
        return [one for one in slices if self.warm < one[0] <= end + 1e-6]


@dataclass(frozen=True, slots=True)
class Ran:
    """What came out: the histograms of each second, the series, the checkpoints; and how late the
    driver was."""

    seconds: Sequence[Histogram]
    naive: Histogram
    slices: Sequence[Sequence[float]]
    checkpoints: Sequence[Mapping[str, Any]]
    due: int
    records: int
    took: float
    processor: float
    waited: float
    lateness: Histogram

    @property
    def latency(self) -> Histogram:
        """All that counts."""
        return merged(self.seconds)

    @property
    def taken_by_others(self) -> str:
        """Why no percentile tells of the job, if none does."""
        return taken_by_others(self.waited / self.took)

    def rejected_at(self, share: float) -> str:
        """Why a percentile does not tell of the job, if it does not."""
        if self.taken_by_others:
            return self.taken_by_others
        if is_rejected(self.lateness, self.latency.quantile(share), share):
            return f"the driver was {self.lateness.quantile(share):.2f} ms late"
        return ""

    def as_json(self) -> dict[str, Any]:
        """Everything, for figures."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["seconds"] = [one.buckets for one in self.seconds]
        return values | {"naive": self.naive.buckets, "lateness": self.lateness.buckets}


async def run_open(load: Load) -> Ran:
    """Run it in a fresh process, beside a driver."""
    async with driver(load.schedule) as records:
        spec = {"load": asdict(load), "socket": records.socket}
        found = await in_fresh_process(cell, spec)
        found["lateness"] = await records.lateness()
    found["seconds"] = [Histogram(buckets=one) for one in found["seconds"]]
    found["naive"] = Histogram(buckets=found["naive"])
    return Ran(**found)


async def cell(spec: Any) -> dict[str, Any]:
    """The process of the job."""
    use_core_of(driver=False)
    load = Load(**spec["load"])
    intake, recorder = Intake(load.schedule.times(), PARALLELISM), Recorder()
    await intake.connect(spec["socket"])
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = checkpoints_of(load, Path(folder))
        job = _job(load, intake, recorder, checkpoints)
        used, waited = time.process_time(), waited_for_processor()
        async with ended_at_once(job) as running:
            if load.drain:
                await running.wait_finished()
            else:
                await _sleep_until(intake.begun + round((load.warm + load.seconds) * SECOND))
            taken = running.view().checkpoints
        used = time.process_time() - used
        waited = waited_for_processor() - waited
    begun_ms = time.time() * 1000 - (time.monotonic_ns() - intake.begun) / 1e6
    start = intake.begun + round(load.warm * SECOND)
    return {
        "seconds": [one.buckets for one in recorder.by_second(start, load.seconds)],
        "naive": recorder.naively(start, load.seconds).buckets,
        "slices": recorder.slices(intake.begun),
        "checkpoints": [checkpoint_json(one, begun_ms) for one in taken],
        "due": intake.times.count,
        "records": len(recorder.latencies),
        "took": (recorder.last - intake.begun) / SECOND,
        "processor": used,
        "waited": waited,
    }


def _job(
    load: Load, intake: Intake, recorder: Recorder, checkpoints: sc.Checkpoints | None
) -> sc.Job:
    settings: dict[str, Any] = {"checkpoints": checkpoints}
    if load.capacity is not None:
        settings["channel_capacity"] = load.capacity
    if load.service is None:
        return counting_job(intake, recording_sink(recorder), **settings)
    service = Service(load.service, recorder, intake.begun, load.slow)
    return counting_job(intake, service_sink(service), **settings)


async def _sleep_until(time: int) -> None:
    await asyncio.sleep(max(time - now(), 0) / SECOND)


@asynccontextmanager
async def ended_at_once(job: sc.Job) -> AsyncIterator[sc.Running]:
    """Run a job, and end it without a last checkpoint when the body is left."""
    with contextlib.suppress(_Enough):
        async with job.start() as running:
            yield running
            raise _Enough


class _Enough(Exception):
    """Ends a job at once."""


def checkpoints_of(load: Load, folder: Path) -> sc.Checkpoints | None:
    """The setting that a mode stands for."""
    if load.mode == "none":
        return None
    mode = cast("Mode", load.mode)
    return sc.Checkpoints(to=folder, every=load.every, mode=mode, alignment_timeout=load.timeout)


# ---- the maximum sustainable throughput


async def capacity(records: int) -> int:
    """How many records per second the job takes if all are due at once."""
    async with driver(Schedule(AT_ONCE, records)) as due:
        rate: float = await in_fresh_process(rush, {"records": records, "socket": due.socket})
    return round(rate)


async def rush(spec: Any) -> float:
    """The process of a job that finds all its records due."""
    use_core_of(driver=False)
    intake, recorder = Intake(Schedule(AT_ONCE, spec["records"]).times(), PARALLELISM), Recorder()
    await intake.connect(spec["socket"])
    await counting_job(intake, recording_sink(recorder)).run_async()
    return len(recorder.latencies) / (recorder.last - intake.begun) * SECOND


async def sustains(load: Load) -> bool:
    """Whether the job sustains a load."""
    ran = await run_open(load)
    waiting = load.measured(backlog(ran.slices, load.schedule.times()))
    p99s = [one[2] for one in load.measured(ran.slices)]
    return is_sustained(waiting, p99s, load.rate)


async def most_sustained(seconds: int, warm: float, records: int) -> int:
    """Find the maximum sustainable throughput without checkpoints, to 5 %."""
    high = round(1.2 * await capacity(records))

    async def passes(rate: int) -> bool:
        return await sustains(Load(rate, seconds, warm))

    return await highest_sustained(passes, high // 3, high)
