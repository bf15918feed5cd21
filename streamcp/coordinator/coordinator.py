"""The checkpoints of one attempt, from trigger to completion.

`look` is synchronous and is called when something is due, also by tasks between two slices; what
needs the disk is queued for one background task. Messages of tasks are acted on after the barrier
has passed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from streamcp.checkpoint.failure_reason import FailureCounter, FailureReason
from streamcp.checkpoint.mode_policy import (
    ChosenMode,
    ModePolicy,
    predict_alignment,
    strictest,
)
from streamcp.checkpoint.pending import (
    AllAcknowledged,
    Ended,
    Ignored,
    PendingCheckpoint,
    PendingState,
)
from streamcp.checkpoint.plan import Trigger, make_plan
from streamcp.checkpoint.snapshot import Acknowledgement, Manifest
from streamcp.checkpoint.statistics import CheckpointStatistics
from streamcp.checkpoint.trigger_policy import TriggerNow, TriggerPolicy
from streamcp.clock import Clock
from streamcp.config import Checkpoints
from streamcp.coordinator.bases import PinnedBases
from streamcp.coordinator.disk import DiskWork
from streamcp.coordinator.gateway import JobFacts, TaskGateway
from streamcp.coordinator.limits import Limits
from streamcp.coordinator.requests import PLAIN, Request, Requests, Wish
from streamcp.coordinator.stopping import UndecidedStop, savepoints_to_wait_for
from streamcp.errors import CheckpointFailed, Fenced, JobFailed, StorageError
from streamcp.identifiers import SubtaskId
from streamcp.observability import events
from streamcp.storage.contract import CheckpointStorage
from streamcp.storage.in_thread import in_thread

T = TypeVar("T")
_logger = logging.getLogger(__name__)

# What a captured record is taken to weigh before any has been captured.
FIRST_GUESS_BYTES = 256
# How often an escalation that is held back by max_in_flight_bytes is looked at again.
ESCALATION_POLL = 0.02
# How long a stop waits, once its checkpoint is complete, for sinks to commit what it names. One
# whose target does not answer would hold the job for ever; the next start commits it as well.
COMMIT_TIME = 10.0


class Coordinator:
    """Triggers and completes the checkpoints of one attempt of a job."""

    def __init__(
        self,
        facts: JobFacts,
        settings: Checkpoints | None,
        storage: CheckpointStorage | None,
        classes: Callable[[], tuple[Mapping[str, Any], ...]],
        clock: Clock,
        log: events.EventLog,
        next_checkpoint_id: int,
    ) -> None:
        """Prepare; `begin` starts the clock.

        Without `settings` and `storage` nothing is durable: checkpoints happen only at a stop and
        at the end, so that transactional sinks commit."""
        self._facts = facts
        self._settings = settings
        self._storage = storage
        self._classes = classes
        self._clock = clock
        self._log = log
        self._next_id = next_checkpoint_id
        self._limits = Limits.of(settings)
        self._modes = ModePolicy(
            settings.mode if settings else "unaligned",
            self._limits.alignment_timeout,
            settings.predict if settings else False,
            max_in_flight_bytes=settings.max_in_flight_bytes if settings else None,
        )
        self._failures = FailureCounter(settings.tolerable_failures if settings else None)
        self._running: dict[int, tuple[PendingCheckpoint, TriggerNow]] = {}
        self._inbox: deque[Callable[[], None]] = deque()
        incremental = settings is not None and settings.incremental
        self._bases = PinnedBases(storage if incremental else None)
        self._disk = DiskWork()
        self._requests = Requests()
        self._wakeup = asyncio.Event()
        self._bytes_per_record: float = FIRST_GUESS_BYTES
        self._failure: Exception | None = None
        self._overdue = False
        self._commit_deadline: float | None = None
        self._undecided_stop: UndecidedStop | None = None
        self._in_trigger = False
        self.last_completed: int | None = None
        self.ended = asyncio.Event()
        self.outcome: str | None = None

    def begin(self, tasks: TaskGateway) -> None:
        """Every task runs: from now on checkpoints are triggered (rule P40)."""
        self._tasks = tasks
        now = self._clock.monotonic()
        self._last_completed_at = now
        self._triggers = TriggerPolicy(self._limits.interval, self._limits.min_pause, now=now)
        self._wakeup.set()

    # ---- what the user asks

    def request(self, wish: Wish = PLAIN) -> Request:
        """Ask for a checkpoint; the request gets its figures, or CheckpointFailed.

        One for a savepoint stays in the storage until it is unpinned. If the wish is to stop with
        a savepoint, the subtasks hold still from the cut on, and whoever asked must call
        `savepoint_written` once, whatever comes of it."""
        number, future = self._requests.new(wish)
        if wish.stop:
            self._triggers.request_stop(number)
        else:
            self._triggers.request(number)
        self._tasks.look_at(0.0)
        self._wakeup.set()
        return future

    def drain(self) -> Request:
        """Let the job come to its end: sources read no more, and what follows is as if they had
        ended by themselves, with the final checkpoint (rule P33).

        The request only ever fails, if this attempt ends before."""
        _, future = self._requests.new(PLAIN)
        self._tasks.drain()
        return future

    def savepoint_written(self, *, succeeded: bool) -> None:
        """Decide a stop with a savepoint: the job ends, or (if none of those that were asked for
        could be written) goes on (rule P33)."""
        stop = self._undecided_stop
        if stop is None or not (succeeded or stop.has_failed()):
            return
        self._undecided_stop = None
        self._triggers.ended(stop.decision, self._clock.monotonic(), completed=succeeded)
        if succeeded:
            self._end_by(stop.decision)
        else:
            self._tasks.release()
        self._wakeup.set()

    def set_mode(self, mode: ChosenMode) -> None:
        """Use another mode from the next trigger on (rule P28)."""
        self._modes.set_mode(mode)
        self._wakeup.set()

    def set_interval(self, interval: float | None) -> None:
        """Use another interval, counted from the last trigger."""
        self._triggers.set_interval(interval)
        self._wakeup.set()

    def set_alignment_timeout(self, timeout: float) -> None:
        """Use another alignment timeout from the next trigger on."""
        self._modes.set_alignment_timeout(timeout)

    def set_timeout(self, timeout: float) -> None:
        """Give checkpoints another time to complete, from the next trigger on."""
        self._limits = replace(self._limits, timeout=timeout)

    @property
    def mode(self) -> ChosenMode:
        """The mode that the next trigger goes by."""
        return self._modes.mode

    # ---- what the tasks tell (CoordinatorGateway of the runtime)

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """Storage has a subtask's snapshot."""
        self._tell(lambda: self._acknowledged(acknowledgement))

    def decline(
        self, subtask: SubtaskId, checkpoint_id: int, reason: FailureReason, detail: str
    ) -> None:
        """A subtask's snapshot cannot be taken or written."""
        self._tell(lambda: self._declined(subtask, checkpoint_id, reason, detail))

    def subtask_ended(self, subtask: SubtaskId) -> None:
        """A subtask will do nothing more by itself."""
        self._tell(self._after_end)

    def committed(self, subtask: SubtaskId) -> None:
        """A sink has committed something."""
        self._tell(self._end_if_committed)

    def request_checkpoint(self) -> None:
        """A staged sink is full."""
        self._tell(lambda: self._triggers.request(0))

    def _tell(self, message: Callable[[], None]) -> None:
        self._inbox.append(message)
        if not self._in_trigger:
            self._wakeup.set()

    # ---- the clock

    async def run(self) -> None:
        """Look whenever something is due, until cancelled. Raises what fails the job."""
        while True:
            self.look(self._clock.monotonic())
            if self._failure is not None:
                raise self._failure
            self._wakeup.clear()
            if self._inbox:
                continue
            due = self._next_due()
            self._tasks.look_at(due)
            delay = due - self._clock.monotonic()
            await _wait(self._wakeup, None if due == float("inf") else max(0.0, delay))

    def look(self, now: float) -> None:
        """Act on messages, and do what is due at `now`. Never called from inside user code."""
        self._work_off_inbox()
        for pending, _ in tuple(self._running.values()):
            self._look_at_running(pending, now)
        self._limit_concurrency()
        while isinstance(decision := self._triggers.decide(now), TriggerNow):
            self._trigger(decision, now)
            self._work_off_inbox()
            self._limit_concurrency()
        self._look_at_age(now)
        self._look_at_commits(now)
        self._tasks.look_at(self._next_due())

    def _limit_concurrency(self) -> None:
        if self._limits.max_concurrent > 1:
            # One that may still be escalated is not aligned to its end.
            modes: list[ChosenMode] = [
                pending.mode if pending.escalation_due is None else "adaptive"
                for pending, _ in self._running.values()
            ]
            modes += self._requests.modes()
            most = self._modes.max_concurrent(self._limits.max_concurrent, modes)
            self._triggers.set_max_concurrent(most)

    def _work_off_inbox(self) -> None:
        while self._inbox:
            self._inbox.popleft()()

    def _next_due(self) -> float:
        times = [self._triggers.next_due(self._clock.monotonic())]
        for pending, _ in self._running.values():
            if pending.state is PendingState.COLLECTING:
                times += [pending.deadline, self._escalation_due(pending)]
        if self._limits.max_age is not None and not self._overdue:
            times.append(self._last_completed_at + self._limits.max_age)
        times.append(self._commit_deadline)
        return min((time for time in times if time is not None), default=float("inf"))

    def _escalation_due(self, pending: PendingCheckpoint) -> float | None:
        due = pending.escalation_due
        if due is None or self._fits():
            return due
        return max(due, self._clock.monotonic() + ESCALATION_POLL)

    def _look_at_running(self, pending: PendingCheckpoint, now: float) -> None:
        ended = pending.expire(now)
        if ended is not None:
            self._fail(pending, ended)
            return
        due = pending.escalation_due
        if due is not None and now >= due and self._fits():
            by = f"alignment timeout of {self._modes.alignment_timeout:g} s"
            pending.escalate(now, by)
            after = now - pending.triggered_at
            self._event(events.CheckpointEscalated, pending.checkpoint_id, after, by)
            self._guarded(partial(self._tasks.escalate, pending.checkpoint_id))

    def _fits(self) -> bool:
        return self._modes.fits(self._estimated_bytes())

    def _estimated_bytes(self) -> int:
        if self._limits.max_in_flight_bytes is None:
            return 0
        return int(self._tasks.queued_records() * self._bytes_per_record)

    def _look_at_commits(self, now: float) -> None:
        """End a stop whose sinks do not commit: its checkpoint holds what they would."""
        if self._commit_deadline is None or now < self._commit_deadline:
            return
        self._commit_deadline = None
        _logger.warning(
            "job %s stops although a sink has not committed its output within %g s; checkpoint %s "
            "holds it, and the next start commits it",
            self._facts.job,
            COMMIT_TIME,
            self.last_completed,
        )
        self.ended.set()

    def _look_at_age(self, now: float) -> None:
        """Raise the alarm if the last complete checkpoint is too old (rule P32a)."""
        max_age = self._limits.max_age
        if max_age is None or self._overdue or now - self._last_completed_at < max_age:
            return
        self._overdue = True
        age = now - self._last_completed_at if self.last_completed is not None else None
        self._event(events.CheckpointOverdue, age, max_age)
        _logger.warning("job %s: no checkpoint has completed for %g s", self._facts.job, max_age)
        if self._settings is not None and self._settings.fail_on_max_age:
            self._failure = JobFailed(
                f"no checkpoint has completed for {max_age:g} s, and fail_on_max_age is set"
            )
            self._wakeup.set()

    # ---- one checkpoint

    def _trigger(self, decision: TriggerNow, now: float) -> None:
        checkpoint_id = self._next_id
        self._next_id += 1
        facts = self._facts
        plan = make_plan(facts.subtasks, facts.senders, facts.sources, self._tasks.finished())
        prediction = predict_alignment(self._tasks.facts()) if self._settings else None
        asked = strictest(wish.mode for wish in self._requests.wishes(decision.requests))
        choice = self._modes.choose(prediction, self._estimated_bytes(), asked=asked)
        pending = PendingCheckpoint(
            checkpoint_id=checkpoint_id,
            attempt=facts.attempt,
            kind=decision.kind,
            plan=plan,
            choice=choice,
            triggered_at=now,
            triggered_ms=self._clock.wall_ms(),
            timeout=self._limits.timeout,
            replaying=self._tasks.replaying(),
        )
        self._running[checkpoint_id] = pending, decision
        self._bases.triggered(checkpoint_id)
        self._event(
            events.CheckpointTriggered,
            checkpoint_id,
            decision.kind,
            choice.mode,
            choice.reason,
            choice.prediction,
        )
        trigger = Trigger(
            checkpoint_id,
            choice.mode == "unaligned",
            plan.finished,
            frozenset(plan.triggered),
            now,
            stopping=decision.kind == "stop",
        )
        self._guarded(lambda: self._tasks.start(trigger))

    def _guarded(self, barrier: Callable[[], None]) -> None:
        """While a barrier passes, messages only queue (architecture, section 3)."""
        self._in_trigger = True
        try:
            barrier()
        finally:
            self._in_trigger = False
            if self._inbox:
                self._wakeup.set()

    def _acknowledged(self, acknowledgement: Acknowledgement) -> None:
        found = self._running.get(acknowledgement.checkpoint_id)
        if found is None:
            return  # its files were, or will be, removed with the checkpoint
        pending, _ = found
        outcome = pending.acknowledge(acknowledgement)
        if isinstance(outcome, AllAcknowledged):
            self._disk.complete(partial(self._complete, pending, outcome))

    def _declined(
        self, subtask: SubtaskId, checkpoint_id: int, reason: FailureReason, detail: str
    ) -> None:
        found = self._running.get(checkpoint_id)
        if found is not None:
            pending, _ = found
            ended = pending.decline(subtask, self._facts.attempt, reason, detail)
            if isinstance(ended, Ended):
                self._fail(pending, ended)

    def _fail(self, pending: PendingCheckpoint, ended: Ended) -> None:
        """End a checkpoint without completing it (rule P31)."""
        n = pending.checkpoint_id
        _, decision = self._running.pop(n)
        self._bases.ended(n)
        self._tasks.cancel(n)
        if self._storage is not None:
            self._disk.call(partial(self._storage.discard, n))
        self._triggers.ended(decision, self._clock.monotonic(), completed=False)
        statistics = CheckpointStatistics.of(pending)
        self._keep_in_history(statistics)
        self._event(
            events.CheckpointFailed, n, ended.reason.name, ended.detail, statistics.as_dict()
        )
        text = f"checkpoint {n} failed: {ended.reason.message}"
        text = f"{text} ({ended.detail})" if ended.detail else text
        _logger.warning("job %s: %s", self._facts.job, text)
        self._requests.failed(decision.requests, CheckpointFailed(text))
        if self._failures.failed(ended.reason):
            self._failure = JobFailed(
                f"{text}; more checkpoints in a row have failed than tolerable_failures="
                f"{self._settings.tolerable_failures if self._settings else None}"
            )
        self._wakeup.set()

    def _keep_in_history(self, statistics: CheckpointStatistics) -> None:
        if self._storage is not None:
            self._disk.call(partial(self._storage.append_history, statistics.as_dict()))

    def _event(self, kind: Callable[..., events.Event], *values: Any) -> None:
        self._log.record(kind(self._clock.wall_ms(), *values))

    # ---- the disk

    async def run_disk(self) -> None:
        """Complete checkpoints and tidy up, until cancelled. Raises Fenced."""
        await self._disk.run()

    async def _complete(self, pending: PendingCheckpoint, all_in: AllAcknowledged) -> None:
        if pending.state is not PendingState.COMPLETING:
            return
        if self._storage is not None:
            manifest = self._manifest(pending, all_in)
            try:
                with self._pinned(self._storage, pending.checkpoint_id):
                    await in_thread(self._storage.complete, manifest)
            except Fenced:
                pending.end(FailureReason.FENCED)
                raise
            except StorageError as error:
                ended = pending.end(FailureReason.STORAGE_ERROR, str(error))
                assert not isinstance(ended, Ignored)
                self._fail(pending, ended)
                return
        self._completed(pending)

    @contextmanager
    def _pinned(self, storage: CheckpointStorage, checkpoint_id: int) -> Iterator[None]:
        """Keep a checkpoint for the savepoints that are to be copied from it: they unpin it, unless
        they do not learn of it, since it did not complete or the attempt ends meanwhile."""
        _, decision = self._running[checkpoint_id]
        wishes = self._requests.wishes(decision.requests)
        savepoints = range(sum(wish.savepoint for wish in wishes))
        for _ in savepoints:
            storage.pin(checkpoint_id)
        try:
            yield
        except BaseException:  # a cancellation, too
            for _ in savepoints:
                storage.unpin(checkpoint_id)
            raise

    def _manifest(self, pending: PendingCheckpoint, all_in: AllAcknowledged) -> Manifest:
        facts = self._facts
        now = self._clock.monotonic()
        return Manifest(
            job=facts.job,
            checkpoint_id=pending.checkpoint_id,
            attempt=facts.attempt,
            mode=pending.mode,
            triggered_at=pending.triggered_ms,
            completed_at=self._clock.wall_ms(),
            max_parallelism=facts.max_parallelism,
            tasks=facts.tasks,
            acknowledgements=all_in.acknowledgements,
            classes=self._classes(),
            statistics=CheckpointStatistics.of(pending, durable_at=now).as_dict(),
            final=pending.kind == "final",
            fork=facts.fork,
            replaying=pending.replaying,
            life=facts.life,
        )

    def _completed(self, pending: PendingCheckpoint) -> None:
        """The completion is durable: sinks may commit (rule P30)."""
        n = pending.checkpoint_id
        now = self._clock.monotonic()
        pending.completed()
        _, decision = self._running.pop(n)
        self._bases.completed(n)
        self._bases.ended(n)
        self._failures.completed()
        self.last_completed = n
        self._last_completed_at = now
        self._overdue = False
        statistics = CheckpointStatistics.of(pending, durable_at=now)
        if statistics.in_flight_records:
            self._bytes_per_record = statistics.in_flight_bytes / statistics.in_flight_records
        self._modes.observe(
            pending.choice,
            statistics.barrier_delay,
            escalated=pending.escalated_after is not None,
        )
        if decision.kind == "stop" and (count := self._savepoints_to_wait_for(decision)):
            self._undecided_stop = UndecidedStop(decision, count)
        else:
            self._triggers.ended(decision, now, completed=True)
        self._subsume_older(n)
        self._keep_in_history(statistics)
        self._event(events.CheckpointCompleted, n, statistics.as_dict())
        self._tasks.notify_complete(n)
        if self._storage is not None:
            self._disk.call(partial(self._storage.retain, self._limits.retain))
        self._requests.completed(decision.requests, statistics)
        if decision.kind in ("stop", "final") and self._undecided_stop is None:
            self._end_by(decision)
        self._wakeup.set()

    def _savepoints_to_wait_for(self, decision: TriggerNow) -> int:
        return savepoints_to_wait_for(self._requests.wishes(decision.requests))

    def _end_by(self, decision: TriggerNow) -> None:
        """End the job as soon as its sinks have committed what its last checkpoint names."""
        self.outcome = "stopped" if decision.kind == "stop" else "finished"
        # Only with storage: without it, nothing would commit what is left behind.
        if decision.kind == "stop" and self._storage is not None:
            self._commit_deadline = self._clock.monotonic() + COMMIT_TIME
        self._end_if_committed()

    def _subsume_older(self, completed: int) -> None:
        """What an older checkpoint would commit, the newer one names too (rules P10, P30)."""
        older = [pending for n, (pending, _) in self._running.items() if n < completed]
        for pending in older:
            ended = pending.end(FailureReason.SUBSUMED, f"checkpoint {completed}")
            if isinstance(ended, Ended):
                self._fail(pending, ended)

    def _after_end(self) -> None:
        """When nobody does anything more by itself, the final checkpoint is due (rule P33)."""
        if self._tasks.all_ended() and self.outcome is None:
            self._triggers.request_final()
            self._wakeup.set()

    def _end_if_committed(self) -> None:
        if self.outcome is not None and not self._tasks.commits_outstanding():
            self.ended.set()

    async def finish_disk_work(self) -> None:
        """Write what is queued for the disk: the job has ended."""
        await self._disk.finish()

    def close(self, error: Exception) -> None:
        """The attempt is over: nobody will answer the waiting requests, or decide a stop."""
        self._undecided_stop = None
        self._bases.close()
        self._requests.close(error)


async def _wait(event: asyncio.Event, timeout: float | None) -> None:
    """Wait for an event, at most `timeout` seconds."""
    try:
        async with asyncio.timeout(timeout):
            await event.wait()
    except TimeoutError:
        pass
