"""One checkpoint from its trigger to its end (rules P2, P3, P25, P26, P31)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.checkpoint.failure_reason import FailureReason
from streamcp.checkpoint.mode_policy import ModeChoice
from streamcp.checkpoint.pending import (
    Accepted,
    AllAcknowledged,
    Duplicate,
    Ended,
    Ignored,
    PendingCheckpoint,
    PendingState,
)
from streamcp.checkpoint.plan import CheckpointPlan
from streamcp.checkpoint.snapshot import Acknowledgement, SubtaskStatistics
from streamcp.identifiers import SubtaskId

A, B, DONE, STRANGER = (SubtaskId(name, 0) for name in ("a", "b", "done", "stranger"))
ALIGNED = ModeChoice("aligned", 0.1, "test")
UNALIGNED = ModeChoice("unaligned", None, "test")


def pending(choice: ModeChoice = ALIGNED) -> PendingCheckpoint:
    return PendingCheckpoint(
        checkpoint_id=7,
        attempt=2,
        kind="periodic",
        plan=CheckpointPlan(frozenset({DONE}), frozenset({A, B}), (A,)),
        choice=choice,
        triggered_at=100.0,
        triggered_ms=1_000_000,
        timeout=60.0,
    )


def acknowledgement(
    subtask: SubtaskId, *, checkpoint_id: int = 7, attempt: int = 2, state_bytes: int = 0
) -> Acknowledgement:
    figures = SubtaskStatistics(state_bytes=state_bytes)
    return Acknowledgement(checkpoint_id, attempt, subtask, (), figures)


def completing() -> PendingCheckpoint:
    checkpoint = pending()
    checkpoint.acknowledge(acknowledgement(A))
    checkpoint.acknowledge(acknowledgement(B))
    return checkpoint


def test_last_acknowledgement_completes_the_collection() -> None:
    checkpoint = pending()
    assert checkpoint.acknowledge(acknowledgement(B)) == Accepted(1)
    assert checkpoint.missing == (A,)
    answer = checkpoint.acknowledge(acknowledgement(A))
    assert isinstance(answer, AllAcknowledged)
    assert [one.subtask for one in answer.acknowledgements] == [A, B]
    assert checkpoint.state is PendingState.COMPLETING


def test_subtask_finished_in_the_plan_contributes_its_final_state() -> None:
    """P7: it acknowledges like the others, and a restored job knows that it had finished."""
    checkpoint = PendingCheckpoint(
        checkpoint_id=7,
        attempt=2,
        kind="final",
        plan=CheckpointPlan(frozenset({DONE}), frozenset({A, DONE}), (A,)),
        choice=ALIGNED,
        triggered_at=100.0,
        triggered_ms=1_000_000,
        timeout=60.0,
    )
    assert checkpoint.acknowledge(replace(acknowledgement(DONE), finished=True)) == Accepted(1)
    answer = checkpoint.acknowledge(acknowledgement(A))
    assert isinstance(answer, AllAcknowledged)
    assert [one.finished for one in answer.acknowledgements] == [False, True]


def test_duplicate_keeps_the_first() -> None:
    """A record acknowledged twice must be harmless (rh-faust#625)."""
    checkpoint = pending()
    checkpoint.acknowledge(acknowledgement(A, state_bytes=1))
    assert checkpoint.acknowledge(acknowledgement(A, state_bytes=2)) == Duplicate()
    assert [one.state_bytes for one in checkpoint.statistics] == [1]


@pytest.mark.parametrize(
    ("message", "because"),
    [
        (acknowledgement(A, attempt=1), "another attempt"),
        (acknowledgement(A, checkpoint_id=6), "another checkpoint"),
        (acknowledgement(STRANGER), "not in the plan"),
        (acknowledgement(DONE), "not in the plan"),
    ],
)
def test_foreign_acknowledgement_is_ignored(message: Acknowledgement, because: str) -> None:
    """One of a replaced execution must not complete anything (jet#2824)."""
    checkpoint = pending()
    answer = checkpoint.acknowledge(message)
    assert isinstance(answer, Ignored)
    assert answer.because == because
    assert checkpoint.missing == (A, B)


def test_decline_ends_it_and_names_the_subtask() -> None:
    checkpoint = pending()
    ended = checkpoint.decline(A, 2, FailureReason.FREEZE_FAILED, "cannot freeze a socket")
    assert ended == Ended(FailureReason.FREEZE_FAILED, "a[0]: cannot freeze a socket")
    assert (checkpoint.state, checkpoint.end_reason) == (PendingState.FAILED, ended)


def test_decline_without_detail_names_the_subtask() -> None:
    assert pending().decline(A, 2) == Ended(FailureReason.DECLINED, "a[0]")


def test_decline_of_an_older_attempt_is_ignored() -> None:
    checkpoint = pending()
    assert checkpoint.decline(A, 1) == Ignored("another attempt")
    assert checkpoint.state is PendingState.COLLECTING


def test_late_messages_of_an_ended_checkpoint_are_ignored() -> None:
    checkpoint = pending()
    checkpoint.acknowledge(acknowledgement(A))
    checkpoint.end(FailureReason.EXPIRED)
    assert checkpoint.acknowledge(acknowledgement(A)) == Ignored("ended")
    assert checkpoint.acknowledge(acknowledgement(B)) == Ignored("ended")
    assert checkpoint.decline(B, 2) == Ignored("ended")
    assert checkpoint.end(FailureReason.STORAGE_ERROR) == Ignored("ended")
    assert checkpoint.end_reason == Ended(FailureReason.EXPIRED)


def test_expiry_names_who_is_missing() -> None:
    checkpoint = pending()
    checkpoint.acknowledge(acknowledgement(A))
    assert checkpoint.deadline == 160.0
    assert checkpoint.expire(159.9) is None
    assert checkpoint.expire(160.0) == Ended(
        FailureReason.EXPIRED, "no acknowledgement within 60 s from b[0]"
    )
    assert checkpoint.expire(161.0) is None


def test_expiry_of_a_wide_job_names_only_some() -> None:
    subtasks = frozenset(SubtaskId("wide", index) for index in range(8))
    checkpoint = PendingCheckpoint(
        checkpoint_id=1,
        attempt=1,
        kind="periodic",
        plan=CheckpointPlan(frozenset(), subtasks, ()),
        choice=ALIGNED,
        triggered_at=0.0,
        triggered_ms=0,
        timeout=1.0,
    )
    ended = checkpoint.expire(2.0)
    assert ended is not None
    assert ended.detail.endswith("wide[3], wide[4] and 3 more")


@pytest.mark.parametrize(
    "reason", [FailureReason.EXPIRED, FailureReason.DECLINED, FailureReason.JOB_FAILED]
)
def test_completing_checkpoint_is_ended_by_storage_only(reason: FailureReason) -> None:
    """Its completion may have been appended: whoever else called it failed might be wrong."""
    checkpoint = completing()
    assert checkpoint.end(reason) == Ignored("all acknowledged")
    assert checkpoint.expire(1e9) is None
    assert checkpoint.end(FailureReason.STORAGE_ERROR, "disk full") == Ended(
        FailureReason.STORAGE_ERROR, "disk full"
    )


def test_completed_checkpoint_cannot_fail() -> None:
    checkpoint = completing()
    checkpoint.completed()
    assert checkpoint.state is PendingState.COMPLETED
    assert checkpoint.end(FailureReason.STORAGE_ERROR) == Ignored("ended")
    assert checkpoint.acknowledge(acknowledgement(A)) == Ignored("ended")


def fail(checkpoint: PendingCheckpoint) -> None:
    checkpoint.end(FailureReason.STORAGE_ERROR)


@pytest.mark.parametrize("before", [PendingCheckpoint.completed, fail])
def test_only_a_completing_checkpoint_completes(
    before: Callable[[PendingCheckpoint], None],
) -> None:
    with pytest.raises(ValueError, match="checkpoint 7 is collecting"):
        pending().completed()
    checkpoint = completing()
    before(checkpoint)
    with pytest.raises(ValueError, match=r"checkpoint 7 is (completed|failed)"):
        checkpoint.completed()


def test_escalation_is_due_from_the_trigger_on() -> None:
    assert pending().escalation_due == pytest.approx(100.1)
    assert pending(UNALIGNED).escalation_due is None
    assert pending(ModeChoice("aligned", None, "test")).escalation_due is None


def test_escalating_turns_it_unaligned_once() -> None:
    checkpoint = pending()
    assert checkpoint.escalate(100.5, "alignment timeout")
    assert checkpoint.mode == "unaligned"
    assert checkpoint.escalated_after == pytest.approx(0.5)
    assert checkpoint.escalated_by == "alignment timeout"
    assert checkpoint.escalation_due is None
    assert not checkpoint.escalate(101.0, "again")
    assert checkpoint.escalated_after == pytest.approx(0.5)


def test_escalating_an_unaligned_one_does_nothing() -> None:
    checkpoint = pending(UNALIGNED)
    assert not checkpoint.escalate(101.0, "alignment timeout")
    assert checkpoint.escalated_after is None


def test_escalating_after_the_last_acknowledgement_does_nothing() -> None:
    checkpoint = completing()
    assert checkpoint.escalation_due is None
    assert not checkpoint.escalate(101.0, "alignment timeout")
    assert checkpoint.mode == "aligned"


def test_repr_tells_the_state_and_who_is_missing() -> None:
    assert repr(pending()) == (
        "PendingCheckpoint(7, attempt=2, collecting, acknowledged=0, missing=2)"
    )


SUBTASKS = tuple(SubtaskId("t", index) for index in range(4))
MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(["acknowledge", "decline", "end", "expire", "escalate"]),
        st.sampled_from(SUBTASKS),
        st.sampled_from([1, 2, 2, 2, 2]),
    ),
    max_size=30,
)


