"""The life of a job in one run: attempt after attempt, as its restart strategy allows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamcp.channel.channel import Channel, NewChannel
from streamcp.checkpoint.mode_policy import refused_switch
from streamcp.checkpoint.statistics import CheckpointStatistics
from streamcp.clock import Clock, SystemClock
from streamcp.config import JobSettings, Mode
from streamcp.coordinator.coordinator import Coordinator
from streamcp.coordinator.requests import Wish
from streamcp.coordinator.restart_strategy import GiveUp, RestartStrategy
from streamcp.durable_files import LOCAL_FILES, DurableFiles
from streamcp.errors import (
    CheckpointFailed,
    Fenced,
    JobFailed,
    RestoreRefused,
    SettingsError,
    StorageError,
    StreamcpError,
)
from streamcp.graph.logical import LogicalGraph
from streamcp.graph.physical import PhysicalPlan, plan
from streamcp.observability import events
from streamcp.operators.failures import Failure
from streamcp.operators.steps import SinkStep
from streamcp.runners.attempt import Attempt, Prepared
from streamcp.runners.handle import JobResult, Outcome
from streamcp.runners.matching import check_fits, plan_for
from streamcp.runners.restoring import Restorable, choose, read_savepoint
from streamcp.runners.savepoints import Savepoint, SavepointWriter, new_fork
from streamcp.runners.view import JobState, JobView, task_views
from streamcp.serialization.evolution import check_renames
from streamcp.serialization.registry import TypeCodec, TypeRegistry
from streamcp.state.parts import CODECS
from streamcp.storage.contract import Attempt as StoredAttempt
from streamcp.storage.contract import CheckpointStorage, Origin
from streamcp.storage.in_thread import in_thread
from streamcp.storage.layout import job_directory
from streamcp.storage.local import LocalStorage

_logger = logging.getLogger(__name__)

# Failures that a restart cannot mend.
_FINAL = (Fenced, RestoreRefused)


class JobLife:
    """Runs a job to its end. Its methods belong to the event loop that runs it."""

    def __init__(
        self,
        graph: LogicalGraph,
        settings: JobSettings,
        types: Sequence[Any],
        *,
        clock: Clock | None = None,
        storage: CheckpointStorage | None = None,
        new_fork: Callable[[], str] = new_fork,
        files: DurableFiles = LOCAL_FILES,
        new_channel: NewChannel = Channel,
    ) -> None:
        """Prepare; nothing is touched before `run`.

        `new_fork` makes a name that no other job's transactions have (rule P30); a savepoint to
        begin from is read from `files`. Every channel is made by `new_channel`."""
        self.job = graph.job
        self.log = events.EventLog()
        self._settings = settings
        self._clock: Clock = clock or SystemClock()
        self._graph = graph
        self._plan: PhysicalPlan = plan(graph)
        self._registry = make_registry(self._plan, types)
        if storage is None and settings.checkpoints is not None:
            storage = LocalStorage(Path(settings.checkpoints.to), job=graph.job)
        self._storage = storage
        self._new_fork = new_fork
        self._files = files
        self._new_channel = new_channel
        self._fork = ""
        # Tells runs apart that have nothing to do with each other. One with storage goes on with
        # what an earlier one began, also before its first checkpoint.
        self._life = "" if storage is not None else new_fork()
        self._attempt: Attempt | None = None
        self._state: JobState = "starting"
        self._attempts = 0
        self._oldest_usable = 0
        self._restored_from: int | None = None
        self._was_finished = False
        self._completed = 0
        self._failed = 0
        self._last_checkpoint: int | None = None
        self._history: list[CheckpointStatistics] = []
        self._adjust: dict[str, Callable[[Attempt], None]] = {}
        self._running = asyncio.Event()
        self._stopping = False
        self.log.subscribe(self._count)

    @property
    def has_storage(self) -> bool:
        """Checkpoints are durable."""
        return self._storage is not None

    @property
    def plan(self) -> PhysicalPlan:
        """The plan of the newest attempt."""
        return self._plan

    @property
    def directory(self) -> Path | None:
        """The job's directory of checkpoints; None without checkpoints."""
        checkpoints = self._settings.checkpoints
        return Path(checkpoints.to) / job_directory(self.job) if checkpoints else None

    # ---- what the handle asks

    async def wait_running(self) -> None:
        """Wait until an attempt runs, or the job has ended."""
        # Whoever wakes late finds that the attempt has failed, and waits for the next one.
        while not self._running.is_set():
            await self._running.wait()

    def view(self) -> JobView:
        """Look at the job as it is now."""
        attempt = self._attempt
        checkpoints = self._settings.checkpoints
        mode = attempt.coordinator.mode if attempt is not None else None
        now = self._clock.monotonic()
        return JobView(
            job=self.job,
            state=self._state,
            attempt=attempt.number if attempt is not None else 0,
            at=now,
            time=self._clock.wall_ms(),
            mode=(mode or checkpoints.mode) if checkpoints is not None else "none",
            restored_from=self._restored_from,
            last_checkpoint=self._last_checkpoint,
            tasks=task_views(self._plan, attempt.subtasks if attempt is not None else (), now),
            checkpoints=tuple(self._history[-100:]),
        )

    async def request_checkpoint(self) -> CheckpointStatistics:
        """Take a checkpoint as soon as the job runs."""
        return await (await self._coordinator()).request()

    async def take_savepoint(self, target: Path, mode: Mode | None) -> Savepoint:
        """Take a checkpoint as soon as the job runs, and copy it."""
        wish = Wish(self._possible(mode), savepoint=True)
        return await self._savepoint_writer().take(await self._coordinator(), target, wish)

    async def stop_with_savepoint(
        self, task: asyncio.Task[JobResult], target: Path, mode: Mode | None
    ) -> JobResult:
        """End the job by a savepoint; see `JobHandle.stop`."""
        wish = Wish(self._possible(mode), savepoint=True, stop=True)
        coordinator = await self._coordinator()
        savepoint = await self._savepoint_writer().take(coordinator, target, wish)
        if coordinator.outcome is None:
            raise CheckpointFailed(
                f"job {self.job!r} failed while its savepoint was written, and goes on from its "
                f"checkpoint {savepoint.statistics.checkpoint_id}; the savepoint is whole: "
                f"{savepoint.path}. Stop the job again if it is still to stop"
            )
        return replace(await asyncio.shield(task), savepoint=savepoint.path)

    def _savepoint_writer(self) -> SavepointWriter:
        assert self._storage is not None, "the handle asks for savepoints of jobs with storage only"
        return SavepointWriter(self._storage, self._clock, self.log)

    def _possible(self, mode: Mode | None) -> Mode | None:
        checkpoints = self._settings.checkpoints
        refused = refused_switch(checkpoints.mode, mode) if checkpoints and mode else None
        if refused is not None:
            raise SettingsError(f"savepoint in mode {mode!r}: {refused}")
        return mode

    async def stop(self, task: asyncio.Task[JobResult], *, drain: bool = False) -> JobResult:
        """End the job by a last checkpoint; see `JobHandle.stop`."""
        if self._state == "restarting" and not drain:
            # Nothing runs, so there is nothing that a checkpoint could hold beyond the last.
            self._stopping = True
            self._running.set()
        elif not task.done():
            await self._stop_attempt(task, drain=drain)
        return await asyncio.shield(task)

    async def _stop_attempt(self, task: asyncio.Task[JobResult], *, drain: bool) -> None:
        """Ask for the last checkpoint, and wait for it or for an end that came before it."""
        # Should the attempt fail before it runs, no other one follows: there is nothing to be
        # held by a checkpoint. A drain promises more, and waits for one that runs.
        if not drain:
            self._stopping = not self._running.is_set()
        await self.wait_running()
        if not drain:
            self._stopping = False
        if self._attempt is None or self._state != "running":
            return
        coordinator = self._attempt.coordinator
        request = coordinator.drain() if drain else coordinator.request(Wish(stop=True))
        either: list[asyncio.Future[Any]] = [request, task]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            request.result()

    def set_mode(self, mode: Mode) -> None:
        """Use another mode, now and in later attempts; see `JobHandle.set_mode`."""
        checkpoints = self._settings.checkpoints
        refused = refused_switch(checkpoints.mode if checkpoints else "unaligned", mode)
        if refused is not None:
            raise SettingsError(f"set_mode({mode!r}): {refused}")
        self._adjusted("mode", lambda attempt: attempt.coordinator.set_mode(mode))

    def set_interval(self, interval: float | None) -> None:
        """Use another interval, now and in later attempts."""
        self._adjusted("interval", lambda attempt: attempt.coordinator.set_interval(interval))

    def set_alignment_timeout(self, timeout: float) -> None:
        """Use another alignment timeout, now and in later attempts."""
        self._adjusted(
            "alignment timeout", lambda attempt: attempt.coordinator.set_alignment_timeout(timeout)
        )

    def set_timeout(self, timeout: float) -> None:
        """Use another checkpoint timeout, now and in later attempts."""
        self._adjusted("timeout", lambda attempt: attempt.coordinator.set_timeout(timeout))

    def _adjusted(self, setting: str, adjust: Callable[[Attempt], None]) -> None:
        self._adjust[setting] = adjust
        if self._attempt is not None and self._state == "running":
            adjust(self._attempt)

    async def running_attempt(self, wanted: str) -> Attempt:
        """Wait until the job runs. Raises StreamcpError if it has ended; `wanted` names in it what
        is asked for."""
        await self.wait_running()
        if self._attempt is None or self._state != "running":
            raise StreamcpError(
                f"job {self.job!r} has ended: {wanted} can be read from its last checkpoint, with "
                "streamcp checkpoints show"
            )
        return self._attempt

    async def _coordinator(self) -> Coordinator:
        """Wait until the job runs. Raises CheckpointFailed if it has ended."""
        await self.wait_running()
        if self._attempt is None:
            raise CheckpointFailed(f"job {self.job!r} has ended before anything of it ran")
        if self._state == "ended":
            raise CheckpointFailed(f"job {self.job!r} has ended: nothing is left to be captured")
        if self._state == "restarting":  # woken by a stop: no attempt follows that could answer
            raise CheckpointFailed(f"job {self.job!r} has been stopped before it ran again")
        return self._attempt.coordinator

    # ---- attempts

    async def run(self) -> JobResult:
        """Run to the end, through failures; raises JobFailed or what no restart can mend."""
        started = self._clock.monotonic()
        strategy = RestartStrategy(self._settings.restart)
        try:
            while True:
                outcome = await self._try_once(strategy)
                if outcome is not None:
                    return self._result(outcome, self._clock.monotonic() - started)
        finally:
            self._state = "ended"
            self._running.set()
            self._answer_waiting()
            if self._storage is not None:
                self._storage.close()

    def _answer_waiting(self) -> None:
        """Whatever ended the job, a cancellation too: who asked for a checkpoint waits no more."""
        if self._attempt is not None:
            error = CheckpointFailed(f"job {self.job!r} has ended before it")
            self._attempt.coordinator.close(error)

    async def _try_once(self, strategy: RestartStrategy) -> Outcome | None:
        """Run one attempt; None says that another is to follow."""
        try:
            return await self._run_attempt()
        except* Exception as group:  # whatever user code raises; cancellation is not among it
            final, _ = group.split(_FINAL)
            cause = first_cause(final or group)
        number = self._attempt.number if self._attempt is not None else 0
        if self._attempt is not None:
            self._attempt.coordinator.close(
                CheckpointFailed(f"the job failed before the checkpoint was complete: {cause}")
            )
        now = self._clock.wall_ms()
        self.log.record(events.TaskFailed(now, self.job, number, str(cause)))
        if self._has_stopped(cause):
            return "stopped"
        await self._restart_or_raise(strategy, cause, number)
        return "stopped" if self._stopping else None

    def _has_stopped(self, cause: BaseException) -> bool:
        """Say whether the failure came after the last checkpoint of a stop: starting again would
        take the stop back, and the next start commits what a sink could not."""
        attempt = self._attempt
        if attempt is None or attempt.coordinator.outcome != "stopped" or self._storage is None:
            return False
        if isinstance(cause, _FINAL):
            return False
        _logger.warning(
            "job %s stops although it failed after its last checkpoint, which holds all output; "
            "the next start commits it: %s",
            self.job,
            cause,
        )
        now = self._clock.wall_ms()
        self.log.record(events.JobStopped(now, self.job, attempt.number, self._last_checkpoint))
        return True

    async def _run_attempt(self) -> Outcome:
        self._state = "starting"
        self._running.clear()
        prepared = await self._prepare()
        restorable = prepared.restorable
        if self._attempts == 0 and restorable is not None:
            self._restored_from = restorable.manifest.checkpoint_id
            if restorable.savepoint is None:
                self._last_checkpoint = self._restored_from
            self._was_finished = restorable.manifest.final
            if self._was_finished and not restorable.names_transactions:
                return "already_finished"
        if restorable is not None:
            allow = self._settings.allow_unmatched_state
            check_fits(prepared.plan, restorable.manifest, allow_unmatched_state=allow)
        self._attempts += 1
        self._plan = prepared.plan
        self._attempt = Attempt(prepared, self._clock, self.log)
        outcome = await self._attempt.run(self._on_running)
        if outcome == "finished":
            self.log.record(
                events.JobFinished(self._clock.wall_ms(), self.job, self._attempt.number)
            )
            # Whether the earlier run came to commit its tail was not known: now it is (P30).
            return "already_finished" if self._was_finished else "finished"
        self.log.record(
            events.JobStopped(
                self._clock.wall_ms(), self.job, self._attempt.number, self._last_checkpoint
            )
        )
        return "stopped"

    def _on_running(self) -> None:
        assert self._attempt is not None
        for adjust in self._adjust.values():
            adjust(self._attempt)
        self._state = "running"
        self._running.set()

    async def _prepare(self) -> Prepared:
        """Begin an attempt in the storage and read what it starts from."""
        settings = self._settings
        if self._attempts == 0 and settings.restore is not None:
            self._fork = self._new_fork()
        stored, restorable = await in_thread(self._read)
        graph = self._graph
        physical = plan(graph) if restorable is None else plan_for(graph, restorable.manifest)
        return Prepared(
            physical,
            settings,
            self._registry,
            self._storage,
            stored.number,
            stored.next_checkpoint_id,
            restorable,
            stored.fork,
            stored.forks,
            self._new_channel,
            self._life if restorable is None else restorable.manifest.life,
        )

    def _read(self) -> tuple[StoredAttempt, Restorable | None]:
        """In a thread: all of this blocks."""
        savepoint = self._settings.restore
        begun = None if savepoint is None else read_savepoint(savepoint, self._files)
        if self._storage is None:
            return self._without_storage(begun), begun
        stored = self._start_attempt(self._storage, begun)
        usable = [one for one in stored.completed if one.attempt >= self._oldest_usable]
        restorable = choose(
            self._storage,
            usable,
            self._plan,
            accept_duplicates=self._settings.accept_duplicates,
        )
        # Its own later checkpoints win over the savepoint that it began from.
        return stored, restorable or begun

    def _without_storage(self, begun: Restorable | None) -> StoredAttempt:
        before = 0 if begun is None else begun.manifest.attempt
        return StoredAttempt(before + self._attempts + 1, 1, (), self._fork, (self._fork,))

    def _start_attempt(self, storage: CheckpointStorage, begun: Restorable | None) -> StoredAttempt:
        settings, first = self._settings, self._attempts == 0
        origin = None
        if begun is not None and first:
            origin = Origin(str(settings.restore), begun.manifest, self._fork, settings.fresh)
        # What this very run holds is not another copy; and one that has taken over from this run
        # meanwhile keeps the job.
        stored = storage.start_attempt(take_over=settings.take_over and first, origin=origin)
        if settings.fresh and first:
            self._oldest_usable = stored.number
            self._life = str(stored.number)
        if stored.begun_from is not None and not stored.completed and begun is None:
            self._refuse_to_forget(stored.begun_from)
        return stored

    def _refuse_to_forget(self, savepoint: str) -> None:
        """The job began from a savepoint, and nothing is complete since: not a job without past."""
        if not self._settings.fresh:
            raise RestoreRefused(
                f"job {self.job!r} began from the savepoint {savepoint} and has completed no "
                f"checkpoint since: begin from there again with restore={savepoint!r} "
                f"(--from {savepoint}), or anew with fresh=True (--fresh)"
            )

    async def _restart_or_raise(
        self, strategy: RestartStrategy, cause: BaseException, number: int
    ) -> None:
        decision = strategy.on_failure(self._clock.monotonic())
        permanent = isinstance(cause, _FINAL) or self._attempts == 0
        if permanent or isinstance(decision, GiveUp):
            self._fail(cause, number, decision)
        assert not isinstance(decision, GiveUp)
        self.log.record(
            events.JobRestarting(
                self._clock.wall_ms(), self.job, number, decision.seconds, str(cause)
            )
        )
        _logger.warning("job %s failed and restarts in %g s: %s", self.job, decision.seconds, cause)
        self._state = "restarting"
        self._running.clear()
        if self._stopping:
            return
        try:
            async with asyncio.timeout(decision.seconds):
                await self._running.wait()  # a stop ends the delay
        except TimeoutError:
            pass

    def _fail(self, cause: BaseException, number: int, decision: object) -> None:
        self.log.record(events.JobFailed(self._clock.wall_ms(), self.job, number, str(cause)))
        if isinstance(cause, StreamcpError) and self._attempts == 0:
            raise cause
        if isinstance(cause, Fenced | RestoreRefused | StorageError):
            raise cause
        why = f" ({decision.reason})" if isinstance(decision, GiveUp) else ""
        raise JobFailed(f"job {self.job!r} failed{why}: {cause}") from cause

    def _count(self, event: events.Event) -> None:
        if isinstance(event, events.CheckpointCompleted):
            self._completed += 1
            if self.has_storage:
                self._last_checkpoint = event.checkpoint_id
            self._history.append(CheckpointStatistics.from_dict(event.statistics))
        elif isinstance(event, events.CheckpointFailed):
            self._failed += 1
            self._history.append(CheckpointStatistics.from_dict(event.statistics))
        del self._history[:-1000]

    def _result(self, outcome: Outcome, duration: float) -> JobResult:
        return JobResult(
            self.job,
            outcome,
            self._attempts,
            self._restored_from,
            self._last_checkpoint,
            self._completed,
            self._failed,
            duration,
        )


