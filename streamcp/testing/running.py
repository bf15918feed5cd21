"""Running a job in virtual time: no waiting, no threads, and the same run for the same seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from streamcp.api.jobs import Job
from streamcp.channel.channel import Channel, NewChannel
from streamcp.runners.handle import JobHandle, JobResult
from streamcp.runners.life import JobLife
from streamcp.storage.contract import CheckpointStorage
from streamcp.testing.simulation.clock import SimulatedClock
from streamcp.testing.simulation.loop import SimulatedLoop, Style
from streamcp.testing.strict_settings import strictly

T = TypeVar("T")
Use = Callable[[JobHandle], Awaitable[None]]


class VirtualRuns:
    """One event loop in virtual time, for one copy of a job or several at once.

    Same seed, same run. With the style "asyncio" ready tasks take turns as in asyncio; the others
    choose among them (see `simulation.loop`)."""

    def __init__(self, seed: int = 0, *, style: Style = "asyncio") -> None:
        rnd = random.Random(seed)
        self.clock = SimulatedClock(rnd)
        self._loop = SimulatedLoop(rnd, self.clock, style=style)

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `main` to its end, then close the loop.

        Raises what it raises, and WaitsForever if nothing would ever happen again."""
        try:
            return self._loop.run_until_complete(main())
        finally:
            self._loop.close_all()

    def start(
        self,
        job: Job,
        *,
        storage: CheckpointStorage | None = None,
        channels: NewChannel = Channel,
        **arguments: Any,
    ) -> tuple[JobHandle, asyncio.Task[JobResult]]:
        """Start `job` as `job.start(**arguments)` does; call it from `main`.

        `storage` is used instead of the directory of `Checkpoints(to=...)`; every channel is made
        by `channels`.
        Raises BuildError or SettingsError."""
        settings = strictly(job.settings(**arguments))
        job.validate(settings)
        life = JobLife(
            job.graph,
            settings,
            job.types,
            clock=self.clock,
            storage=storage,
            new_channel=channels,
        )
        task = self._loop.create_task(life.run(), name=f"job {job.name}")
        return JobHandle(life, task), task


def run_job(
    job: Job,
    *,
    seed: int = 0,
    style: Style = "asyncio",
    use: Use | None = None,
    **arguments: Any,
) -> JobResult | None:
    """Run `job` in virtual time until it ends, and return its result; arguments as `job.run`, and
    `storage` to be used instead of a directory, and `channels` (see `failing.failing_channels`).

    `use(handle)` acts on the running job. What it raises ends the job at once, as a kill does, and
    is raised from here; except asyncio.CancelledError: then the result is None."""
    runs = VirtualRuns(seed, style=style)
    return runs.run(lambda: _run_used(runs, job, use, arguments))


async def _run_used(
    runs: VirtualRuns, job: Job, use: Use | None, arguments: dict[str, Any]
) -> JobResult | None:
    handle, task = runs.start(job, **arguments)
    using = asyncio.get_running_loop().create_task(_used(use, handle), name="use")
    await asyncio.wait([task, using], return_when=asyncio.FIRST_COMPLETED)
    if using.done() and (using.cancelled() or using.exception() is not None):
        task.cancel()
    await asyncio.wait([task])
    using.cancel()
    with suppress(asyncio.CancelledError):
        await using
    return None if task.cancelled() else task.result()


async def _used(use: Use | None, handle: JobHandle) -> None:
    if use is not None:
        await use(handle)
