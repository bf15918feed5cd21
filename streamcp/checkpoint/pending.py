"""One checkpoint from its trigger to its end, as the coordinator sees it (rules P2, P3, P25, P31).

    COLLECTING --all acknowledged--> COMPLETING --durable, appended--> COMPLETED
        |  decline, expiry, abort        |  storage error, fenced
        +------------> FAILED <----------+

Invariants: nothing leaves COMPLETED or FAILED; there is at most one `AllAcknowledged` and at most
one end. From the last acknowledgement on the outcome is that of storage alone: a checkpoint whose
completion may have been appended must not be called failed for another reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal, TypeAlias

from streamcp.checkpoint.failure_reason import FailureReason
from streamcp.checkpoint.mode_policy import ModeChoice
from streamcp.checkpoint.plan import CheckpointPlan
from streamcp.checkpoint.snapshot import Acknowledgement, SubtaskStatistics
from streamcp.checkpoint.trigger_policy import TriggerKind
from streamcp.elements import CheckpointMode
from streamcp.identifiers import SubtaskId


class PendingState(Enum):
    """How far a checkpoint is."""

    COLLECTING = auto()
    COMPLETING = auto()
    COMPLETED = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class Accepted:
    """The acknowledgement was taken; `missing` others are still to come (one or more)."""

    missing: int


@dataclass(frozen=True, slots=True)
class AllAcknowledged:
    """The last acknowledgement was taken: write the manifest and append the completion.

    `acknowledgements` has one entry per subtask of the plan, in the order of their ids; those that
    were finished at the trigger are `finished`."""

    acknowledgements: tuple[Acknowledgement, ...]


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The subtask has acknowledged before: the first one counts."""


IgnoredBecause: TypeAlias = Literal[
    "another checkpoint", "another attempt", "not in the plan", "all acknowledged", "ended"
]


@dataclass(frozen=True, slots=True)
class Ignored:
    """The message changes nothing. Files that an acknowledgement of an ended checkpoint or of
    another attempt names are to be discarded (rule P31)."""

    because: IgnoredBecause


@dataclass(frozen=True, slots=True)
class Ended:
    """The checkpoint failed just now: cancel it at every subtask, remove its files, count it."""

    reason: FailureReason
    detail: str = ""


