"""What a child does: run one job as ordered, with sources that end and sinks that record, and tell.

The job is the child's own: its graph is changed in place. Knows nothing of other runs.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from streamcp.api.jobs import Job
from streamcp.clock import SystemClock
from streamcp.compare.latency import LatencyMeter, let_stamps_through, why_not_stamped
from streamcp.compare.limits import Quota, limited
from streamcp.compare.messages import (
    Checkpoint,
    Ended,
    Failed,
    FirstCommit,
    FirstOutput,
    Latencies,
    Message,
    Running,
    RunOrder,
    Sample,
    to_line,
)
from streamcp.compare.pacing import Pace, paced
from streamcp.compare.recording import recording
from streamcp.config import Checkpoints, Restart
from streamcp.errors import StreamcpError
from streamcp.graph.logical import LogicalGraph
from streamcp.observability import events
from streamcp.operators.steps import SinkStep, SourceStep
from streamcp.runners.handle import JobHandle
from streamcp.runners.local import run_blocking
from streamcp.runners.view import JobView

Tell = Callable[[Message], None]

SAMPLE_EVERY = 0.25
DEFAULT_INTERVAL = "1s"
# Of so many checkpoints the report can choose the one that it shows subtask by subtask.
_RETAINED = 8


def main(load: Callable[[], Job]) -> int:
    """Be a child: read the order from standard input, run the job, tell on standard output.

    `load` makes the job; what it and the job print goes to standard error. The process ends when
    its parent does. Returns the exit code."""
    tell = _take_over_stdout()
    order = RunOrder.from_line(sys.stdin.buffer.readline())
    _exit_when_stdin_closes()
    try:
        job = load()
        run_blocking(lambda: measure(job, order, tell))
    except StreamcpError as error:
        tell(Failed(str(error)))
        return 1
    return 0


def _take_over_stdout() -> Tell:
    out: BinaryIO = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    return lambda message: _write_line(out, to_line(message))


def _write_line(out: BinaryIO, line: bytes) -> None:
    rest = memoryview(line)
    while rest:
        rest = rest[out.write(rest) :]


def _exit_when_stdin_closes() -> None:
    def wait() -> None:
        while os.read(0, 1024):  # a buffered read would hold a lock that the end of Python needs
            pass
        os._exit(1)  # from a thread nothing else ends the process

    threading.Thread(target=wait, daemon=True).start()


def checkpoint_settings(job: Job, order: RunOrder) -> Checkpoints:
    """Give the job's own settings of checkpoints, in the mode and interval of the order and in the
    folder of the run."""
    to = Path(order.folder, "checkpoints")
    own = job.settings().checkpoints or Checkpoints(to=to)
    every = order.every or own.every or DEFAULT_INTERVAL
    return dataclasses.replace(
        own,
        to=to,
        every=every if order.periodic else None,
        max_age=own.max_age if order.periodic else None,
        mode=order.mode,
        alignment_timeout=order.alignment_timeout or own.alignment_timeout,
        retain=max(own.retain, _RETAINED),
    )


async def measure(job: Job, order: RunOrder, tell: Tell) -> None:
    """Run `job` to its end as ordered, and tell what happens. Raises what fails the job."""
    checkpoints = checkpoint_settings(job, order)
    quota = Quota(order.limits, order.records)
    pace = Pace(order.rates) if order.rates else None
    teller = _Teller(tell, quota, pace)
    stand_in(job, order, quota, teller)
    # A restart within the process would hide a failure, and stretch a measured run.
    starting = job.start(
        checkpoints=checkpoints,
        fresh=False,
        restart=Restart.none(),
        channel_capacity=order.channel_capacity,
    )
    async with starting as running, asyncio.TaskGroup() as group:
        running.events.subscribe(teller.on_event)
        helpers = [
            group.create_task(teller.sample(running)),
            group.create_task(_end_sources(teller, quota, order.seconds)),
        ]
        await running.wait_finished()
        for helper in helpers:
            helper.cancel()
    teller.ended()


async def _end_sources(teller: _Teller, quota: Quota, seconds: float | None) -> None:
    if seconds is not None:
        await teller.running.wait()
        await asyncio.sleep(seconds)
        quota.close()


def stand_in(job: Job, order: RunOrder, quota: Quota, teller: _Teller) -> None:
    """Put limited sources and recording sinks in the place of the job's own; under an open loop
    sources that keep a pace."""
    meter = teller.meter(job.graph)
    for node in job.graph.nodes:
        spec = node.spec
        if isinstance(spec, SourceStep):
            source = limited(spec.source, node.label, quota)
            if teller.pace is not None:
                source = paced(source, node.label, teller.pace, stamped=meter is not None)
            node.spec = dataclasses.replace(spec, source=source)
        elif isinstance(spec, SinkStep):
            folder = Path(order.folder, "output", f"{node.number}-{_as_file_name(node.label)}")
            opened = recording(folder, order.sink_delay, teller, meter)
            node.spec = dataclasses.replace(spec, open=opened, kind="transactional")
            node.name = node.label  # a plain sink needs none
    if meter is not None:
        let_stamps_through(job.graph)


def _as_file_name(label: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in label)


class _Teller:
    """Turns what happens into messages; counts time from the moment at which the job runs."""

    def __init__(self, tell: Tell, quota: Quota, pace: Pace | None) -> None:
        self._tell = tell
        self._quota = quota
        self.pace = pace
        self._meter: LatencyMeter | None = None
        self._unstamped: str | None = None
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        self._ran = self._began
        self._finished = self._began
        self._told: set[type[Message]] = set()
        self.running = asyncio.Event()

    def meter(self, graph: LogicalGraph) -> LatencyMeter | None:
        """Measure how late the records of a job are, if there is a pace and they can have stamps;
        give what the sinks tell that to."""
        if self.pace is not None:
            self._unstamped = why_not_stamped(graph)
            self._meter = None if self._unstamped else LatencyMeter(self.pace)
        return self._meter

    def _now(self) -> float:
        return self._clock.monotonic() - self._ran

    def on_event(self, event: events.Event) -> None:
        """An event of the job."""
        if isinstance(event, events.JobStarted):
            self._runs(None, 0)
        elif isinstance(event, events.JobRestored):
            self._runs(event.checkpoint_id, event.in_flight_records)
        elif isinstance(event, events.CheckpointCompleted | events.CheckpointFailed):
            self._tell(Checkpoint(self._now(), event.statistics))
        elif isinstance(event, events.JobFinished):
            self._finished = self._clock.monotonic()

    def _runs(self, restored_from: int | None, in_flight: int) -> None:
        self._ran = self._clock.monotonic()
        self._tell(Running(restored_from, self._ran - self._began, in_flight))
        self.running.set()

    def written(self) -> None:
        """Records were written to a sink."""
        self._tell_once(FirstOutput)

    def committed(self) -> None:
        """Records became visible."""
        self._tell_once(FirstCommit)

    def _tell_once(self, kind: type[FirstOutput] | type[FirstCommit]) -> None:
        if kind not in self._told:
            self._told.add(kind)
            self._tell(kind(self._now()))

    async def sample(self, running: JobHandle) -> None:
        """Tell how far the job is, again and again."""
        await self.running.wait()
        while True:
            self._sample(running.view())
            await asyncio.sleep(SAMPLE_EVERY)

    def _sample(self, view: JobView) -> None:
        given = self._quota.read if self.pace is None else self.pace.given
        queued = sum(task.queued for task in view.tasks)
        waiting = 0 if self.pace is None else self.pace.waiting(self._quota.limits)
        self._tell(Sample(self._now(), sum(given.values()), _written(view), queued, waiting))

    def ended(self) -> None:
        """The job has worked off its input."""
        if self._meter is not None:
            self._tell(self._meter.told())
        elif self.pace is not None:
            waited, late = self.pace.waited.as_plain(), self.pace.late.as_plain()
            self._tell(Latencies(waited=waited, late=late, unstamped=self._unstamped))
        self._tell(Ended(self._finished - self._ran, dict(self._quota.read)))


_LAST = frozenset({"sink", "for_each"})


def _written(view: JobView) -> int:
    steps = [step for task in view.tasks for step in task.steps]
    return sum(step.records_in for step in steps if step.verb in _LAST)
