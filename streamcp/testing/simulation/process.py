"""One life of a job: from the start of a simulated process to its end, crash or failure."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from streamcp.api.jobs import Job
from streamcp.api.settings import merge_settings
from streamcp.checkpoint.snapshot import Manifest
from streamcp.config import JobSettings
from streamcp.errors import SettingsError
from streamcp.observability import events
from streamcp.runners.handle import JobHandle
from streamcp.runners.life import JobLife
from streamcp.storage.reading import referenced_sizes
from streamcp.testing.simulation.asking import Asking
from streamcp.testing.simulation.faults import Fault
from streamcp.testing.simulation.invariants import Violation, check_closed, check_manifest
from streamcp.testing.simulation.storage import WatchedStorage
from streamcp.testing.simulation.trace import event_text
from streamcp.testing.simulation.world import Life
from streamcp.testing.strict_settings import strictly

Ending: TypeAlias = Literal[
    "finished", "already_finished", "stopped", "cancelled", "crashed", "failed"
]

_ENOUGH = 600.0
_PATIENCE = 20
"""After so many expired checkpoints, one behind another, whoever runs the job gives them more
time."""


@dataclass(frozen=True)
class Ended:
    """How a life ended; `error` is set if it failed."""

    how: Ending
    error: Exception | None = None

    @property
    def finished(self) -> bool:
        """All input is worked off, now or earlier."""
        return self.how in ("finished", "already_finished")


class Process:
    """Runs one life of `job`. `counts` is added to, `copy` makes a second copy of it."""

    def __init__(
        self,
        life: Life,
        job: Job,
        settings: JobSettings,
        counts: Counter[str],
        copy: Callable[[], Process] | None = None,
    ) -> None:
        self.life = life
        self.counts = counts
        self._expired = 0
        self._copy = copy
        self._second: tuple[Process, asyncio.Task[Ended]] | None = None
        storage = life.files.storage(life.branch.directory, job.name, life.world.clock, life.disk)
        self.job = JobLife(
            job.graph,
            settings,
            job.types,
            clock=life.world.clock,
            storage=WatchedStorage(life, storage, self._look_at_manifest),
            new_fork=lambda: life.branch.fork(next(life.world.forks)),
            files=life.disk.files,
            new_channel=life.channels,
        )

    async def run(self) -> Ended:
        """Run to the end, and wait until nothing of it is left."""
        self.job.log.subscribe(self._on_event)
        loop = self.life.world.loop
        task = self.life.task = loop.create_task(self.job.run(), name="job")
        handle = JobHandle(self.job, task)
        asking = Asking(self.life, handle)
        self.life.hands = lambda fault: self._act(handle, asking, fault)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:  # a second copy ends with the first
            task.cancel()
            await asyncio.wait([task])
            raise
        await asking.end()
        ended = self._ended(task)
        asking.check_ending(ended.how)
        return await self._ended_with_second(ended)

    async def _ended_with_second(self, first: Ended) -> Ended:
        """Wait for the second copy, if there is one: how it ends is how the life ends."""
        if self._second is None:
            return first
        copy, running = self._second
        if first.how == "crashed":
            running.cancel()
        await asyncio.wait([running])
        check_closed(copy.life)
        copy.life.disk.end()
        self.life.violations += copy.life.violations
        if first.how in ("crashed", "finished", "already_finished") or running.cancelled():
            return first
        return running.result()

    def _ended(self, task: asyncio.Task[Any]) -> Ended:
        if self.life.survived is not None:
            if not task.cancelled():
                task.exception()
            return Ended("crashed")
        if task.cancelled():
            return Ended("cancelled")
        error = task.exception()
        if error is None:
            return Ended(task.result().outcome)
        if not isinstance(error, Exception):
            raise error
        return Ended("failed", error)

    # ---- what is asked of the job

    def _act(self, handle: JobHandle, asking: Asking, fault: Fault) -> None:
        if fault.action == "mode":
            with suppress(SettingsError):  # an at-least-once job stays one
                handle.set_mode(fault.value)
        elif fault.action == "interval":
            handle.set_interval(fault.value)
        elif fault.action == "alignment timeout":
            handle.set_alignment_timeout(fault.value)
        elif fault.action == "take over":
            self._take_over()
        else:
            asking.ask(fault)

    def _take_over(self) -> None:
        """Start a second copy; a copy that has taken over itself is left alone."""
        if self._copy is not None and self._second is None:
            copy = self._copy()
            running = self.life.world.loop.create_task(copy.run(), name="second copy")
            self._second = copy, running

    # ---- what is seen of it

    def _on_event(self, event: events.Event) -> None:
        self.life.say("event", event_text(event))
        self.counts[type(event).__name__] += 1
        if isinstance(event, events.JobRestored) and event.in_flight_records:
            self.counts["restored in-flight records"] += event.in_flight_records
        if isinstance(event, events.CheckpointCompleted):
            self._expired = 0
            self.life.hit("completed")
        if isinstance(event, events.CheckpointFailed) and event.reason == "EXPIRED":
            self._expired += 1
            if self._expired == _PATIENCE:
                self._give_time()
        if isinstance(event, events.SavepointWritten) and self.life.survived is None:
            self.life.world.savepoints.announced.add(Path(event.path))

    def _give_time(self) -> None:
        """A job whose timeout is too short for its schedule would run for ever."""
        self.counts["given time"] += 1
        self.job.set_timeout(_ENOUGH)

    def _look_at_manifest(self, manifest: Manifest) -> None:
        savepoints = self.life.world.savepoints
        if savepoints.begun_from:
            own = filter(self.life.branch.owns, self.life.outside.committed())
            savepoints.completing(manifest, frozenset(own))
        referenced = referenced_sizes(manifest)
        self.counts["referenced files"] += len(referenced)
        self.counts["incremental checkpoints"] += any(referenced.values())
        try:
            check_manifest(manifest)
        except Violation as error:
            self.life.violations.append(str(error))


def settings_of(job: Job) -> JobSettings:
    """The job's own settings: a simulated run must not depend on the environment."""
    return strictly(merge_settings(("Job(...)", job._settings)))
