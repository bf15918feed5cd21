"""Trying out a job: `trial` runs it in virtual time, with nothing outside, by the hand of a test.

The job runs in an event loop of its own, in the thread of the test, and only while the test awaits
one of the methods: in between everything stands still (decision 0022). Knows how a job is run, and
nothing of what its steps do.
"""

from __future__ import annotations

import reprlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TypeVar

from streamcp.api.jobs import Job
from streamcp.api.streams import SinkStep, Stream
from streamcp.checkpoint.statistics import CheckpointStatistics
from streamcp.config import Checkpoints, Duration, seconds
from streamcp.errors import DefinitionError, StreamcpError
from streamcp.graph.logical import Node
from streamcp.operators.context import Timestamp
from streamcp.operators.sources import Source
from streamcp.runners.handle import JobResult
from streamcp.testing.standins import StandIns, known
from streamcp.testing.tried import TriedJob

T = TypeVar("T")

START = datetime(2024, 1, 1, tzinfo=UTC)
"""The time at which a trial begins, if it is not told another one."""


def trial(
    job: Job,
    *,
    services: Mapping[Any, Any] | None = None,
    start: Timestamp = START,
    splits: Mapping[str, Sequence[Any]] | None = None,
    checkpoints: Checkpoints | None = None,
) -> Trial:
    """Try a job out by hand: to be used as `async with`, in a test of any event loop.

    Time is virtual and stands still unless it is moved; there is no network and no disk. Sources
    are fed by hand, sinks collect what is written to them, services are replaced, and the job's
    own settings apply, but for these: checkpoints are kept in memory and taken only when they are
    asked for, the job is strict unless it says otherwise, and its first failure is raised instead
    of a restart.

    - `services`: for each opener of a `uses=` what stands in for the service. A function or class
      is called to open it, a context manager is entered, any other object is the service. The
      opener is named by itself, by the function of which it is a partial, or by a step that uses
      it. A service that is not named here is the fake that `Job(fakes=...)` names.
    - `start`: the date at the beginning, milliseconds since the epoch or an aware datetime.
    - `splits`: the splits of each divided source, by its name; one that is not named here has one.
    - `checkpoints`: instead of the job's own; a job without can take none.

    Nothing of the caller's job is changed; it may be tried any number of times.
    Raises DefinitionError for services that are not replaced or not used, and BuildError."""
    if not isinstance(job, Job):
        called = getattr(job, "__name__", type(job).__name__)
        raise DefinitionError(f"trial({called}): write trial({called}()); it takes a Job")
    stand_ins = StandIns(job.graph, services or {}, splits or {}, fakes=job.fakes)
    tried = TriedJob(job, stand_ins, checkpoints, start_ms=_milliseconds(start))
    return Trial(job, stand_ins, tried)


def _milliseconds(start: Timestamp) -> int:
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise DefinitionError(f"trial(start={start!r}) is naive: give it tzinfo=UTC")
        return round(start.timestamp() * 1000)
    return start