class PendingCheckpoint:
    """Collects the acknowledgements of one checkpoint of one attempt and knows its state."""

    def __init__(
        self,
        *,
        checkpoint_id: int,
        attempt: int,
        kind: TriggerKind,
        plan: CheckpointPlan,
        choice: ModeChoice,
        triggered_at: float,
        triggered_ms: int,
        timeout: float,
        replaying: bool = False,
    ) -> None:
        """Begin at the trigger.

        `triggered_at` is monotonic seconds, `triggered_ms` the same moment in milliseconds since
        the epoch, `timeout` the seconds after which it expires; `replaying` as in `Manifest`."""
        self.checkpoint_id = checkpoint_id
        self.attempt = attempt
        self.kind = kind
        self.plan = plan
        self.choice = choice
        self.triggered_at = triggered_at
        self.triggered_ms = triggered_ms
        self.deadline = triggered_at + timeout
        self.replaying = replaying
        self._timeout = timeout
        self._state = PendingState.COLLECTING
        self._acknowledged: dict[SubtaskId, Acknowledgement] = {}
        self._end: Ended | None = None
        self._escalated_after: float | None = None
        self._escalated_by: str | None = None

    def __repr__(self) -> str:
        """Show the state and who is missing."""
        return (
            f"PendingCheckpoint({self.checkpoint_id}, attempt={self.attempt}, "
            f"{self._state.name.lower()}, acknowledged={len(self._acknowledged)}, "
            f"missing={len(self.missing)})"
        )

    @property
    def state(self) -> PendingState:
        """How far it is."""
        return self._state

    @property
    def mode(self) -> CheckpointMode:
        """How its barriers travel now: unaligned from an escalation on."""
        return self.choice.mode if self._escalated_after is None else "unaligned"

    @property
    def missing(self) -> tuple[SubtaskId, ...]:
        """Who has not acknowledged, in order."""
        return tuple(sorted(self.plan.acknowledging - self._acknowledged.keys()))

    @property
    def statistics(self) -> tuple[SubtaskStatistics, ...]:
        """The figures of those that have acknowledged, in the order of their ids."""
        return tuple(self._acknowledged[one].statistics for one in sorted(self._acknowledged))

    @property
    def end_reason(self) -> Ended | None:
        """Why it failed; None if it has not."""
        return self._end

    @property
    def escalated_after(self) -> float | None:
        """Seconds from the trigger to the escalation; None if there was none."""
        return self._escalated_after

    @property
    def escalated_by(self) -> str | None:
        """What caused the escalation; None if there was none."""
        return self._escalated_by

    @property
    def escalation_due(self) -> float | None:
        """When it is to be escalated (monotonic); None if never, or no longer (rule P25)."""
        if self.choice.escalate_after is None or not self._may_escalate():
            return None
        return self.triggered_at + self.choice.escalate_after

    def acknowledge(
        self, acknowledgement: Acknowledgement
    ) -> Accepted | AllAcknowledged | Duplicate | Ignored:
        """Take the acknowledgement of one subtask. Exactly one call returns AllAcknowledged: the
        one with the last missing subtask, if the checkpoint has not ended before."""
        subtask = acknowledgement.subtask
        ignored = self._foreign(acknowledgement.checkpoint_id, acknowledgement.attempt, subtask)
        if ignored is not None:
            return ignored
        if self._state in (PendingState.COMPLETED, PendingState.FAILED):
            return Ignored("ended")
        if subtask in self._acknowledged:
            return Duplicate()
        self._acknowledged[subtask] = acknowledgement
        missing = len(self.plan.acknowledging) - len(self._acknowledged)
        if missing:
            return Accepted(missing)
        self._state = PendingState.COMPLETING
        return AllAcknowledged(
            tuple(self._acknowledged[subtask] for subtask in sorted(self._acknowledged))
        )

    def decline(
        self,
        subtask: SubtaskId,
        attempt: int,
        reason: FailureReason = FailureReason.DECLINED,
        detail: str = "",
    ) -> Ended | Ignored:
        """Take the decline of one subtask: it ends the checkpoint. `detail` says what happened
        there."""
        ignored = self._foreign(self.checkpoint_id, attempt, subtask)
        if ignored is not None:
            return ignored
        return self.end(reason, f"{subtask}: {detail}" if detail else str(subtask))

    def end(self, reason: FailureReason, detail: str = "") -> Ended | Ignored:
        """End it as failed, whatever the mode and whoever has acknowledged (rule P31).

        Ignored if it has ended, and while it is completing unless storage itself says so
        (STORAGE_ERROR, FENCED; SUBSUMED: the log, into which completions go one after the other,
        has a newer one)."""
        if self._state is PendingState.COMPLETING and reason not in _ENDS_OF_STORAGE:
            return Ignored("all acknowledged")
        if self._state in (PendingState.COMPLETED, PendingState.FAILED):
            return Ignored("ended")
        self._state = PendingState.FAILED
        self._end = Ended(reason, detail)
        return self._end

    def expire(self, now: float) -> Ended | None:
        """End it as expired if its deadline has passed and subtasks are missing; else None."""
        if self._state is not PendingState.COLLECTING or now < self.deadline:
            return None
        missing = self.missing
        names = ", ".join(str(subtask) for subtask in missing[:5])
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        detail = f"no acknowledgement within {self._timeout:g} s from {names}{more}"
        ended = self.end(FailureReason.EXPIRED, detail)
        return ended if isinstance(ended, Ended) else None

    def escalate(self, now: float, by: str) -> bool:
        """Go on unaligned from `now` (rule P26); `by` names the cause. True: tell every subtask.

        False, and nothing changed, if it is unaligned already or collects no longer."""
        if not self._may_escalate():
            return False
        self._escalated_after = now - self.triggered_at
        self._escalated_by = by
        return True

    def completed(self) -> None:
        """Tell that its completion has been appended: now sinks may commit (rule P30).

        Raises ValueError if it was not completing."""
        if self._state is not PendingState.COMPLETING:
            raise ValueError(
                f"checkpoint {self.checkpoint_id} is {self._state.name.lower()}: only one that "
                "all subtasks have acknowledged and that has not ended can be completed"
            )
        self._state = PendingState.COMPLETED

    def _may_escalate(self) -> bool:
        return self._state is PendingState.COLLECTING and self.mode == "aligned"

    def _foreign(self, checkpoint_id: int, attempt: int, subtask: SubtaskId) -> Ignored | None:
        if checkpoint_id != self.checkpoint_id:
            return Ignored("another checkpoint")
        if attempt != self.attempt:
            return Ignored("another attempt")
        if subtask not in self.plan.acknowledging:
            return Ignored("not in the plan")
        return None


_ENDS_OF_STORAGE = frozenset(
    {FailureReason.STORAGE_ERROR, FailureReason.FENCED, FailureReason.SUBSUMED}
)