@given(MESSAGES)
def test_any_order_of_messages_has_at_most_one_outcome(
    messages: list[tuple[str, SubtaskId, int]],
) -> None:
    """All acknowledged before anything ended it: exactly one completion; else none."""
    checkpoint = PendingCheckpoint(
        checkpoint_id=7,
        attempt=2,
        kind="periodic",
        plan=CheckpointPlan(frozenset(), frozenset(SUBTASKS), SUBTASKS[:1]),
        choice=ALIGNED,
        triggered_at=0.0,
        triggered_ms=0,
        timeout=10.0,
    )
    acknowledged: set[SubtaskId] = set()
    outcome: str | None = None  # what must have come of it
    outcomes: list[str] = []  # what was told
    for step, (message, subtask, attempt) in enumerate(messages):
        answer: object = None
        if message == "acknowledge":
            answer = checkpoint.acknowledge(acknowledgement(subtask, attempt=attempt))
            if attempt == 2 and outcome is None:
                acknowledged.add(subtask)
                outcome = "all" if acknowledged == set(SUBTASKS) else None
        elif message == "decline":
            answer = checkpoint.decline(subtask, attempt)
            outcome = outcome or ("ended" if attempt == 2 else None)
        elif message == "end":
            answer = checkpoint.end(FailureReason.ABORTED_BY_NEWER)
            outcome = outcome or "ended"
        elif message == "expire":
            answer = checkpoint.expire(float(step))
            outcome = outcome or ("ended" if step >= 10 else None)
        else:
            assert checkpoint.escalate(float(step), "test") <= (outcome is None)
        if isinstance(answer, AllAcknowledged):
            outcomes.append("all")
        elif isinstance(answer, Ended):
            outcomes.append("ended")
    assert outcomes == ([outcome] if outcome else [])
    assert (
        checkpoint.state
        is {
            None: PendingState.COLLECTING,
            "all": PendingState.COMPLETING,
            "ended": PendingState.FAILED,
        }[outcome]
    )
