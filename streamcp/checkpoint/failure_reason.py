"""Why checkpoints end without being complete, and how many such ends a job bears.

Every end has a named reason (rule P31). Whether it counts against the tolerable failures belongs
to the reason: what the job itself brought about does not count.
"""

from __future__ import annotations

from enum import Enum


class FailureReason(Enum):
    """Why a checkpoint did not complete: its `message`, and whether it `counts` as a failure."""

    DECLINED = ("a subtask declined it", True)
    FREEZE_FAILED = ("its content could not be serialized", True)
    STORAGE_ERROR = ("checkpoint storage could not be written", True)
    EXPIRED = ("it took longer than the checkpoint timeout", True)
    TRIGGER_FAILED = ("it could not be triggered", True)
    STOPPED = ("the job was stopped", False)
    SUBSUMED = ("a newer checkpoint completed first", False)
    ABORTED_BY_NEWER = ("the barrier of a newer checkpoint arrived first", False)
    JOB_FAILED = ("the job failed while it ran", False)
    FENCED = ("another copy of the job has taken over", False)

    def __init__(self, message: str, counts: bool) -> None:
        self.message = message
        self.counts = counts


class FailureCounter:
    """Counts failed checkpoints in a row and says when they are too many (rule P31)."""

    def __init__(self, tolerable: int | None) -> None:
        """Bear `tolerable` failures in a row; None bears any number."""
        self._tolerable = tolerable
        self._in_a_row = 0

    @property
    def in_a_row(self) -> int:
        """Counted failures since the last complete checkpoint."""
        return self._in_a_row

    def completed(self) -> None:
        """Begin anew: a checkpoint has completed."""
        self._in_a_row = 0

    def failed(self, reason: FailureReason) -> bool:
        """Count a failure; True says that the job must fail: there were more than tolerable.

        A reason that does not count changes nothing and returns False."""
        if not reason.counts:
            return False
        self._in_a_row += 1
        return self._tolerable is not None and self._in_a_row > self._tolerable
