"""The job of a trial: life after life in a loop that stands still, with checkpoints in memory.

Invariant: after each call everything in the job waits, and what has failed it was raised. A life
is killed by copying what is durable first, so that nothing it still does counts.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from streamcp.api.jobs import Job
from streamcp.api.settings import merge_settings
from streamcp.clock import Clock
from streamcp.config import Checkpoints, JobSettings, Restart
from streamcp.errors import StreamcpError
from streamcp.runners.handle import JobHandle, JobResult
from streamcp.runners.life import JobLife
from streamcp.testing.memory import Memory, MemoryStorage
from streamcp.testing.simulation.loop import Style
from streamcp.testing.standing import StandingLoop
from streamcp.testing.standins import StandIns
from streamcp.testing.strict_settings import strictly

T = TypeVar("T")

_CHECKPOINTS = Path("/checkpoints")


class TriedJob:
    """A job in virtual time, with `stand_ins` for all that is outside. `begin` it, and `end` it.

    Raises BuildError for a job that cannot be built."""

    def __init__(
        self,
        job: Job,
        stand_ins: StandIns,
        checkpoints: Checkpoints | None,
        *,
        start_ms: int,
        seed: int = 0,
        style: Style = "asyncio",
    ) -> None:
        self._job = job
        self._settings = _settings(job, checkpoints)
        job.validate(self._settings)
        self._stand_ins = stand_ins
        self._loop = StandingLoop(start_ms=start_ms, seed=seed, style=style)
        self._loop.on_rest = stand_ins.feeds.release
        self._memory = Memory()
        self._life: JobLife | None = None
        self._task: asyncio.Task[JobResult] | None = None

    @property
    def clock(self) -> Clock:
        """The time of the job."""
        return self._loop.clock

    @property
    def handle(self) -> JobHandle:
        """The job as it runs."""
        self.check_open()
        assert self._life is not None
        return JobHandle(self._life, self._running)

    @property
    def has_finished(self) -> bool:
        """The job has come to its end."""
        return self._running.done() and self._running.exception() is None

    # ---- running

    def begin(self) -> None:
        """Start the job; raises what keeps it from running."""
        try:
            self._start()
            self.rest()
        except BaseException:
            self._close()
            raise

    def rest(self) -> None:
        """Let the job run until everything waits; time stands still."""
        self.advance(0.0)

    def advance(self, seconds: float) -> None:
        """Let the job run until everything waits, and then let time pass."""
        self._check()
        self._loop.advance(0.0)
        self._check()
        if seconds:
            self._loop.advance(seconds)
            self._check()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` beside the job to its end, while time passes as it needs."""
        try:
            return self._loop.run(main)
        except StreamcpError:
            self._check()  # what fails the job is the cause
            raise

    def crash(self) -> None:
        """Kill the job as it stands, and start it from what was durable."""
        self.check_open()
        self._stand_ins.crash()
        self._memory = self._memory.crashed()
        if not self._running.done():
            self._running.cancel()
            self._loop.run(_wait_for_end(self._running))
        self._start()
        self.rest()

    def end(self, *, undisturbed: bool) -> None:
        """Kill the job for good; `undisturbed`, let it work off what is left before that."""
        try:
            has_failed = self._running.done() and self._running.exception() is not None
            if undisturbed and not has_failed:
                self.rest()
        finally:
            self._close()

    def _start(self) -> None:
        clock, job = self._loop.clock, self._job
        storage = None
        if self._settings.checkpoints is not None:
            storage = MemoryStorage(self._memory, job.name)
        self._life = JobLife(
            self._stand_ins.graph(),
            self._settings,
            job.types,
            clock=clock,
            storage=storage,
            new_fork=lambda: "",
        )
        self._task = self._loop.create_task(self._life.run(), name=f"job {job.name}")

    def _close(self) -> None:
        self._life = None
        self._loop.end()

    # ---- what can be wrong

    @property
    def _running(self) -> asyncio.Task[JobResult]:
        assert self._task is not None
        return self._task

    def _check(self) -> None:
        """Raise what has failed the job."""
        self.check_open()
        if self._running.done():
            self._running.result()

    def check_open(self) -> None:
        """Raise StreamcpError unless the job has begun and was not ended."""
        if self._life is None:
            raise StreamcpError("use a trial inside its body: async with trial(job) as running")

    def check_checkpoints(self, call: str) -> None:
        """Raise StreamcpError if the job takes no checkpoints."""
        if self._settings.checkpoints is None:
            raise StreamcpError(
                f"{call}(): job {self._job.name!r} has no checkpoints; write trial(job, "
                'checkpoints=sc.Checkpoints(to="memory")), or give them to the Job'
            )


def _settings(job: Job, checkpoints: Checkpoints | None) -> JobSettings:
    """The job's own settings: a trial must not depend on the environment."""
    trial = "trial()", {"checkpoints": checkpoints}
    own = strictly(merge_settings(trial, ("Job(...)", job._settings)))
    if own.checkpoints is None:
        return dataclasses.replace(own, restart=Restart.none())
    in_memory = dataclasses.replace(own.checkpoints, to=_CHECKPOINTS, every=None, max_age=None)
    return dataclasses.replace(own, restart=Restart.none(), checkpoints=in_memory)


async def _wait_for_end(task: asyncio.Task[Any]) -> None:
    await asyncio.wait([task])
