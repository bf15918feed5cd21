"""The figures of one checkpoint and of a history of them (protocol, section 11).

Computed from the acknowledgements and the coordinator's own times; plain JSON values outside.
Durations are seconds; moments are milliseconds since the epoch. The figures of single subtasks
and channels stay in the acknowledgements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeAlias

from streamcp.checkpoint.pending import PendingCheckpoint, PendingState
from streamcp.checkpoint.snapshot import SubtaskStatistics

Outcome: TypeAlias = Literal["in_progress", "completed", "failed"]

_OUTCOMES: Mapping[PendingState, Outcome] = {
    PendingState.COLLECTING: "in_progress",
    PendingState.COMPLETING: "in_progress",
    PendingState.COMPLETED: "completed",
    PendingState.FAILED: "failed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointStatistics:
    """One checkpoint, job-wide.

    Durations are the longest of a subtask, sizes the sum over all. `mode` and `reason` are the
    choice at the trigger; an escalation stands in `escalated_after` and `escalated_by`. Where
    subtasks are missing (failed, in progress) the figures are those of the ones that came.

    - `barrier_delay`: trigger to the last subtask having acted.
    - `durable_delay`: trigger to the completion being durable; None unless completed.
    - `prediction`: the alignment time predicted at the trigger, to be set beside `alignment`.
    - `state_bytes`: written for this checkpoint; `referenced_bytes`: of the sections of earlier
      checkpoints that it builds on.
    - `failure`: name of the FailureReason; `failure_detail` says what happened where.
    """

    checkpoint_id: int
    attempt: int = 0
    kind: str = "periodic"
    mode: str = "aligned"
    reason: str = ""
    triggered_ms: int = 0
    outcome: Outcome = "in_progress"
    failure: str | None = None
    failure_detail: str = ""
    subtasks: int = 0
    acknowledged: int = 0
    finished: int = 0
    prediction: float | None = None
    start_delay: float = 0.0
    alignment: float = 0.0
    sync: float = 0.0
    asynchronous: float = 0.0
    end_to_end: float = 0.0
    barrier_delay: float = 0.0
    durable_delay: float | None = None
    escalated_after: float | None = None
    escalated_by: str | None = None
    state_bytes: int = 0
    referenced_bytes: int = 0
    in_flight_records: int = 0
    in_flight_bytes: int = 0
    records_during_alignment: int = 0

    @classmethod
    def of(
        cls, pending: PendingCheckpoint, *, durable_at: float | None = None
    ) -> CheckpointStatistics:
        """Compute the figures of `pending` as it is now.

        `durable_at` (monotonic) is when its completion was durable."""
        end = pending.end_reason
        return cls(
            checkpoint_id=pending.checkpoint_id,
            attempt=pending.attempt,
            kind=pending.kind,
            mode=pending.choice.mode,
            reason=pending.choice.reason,
            triggered_ms=pending.triggered_ms,
            outcome=_OUTCOMES[pending.state],
            failure=end.reason.name if end else None,
            failure_detail=end.detail if end else "",
            subtasks=len(pending.plan.acknowledging),
            acknowledged=len(pending.statistics),
            finished=len(pending.plan.finished),
            prediction=pending.choice.prediction,
            durable_delay=None if durable_at is None else durable_at - pending.triggered_at,
            escalated_after=pending.escalated_after,
            escalated_by=pending.escalated_by,
            **_job_wide(pending.statistics),
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> CheckpointStatistics:
        """Read what `as_dict` wrote, also of another version: unknown names are left out, missing
        ones get their defaults. Raises TypeError without a checkpoint_id."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})

    def as_dict(self) -> dict[str, Any]:
        """Give the figures as plain JSON values, for the manifest and the history."""
        return {name: getattr(self, name) for name in _FIGURES}


_FIGURES = tuple(field.name for field in fields(CheckpointStatistics))
_LONGEST = ("start_delay", "alignment", "sync", "asynchronous", "end_to_end", "barrier_delay")
_SUMMED = (
    "state_bytes",
    "referenced_bytes",
    "in_flight_records",
    "in_flight_bytes",
    "records_during_alignment",
)


def _job_wide(subtasks: Sequence[SubtaskStatistics]) -> dict[str, Any]:
    longest = {
        name: max((getattr(one, name) for one in subtasks), default=0.0) for name in _LONGEST
    }
    return longest | {name: sum(getattr(one, name) for one in subtasks) for name in _SUMMED}


@dataclass(frozen=True, slots=True)
class Figure:
    """How one figure is distributed over the completed checkpoints of a history."""

    p50: float
    maximum: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSummary:
    """A history in numbers.

    `figures` has, per name of SUMMARIZED, the distribution over the completed checkpoints; it is
    empty if none completed. `age_of_last` is the seconds since the newest completed one became
    durable, None if there is none.
    """

    completed: int
    failed: int
    in_progress: int
    escalated: int
    figures: Mapping[str, Figure]
    age_of_last: float | None

    @classmethod
    def of(cls, history: Iterable[CheckpointStatistics], *, now_ms: int) -> CheckpointSummary:
        """Sum up `history`, in any order."""
        everyone = tuple(history)
        completed = [one for one in everyone if one.outcome == "completed"]
        return cls(
            completed=len(completed),
            failed=sum(one.outcome == "failed" for one in everyone),
            in_progress=sum(one.outcome == "in_progress" for one in everyone),
            escalated=sum(one.escalated_after is not None for one in everyone),
            figures=_figures(completed),
            age_of_last=_age_of_last(completed, now_ms),
        )

    def as_dict(self) -> dict[str, Any]:
        """Give the numbers as plain JSON values."""
        return asdict(self)


SUMMARIZED = (*_LONGEST, "durable_delay", *_SUMMED)
"""The figures that a summary distributes."""


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank: the smallest value that at least `share` (0 to 1) of `values` do not exceed.

    Raises ValueError if there are no values."""
    if not values:
        raise ValueError("a percentile needs at least one value")
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


def _figures(completed: Sequence[CheckpointStatistics]) -> dict[str, Figure]:
    figures = {}
    for name in SUMMARIZED:
        values = [value for one in completed if (value := getattr(one, name)) is not None]
        if values:
            figures[name] = Figure(percentile(values, 0.5), max(values))
    return figures


def _age_of_last(completed: Iterable[CheckpointStatistics], now_ms: int) -> float | None:
    """The wall clock may jump back: an age is never negative."""
    newest = max(completed, key=lambda one: one.checkpoint_id, default=None)
    if newest is None:
        return None
    durable_ms = newest.triggered_ms + (newest.durable_delay or 0.0) * 1000
    return max(now_ms - durable_ms, 0.0) / 1000
