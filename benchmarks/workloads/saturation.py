"""A job whose queues are full, and the checkpoints that are taken of it."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import anyio

import streamcp as sc
from benchmarks.harness import fsync_time
from benchmarks.workloads.topology import Gate, Topology
from streamcp.checkpoint.snapshot import Acknowledgement, Manifest
from streamcp.checkpoint.statistics import CheckpointStatistics
from streamcp.errors import CheckpointFailed
from streamcp.runners.view import JobView
from streamcp.storage.reading import StoredJob

JOB = "workload"
WINDOW = 0.1  # seconds over which the gate looks
PATIENCE = 60.0  # seconds after which a job that does not saturate is an error
STEADY = 0.02  # queues are steady when they grow by less than this share of their room in a window
LONGEST_PAUSE = 0.2  # between two checkpoints, in which the disk recovers; else as long as the last

# What is written plainly: made once, since to draw as much as a checkpoint would hold up the job.
_RANDOM = os.urandom(1 << 20)


async def wait_saturated(running: sc.Running, gate: Gate, *, steady: bool = False) -> float:
    """Return when the gate is open; the result is the share of all channels' room up to the slow
    task that is taken then. (Not every queue is full at the same time: a sender waits as soon as
    one of its channels is.) `steady`: also wait until the queues no longer grow.

    Raises RuntimeError if that does not happen."""
    until = time.monotonic() + PATIENCE
    before = running.view()
    while time.monotonic() < until:
        await asyncio.sleep(WINDOW)
        now = running.view()
        if _is_saturated(before, now, gate):
            filled = _filled(now, gate)
            if not steady or filled <= _filled(before, gate) + STEADY:
                return filled
        before = now
    raise RuntimeError(f"queues did not fill within {PATIENCE:.0f} s: {now.tasks}")


def _is_saturated(before: JobView, now: JobView, gate: Gate) -> bool:
    earlier = {task.name: task for task in before.tasks}
    later = {task.name: task for task in now.tasks}
    elapsed = now.at - before.at
    if (
        not earlier
        or later[gate.slow].records_in < gate.taken
        or any(
            later[name].backpressured - earlier[name].backpressured < 0.9 * elapsed
            for name in gate.sources
        )
    ):
        return False
    idle = later[gate.slow].idle - earlier[gate.slow].idle
    return idle <= gate.idle * elapsed


def _filled(view: JobView, gate: Gate) -> float:
    upto = next(place for place, task in enumerate(view.tasks) if task.name == gate.slow) + 1
    tasks = view.tasks[:upto]
    return sum(task.queued for task in tasks) / max(1, sum(task.capacity for task in tasks))


class Saturated:
    """A running job of a topology, and the checkpoints that are taken of it."""

    def __init__(self, running: sc.Running, topology: Topology, service: Any, gate: Gate) -> None:
        self.running = running
        self.service = service
        self._gate = gate
        self._topology = topology
        self._since: tuple[float, int] | None = None

    async def settle(self) -> None:
        """Fill the queues, and take one checkpoint that does not count."""
        await wait_saturated(self.running, self._gate, steady=True)
        self.running.set_mode("unaligned")
        await self.running.checkpoint()
        self._since = time.perf_counter(), self.service.served

    async def at_gate(self) -> float:
        """Wait until the queues are full; the result is the share of their room that is taken."""
        return await wait_saturated(self.running, self._gate)

    async def take(self, folder: Path, *, after: float = 0.0) -> dict[str, Any]:
        """Wait at the gate, take one checkpoint in the mode that is set, and write as many bytes
        plainly; the figures.

        `after`: trigger so many seconds behind the gate. If the event loop stands still then, the
        trigger is late, and `lateness` tells by how much (in whole milliseconds, as triggers are
        dated); it is 0 where the trigger follows the gate at once."""
        filled = await self.at_gate()
        due_ms = 1000 * (time.time() + after)
        if after:
            await asyncio.sleep(after)
        taken = await self._checkpoint()
        lateness = max(0.0, taken.triggered_ms - due_ms) / 1000 if after else 0.0
        figures = figures_of(taken) | {"filled": filled, "lateness": lateness, "rate": self.rate}
        if taken.outcome == "completed":
            figures |= await _stored(taken, folder)
        await asyncio.sleep(min(taken.durable_delay or 0.0, LONGEST_PAUSE))
        return figures

    async def _checkpoint(self) -> CheckpointStatistics:
        try:
            return await self.running.checkpoint()
        except CheckpointFailed:
            return self.running.view().checkpoints[-1]

    @property
    def rate(self) -> float:
        """Records per second that one subtask of the slow step has served since it settled; what it
        should serve as long as that is none."""
        assert self._since is not None
        at, served = self._since
        served_since = self.service.served - served
        if not served_since:
            return 1 / self._topology.service
        return float(served_since / (time.perf_counter() - at) / self._topology.parallelism)


def figures_of(taken: CheckpointStatistics) -> dict[str, Any]:
    """What is kept of every checkpoint."""
    names = (
        "barrier_delay",
        "durable_delay",
        "start_delay",
        "alignment",
        "sync",
        "asynchronous",
        "state_bytes",
        "in_flight_bytes",
        "in_flight_records",
        "records_during_alignment",
        "escalated_after",
        "escalated_by",
        "reason",
        "outcome",
    )
    return {name: getattr(taken, name) for name in names} | {"started": taken.mode}


async def _stored(taken: CheckpointStatistics, folder: Path) -> dict[str, Any]:
    """What the manifest tells, and how long a plain write of as many bytes takes."""
    manifest = StoredJob(folder / JOB).load_manifest(taken.checkpoint_id)
    size = taken.state_bytes + taken.in_flight_bytes
    data = (_RANDOM * (size // len(_RANDOM) + 1))[:size]
    return {
        "channel_records": channel_records(manifest),
        "longest_blocked": _longest_blocked(manifest),
        "plain_write": await anyio.to_thread.run_sync(fsync_time, data, folder),
        "tasks": [_subtask(one) for one in manifest.acknowledgements],
    }


def channel_records(manifest: Manifest) -> int:
    """Records captured of channels. In-flight data are also the rests of sources and the pending
    lists of coroutines, which every mode stores."""
    sections = (section for one in manifest.acknowledgements for section in one.sections)
    return sum(section.records for section in sections if section.kind == "channel")


def _longest_blocked(manifest: Manifest) -> float:
    subtasks = (one.statistics.blocked for one in manifest.acknowledgements)
    return max((seconds for blocked in subtasks for seconds in blocked.values()), default=0.0)


def _subtask(one: Acknowledgement) -> Mapping[str, Any]:
    return {"subtask": str(one.subtask), **asdict(one.statistics)}


@asynccontextmanager
async def saturated(
    topology: Topology, *, timeout: float, predict: bool
) -> AsyncIterator[tuple[Saturated, Path]]:
    """Run a job of this topology, settled, in a new directory. It is ended at once: to drain it
    would take minutes."""
    with tempfile.TemporaryDirectory() as name:
        checkpoints = sc.Checkpoints(to=name, predict=predict, alignment_timeout=f"{timeout}s")
        job = sc.Job(
            JOB,
            checkpoints=checkpoints,
            parallelism=topology.parallelism,
            channel_capacity=topology.capacity,
            restart=sc.Restart.none(),
        )
        service, gate = topology.build(job)
        async with end_at_once(job) as running:
            job_of = Saturated(running, topology, service, gate)
            await job_of.settle()
            yield job_of, Path(name)


@asynccontextmanager
async def end_at_once(job: sc.Job) -> AsyncIterator[sc.Running]:
    """Run a job, and end it without working off what is queued."""
    try:
        async with job.start() as running:
            yield running
            raise _Enough
    except _Enough:
        pass


class _Enough(Exception):
    """Ends a job at once."""
