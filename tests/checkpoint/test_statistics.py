"""The figures of a checkpoint and of a history (protocol, section 11)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.checkpoint.failure_reason import FailureReason
from streamcp.checkpoint.mode_policy import ModeChoice
from streamcp.checkpoint.pending import PendingCheckpoint
from streamcp.checkpoint.plan import CheckpointPlan
from streamcp.checkpoint.snapshot import Acknowledgement, SubtaskStatistics
from streamcp.checkpoint.statistics import (
    SUMMARIZED,
    CheckpointStatistics,
    CheckpointSummary,
    Figure,
    percentile,
)
from streamcp.identifiers import SubtaskId

A, B, DONE = (SubtaskId(name, 0) for name in ("a", "b", "done"))


def pending() -> PendingCheckpoint:
    return PendingCheckpoint(
        checkpoint_id=7,
        attempt=2,
        kind="requested",
        plan=CheckpointPlan(frozenset({DONE}), frozenset({A, B}), (A,)),
        choice=ModeChoice("aligned", 0.1, "predicted to be fast", 0.02),
        triggered_at=100.0,
        triggered_ms=1_000_000,
        timeout=60.0,
    )


def acknowledge(checkpoint: PendingCheckpoint, subtask: SubtaskId, **figures: Any) -> None:
    statistics = SubtaskStatistics(**figures)
    checkpoint.acknowledge(Acknowledgement(7, 2, subtask, (), statistics))


def completed() -> PendingCheckpoint:
    checkpoint = pending()
    checkpoint.escalate(100.25, "alignment timeout")
    acknowledge(checkpoint, A, alignment=0.5, barrier_delay=0.6, state_bytes=10, sync=0.001)
    acknowledge(checkpoint, B, alignment=0.2, barrier_delay=0.9, state_bytes=5, in_flight_bytes=3)
    checkpoint.completed()
    return checkpoint


def test_durations_are_the_longest_and_sizes_the_sum() -> None:
    figures = CheckpointStatistics.of(completed(), durable_at=101.5)
    assert (figures.alignment, figures.barrier_delay, figures.sync) == (0.5, 0.9, 0.001)
    assert (figures.state_bytes, figures.in_flight_bytes) == (15, 3)
    assert figures.durable_delay == pytest.approx(1.5)


def test_choice_escalation_and_prediction_stand_beside_the_outcome() -> None:
    figures = CheckpointStatistics.of(completed(), durable_at=101.5)
    assert (figures.kind, figures.mode, figures.reason) == (
        "requested",
        "aligned",
        "predicted to be fast",
    )
    assert (figures.prediction, figures.escalated_after, figures.escalated_by) == (
        0.02,
        0.25,
        "alignment timeout",
    )
    assert (figures.outcome, figures.failure) == ("completed", None)
    assert (figures.subtasks, figures.acknowledged, figures.finished) == (2, 2, 1)


def test_failed_checkpoint_tells_reason_and_what_came_in() -> None:
    checkpoint = pending()
    acknowledge(checkpoint, A, start_delay=0.3)
    checkpoint.end(FailureReason.EXPIRED, "nothing from b[0]")
    figures = CheckpointStatistics.of(checkpoint)
    assert (figures.outcome, figures.failure, figures.failure_detail) == (
        "failed",
        "EXPIRED",
        "nothing from b[0]",
    )
    assert (figures.acknowledged, figures.start_delay, figures.durable_delay) == (1, 0.3, None)


def test_running_checkpoint_is_in_progress() -> None:
    assert CheckpointStatistics.of(pending()).outcome == "in_progress"


def test_dictionary_is_plain_json_and_comes_back() -> None:
    figures = CheckpointStatistics.of(completed(), durable_at=101.5)
    read = json.loads(json.dumps(figures.as_dict()))
    assert CheckpointStatistics.from_dict(read) == figures


def test_history_of_another_version_is_read() -> None:
    figures = CheckpointStatistics.from_dict({"checkpoint_id": 3, "colour": "blue"})
    assert figures == CheckpointStatistics(checkpoint_id=3)


def history() -> list[CheckpointStatistics]:
    done = [
        CheckpointStatistics(
            checkpoint_id=n, outcome="completed", triggered_ms=n * 1000, durable_delay=n / 10
        )
        for n in (1, 2, 3, 4)
    ]
    failed = CheckpointStatistics(checkpoint_id=5, outcome="failed", escalated_after=0.1)
    return [*done, failed, CheckpointStatistics(checkpoint_id=6)]


def test_summary_counts_outcomes_and_escalations() -> None:
    summary = CheckpointSummary.of(history(), now_ms=10_000)
    assert (summary.completed, summary.failed, summary.in_progress) == (4, 1, 1)
    assert summary.escalated == 1


def test_summary_distributes_completed_checkpoints_only() -> None:
    summary = CheckpointSummary.of(history(), now_ms=10_000)
    assert summary.figures["durable_delay"] == Figure(p50=0.2, maximum=0.4)
    assert set(summary.figures) == set(SUMMARIZED)


def test_age_counts_from_the_newest_durable_completion() -> None:
    assert CheckpointSummary.of(history(), now_ms=10_000).age_of_last == pytest.approx(5.6)


def test_wall_clock_that_jumped_back_gives_no_negative_age() -> None:
    assert CheckpointSummary.of(history(), now_ms=0).age_of_last == 0.0


def test_empty_history_has_no_figures_and_no_age() -> None:
    summary = CheckpointSummary.of([], now_ms=0)
    assert (summary.completed, summary.figures, summary.age_of_last) == (0, {}, None)


def test_summary_is_plain_json() -> None:
    values = CheckpointSummary.of(history(), now_ms=10_000).as_dict()
    assert json.loads(json.dumps(values))["figures"]["durable_delay"] == {
        "p50": 0.2,
        "maximum": 0.4,
    }


@given(st.lists(st.integers(), min_size=1), st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]))
def test_percentile_is_the_smallest_value_that_covers_the_share(
    values: list[int], share: float
) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)
    below = sum(value < found for value in values)
    assert below == 0 or below < share * len(values)


def test_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        percentile([], 0.5)
