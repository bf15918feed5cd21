"""What the user holds of a running job, and what is left of it when it has ended."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from streamcp.checkpoint.statistics import CheckpointStatistics
from streamcp.config import MODES, Duration, Mode, seconds
from streamcp.errors import SettingsError, StreamcpError
from streamcp.observability.events import EventLog
from streamcp.runners.reading import StateOfStep
from streamcp.runners.savepoints import Savepoint
from streamcp.runners.view import JobView

if TYPE_CHECKING:
    from streamcp.runners.life import JobLife

Outcome = Literal["finished", "stopped", "already_finished"]


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended.

    - `outcome`: "finished" (all input worked off), "stopped" (on request, after a last
      checkpoint) or "already_finished" (it had finished in an earlier run: nothing was done).
    - `attempts`: how often it was started in this run.
    - `restored_from`: the checkpoint that the first attempt of this run began from, if any.
    - `last_checkpoint`: the newest complete checkpoint.
    - `completed_checkpoints`, `failed_checkpoints`: of this run.
    - `duration`: seconds from start to end.
    - `savepoint`: the directory of the savepoint that it was stopped with, if it was.
    """

    job: str
    outcome: Outcome
    attempts: int
    restored_from: int | None
    last_checkpoint: int | None
    completed_checkpoints: int
    failed_checkpoints: int
    duration: float
    savepoint: Path | None = None


class JobHandle:
    """A running job: made by `job.start()`. Use it in the event loop that runs the job."""

    def __init__(self, life: JobLife, task: asyncio.Task[JobResult]) -> None:
        self._life = life
        self._task = task

    @property
    def events(self) -> EventLog:
        """What has happened, and a way to be told."""
        return self._life.log

    def view(self) -> JobView:
        """Look at the job as it is now: an immutable picture."""
        return self._life.view()

    def state(self, step: str) -> StateOfStep:
        """Look into the state per key of a step: `await running.state("visits").get("ann")`.

        Raises StreamcpError, naming the steps with state per key, if it is none of them."""
        return StateOfStep(self._life, step)

    async def checkpoint(self) -> CheckpointStatistics:
        """Take a checkpoint now, and wait until it is complete; return its figures.

        While another one runs it waits for its turn. Raises CheckpointFailed with the reason, and
        StreamcpError if the job has no `checkpoints=`."""
        self._check_storage()
        return await self._life.request_checkpoint()

    async def savepoint(self, target: str | Path, *, mode: Mode | None = None) -> Savepoint:
        """Take a checkpoint now and copy it into a new directory `target/<job>-<id>/`; return its
        path and figures (rule P4).

        The savepoint is the caller's: retention never removes it, nothing in it refers to files
        elsewhere. `mode`: None for the job's. Requests that wait together share a checkpoint, in
        the most strictly aligned of their modes.
        Raises CheckpointFailed with the reason if the checkpoint or the copy fails, which leaves
        nothing behind; Fenced if another copy of the job has taken over; SettingsError for an
        unknown mode, and StreamcpError if the job has no `checkpoints=`. The job goes on."""
        self._check_storage()
        _check_mode("savepoint", mode)
        return await self._life.take_savepoint(Path(target), mode)

    def _check_storage(self) -> None:
        if not self._life.has_storage:
            raise StreamcpError(
                f"job {self._life.job!r} has no checkpoints; run it with "
                'checkpoints=Checkpoints(to="./checkpoints")'
            )

    def set_mode(self, mode: Mode) -> None:
        """Use another checkpoint mode from the next trigger on, also after restarts.

        Raises SettingsError for an unknown mode, and for one between "at_least_once" and the
        others: a run keeps that promise, or theirs, from its start to its end (rule P28)."""
        _check_mode("set_mode", mode)
        self._life.set_mode(mode)

    def set_interval(self, every: Duration | None) -> None:
        """Use another interval from the next trigger on; None for no periodic checkpoints."""
        self._life.set_interval(None if every is None else seconds(every, setting="every"))

    def set_alignment_timeout(self, timeout: Duration) -> None:
        """Use another alignment timeout from the next trigger on."""
        self._life.set_alignment_timeout(seconds(timeout, setting="alignment_timeout"))

    def set_timeout(self, timeout: Duration) -> None:
        """Give checkpoints another time to complete, from the next trigger on, also after restarts:
        a job whose checkpoints all expire need not be stopped."""
        self._life.set_timeout(seconds(timeout, setting="timeout"))

    async def stop(
        self,
        *,
        drain: bool = False,
        savepoint: str | Path | None = None,
        mode: Mode | None = None,
    ) -> JobResult:
        """Take a last checkpoint, commit what the sinks wrote, and end the job.

        Without `drain` nothing of the end of input happens: a later run goes on where this one
        stopped. With `drain` the job is finished for good: sources stop reading at once, what they
        have read is worked off as at the end of all input, and a final checkpoint follows, tried
        again until one completes. A later run says that the job has finished, unless it is fresh.

        With `savepoint` the last checkpoint is also copied into a new directory in that one, in
        `mode` (None for the job's); no record is processed from the cut on. If it cannot be
        written, CheckpointFailed says so and the job goes on (rule P33). A job that has ended or
        has no checkpoints cannot be stopped so.

        A sink that does not commit within ten seconds is not waited for any longer: the checkpoint
        holds its output, and the next start commits it.
        Raises CheckpointFailed if that checkpoint fails, or if the job fails before and restarts:
        then it goes on, reading, or draining if it was restored from a checkpoint that completed
        since the drain began. Raises SettingsError for options that do not go together. A job that
        has ended already just gives its result."""
        if savepoint is None:
            if mode is not None:
                raise SettingsError(f"stop(mode={mode!r}) is for stop(savepoint=...)")
            return await self._life.stop(self._task, drain=drain)
        if drain:
            raise SettingsError(
                "stop(savepoint=..., drain=True): a drained job is finished, and nothing could go "
                "on from its savepoint; take one by savepoint() first, or leave one of the two out"
            )
        self._check_storage()
        _check_mode("stop", mode)
        return await self._life.stop_with_savepoint(self._task, Path(savepoint), mode)

    async def wait_finished(self) -> JobResult:
        """Wait for the end of the job; raises JobFailed if it fails.

        Cancelling the wait does not end the job."""
        return await asyncio.shield(self._task)


def _check_mode(call: str, mode: Mode | None) -> None:
    if mode is not None and mode not in MODES:
        raise SettingsError(f"{call}({mode!r}): choose one of {', '.join(MODES)}")