class Trial:
    """A job under trial; made by `trial`. Steps are named by their name or by their stream.

    Methods that are awaited let the job run until everything in it waits: for records, for time,
    or for something of the test. What fails the job is raised from there, and from every later
    call, naming step and place. Time moves by `advance`, and for what `checkpoint` and `finish`
    have to wait for; a call that sleeps, a timeout, a timer, a rate all wait for it."""

    def __init__(self, job: Job, stand_ins: StandIns, tried: TriedJob) -> None:
        self._job = job
        self._stand_ins = stand_ins
        self._tried = tried

    async def __aenter__(self) -> Trial:
        """Start the job."""
        self._tried.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let the job work off what is left, and end it as a kill would. Raises what fails it."""
        self._tried.end(undisturbed=error is None)

    # ---- sources

    def feed(
        self, source: str | Stream[T] | Source[T], records: Iterable[T], *, split: Any = None
    ) -> None:
        """Give records to a source, behind those given before; they are read when the job runs.

        What is fed, to whatever source, is worked off in the order in which it is fed: records of
        a source without watermarks together, those of one with watermarks one by one, each with
        the watermark behind it. `split` is needed where a source has several.

        Raises StreamcpError for a source or split that is not there, for one that has ended, and
        for what is no collection of records: a text, or a single record."""
        self._tried.check_open()
        label = self._source(source)
        if isinstance(records, str | bytes | Mapping) or not isinstance(records, Iterable):
            raise StreamcpError(
                f"feed({label!r}, {reprlib.repr(records)}) takes any number of records: write "
                f"feed({label!r}, [record])"
            )
        self._stand_ins.feeds.add(label, split, records)

    def end(self, source: str | Stream[Any] | Source[Any], *, split: Any = None) -> None:
        """Let a source end behind what it was given, or one split of it.

        Raises StreamcpError for a source or split that is not there, and for one that has ended."""
        self._tried.check_open()
        self._stand_ins.feeds.end(self._source(source), split)

    # ---- time

    @property
    def now(self) -> datetime:
        """The time of the job, in UTC."""
        return datetime.fromtimestamp(self._tried.clock.wall_ms() / 1000, UTC)

    async def settle(self) -> None:
        """Let the job run until everything waits; time stands still."""
        self._tried.rest()

    async def advance(self, duration: Duration) -> None:
        """Let `duration` pass: timers, timeouts, rates and sleeping calls come due on the way, in
        their order, and what follows from them happens at its time.

        Raises SettingsError for what is no duration."""
        self._tried.advance(seconds(duration, setting="advance"))

    # ---- what comes out

    async def results(self, sink: str | SinkStep[Any], *, committed: bool = False) -> list[Any]:
        """Let the job run until everything waits, and return all that is written to a sink.

        In the order of the writes; of a sink that is exactly once, what was committed comes first.
        There `committed` leaves out what is written and not yet committed: what is committed no
        crash undoes, and a checkpoint commits. A sink that is at least once commits nothing: what
        it has written stays, and may come again behind a crash.

        Raises StreamcpError for a sink that is not there."""
        self._tried.rest()
        label = self._label("sink", sink)
        return self._stand_ins.records(label, committed=committed)

    async def late(self, step: str | Stream[Any]) -> list[Any]:
        """Let the job run until everything waits, and return the records that were late for a
        window or a join, whether its `.late` is read or not.

        Raises StreamcpError for a window or join that is not there."""
        self._tried.rest()
        return self._stand_ins.late(self._label("window or join", step))

    async def state(self, step: str | Stream[Any], key: Hashable) -> Any:
        """Let the job run until everything waits, and return a copy of the state that a keyed step
        has of a key; None if it has none.

        Raises StreamcpError for a step that is not there or keeps no state by key, and when the job
        has ended."""
        self._tried.rest()
        label = step if isinstance(step, str) else _node_of(step).label
        return self._tried.run(self._tried.handle.state(label).get(key))

    # ---- checkpoints

    async def checkpoint(self) -> CheckpointStatistics:
        """Let the job run until everything waits, take a checkpoint, and return its figures.

        Time moves on only if the checkpoint has to wait: one that is aligned waits for the records
        before it, and they may wait for calls.
        Raises CheckpointFailed with the reason, and StreamcpError if the job has no
        `checkpoints=`."""
        self._tried.check_checkpoints("checkpoint")
        self._tried.rest()
        return self._tried.run(self._tried.handle.checkpoint())

    async def crash_and_restore(self) -> None:
        """Kill the job as it stands, and start it anew from its last checkpoint, or from nothing if
        there is none. Also a job that has failed.

        Sources are read again from where they were at the checkpoint. Nothing of the killed job
        that was not durable is left: state, timers, calls under way, and what sinks that are
        exactly once had not committed. Services are opened anew.
        Raises StreamcpError if the job has no `checkpoints=`."""
        self._tried.check_checkpoints("crash_and_restore")
        self._tried.crash()

    async def finish(self) -> JobResult:
        """End every source, let time pass until the job has ended, and return its result."""
        self._tried.rest()
        self._stand_ins.feeds.end_all()
        return self._tried.run(self._tried.handle.wait_finished())

    # ---- names

    def _source(self, source: Any) -> str:
        if isinstance(source, Source):
            nodes = self._job.graph.nodes
            labels = [n.label for n in nodes if getattr(n.spec, "source", None) is source]
            if len(labels) == 1:
                return labels[0]
            raise StreamcpError(
                f"source {source.name!r} is in job {self._job.name!r} {len(labels)} times; its "
                f"sources are {known(self._stand_ins.labels['source'])}"
            )
        return self._label("source", source)

    def _label(self, kind: str, step: Any) -> str:
        label = step if isinstance(step, str) else _node_of(step).label
        labels = self._stand_ins.labels[kind]
        if label not in labels:
            raise StreamcpError(
                f"job {self._job.name!r} has no {kind} {label!r}; it has {known(labels)}"
            )
        return label


def _node_of(step: Any) -> Node:
    """The step that a stream comes from."""
    if isinstance(step, SinkStep):
        return step._node
    if isinstance(step, Stream):
        return step._connections[0].node
    raise StreamcpError(
        f"{step!r} is no step: write its name, or the stream that the verb returned"
    )