def first_cause(error: BaseException) -> BaseException:
    """The first failure inside nested groups: the others are its consequences."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def make_registry(physical: PhysicalPlan, types: Sequence[Any]) -> TypeRegistry:
    """Declare the classes that snapshots may hold: from annotations, `state=` and `Job(types=)`."""
    registry = TypeRegistry()
    registry.declare(Failure, step="on_error")  # what travels to `.errors`
    for known in CODECS:
        registry.register(known)
    for entry in types:
        if isinstance(entry, TypeCodec):
            registry.register(entry)
        else:
            registry.declare(entry, step="Job(types=...)")
    for task in physical.tasks:
        for node in task.members:
            for function in _functions(node.spec):
                registry.declare_function(function, step=node.label)
    for shape in registry.shapes():
        check_renames(shape)
    return registry


def _functions(spec: Any) -> list[Callable[..., Any]]:
    """Everything of a step that a user annotated, and the classes of records that are known."""
    names = ("fn", "start", "state", "on_timer", "on_right", "on_broadcast", "broadcast_state")
    functions = [getattr(spec, name, None) for name in names]
    functions += getattr(spec, "annotated", ())
    if isinstance(spec, SinkStep):
        functions.append(spec.open)
    if hasattr(spec, "source"):
        functions += [spec.source.fn, *spec.source.types]
    return [function for function in functions if function is not None]
