"""How many failed checkpoints in a row a job bears (rule P31)."""

from __future__ import annotations

import pytest

from streamcp.checkpoint.failure_reason import FailureCounter, FailureReason


def test_one_more_than_tolerable_fails_the_job() -> None:
    counter = FailureCounter(2)
    assert [counter.failed(FailureReason.EXPIRED) for _ in range(3)] == [False, False, True]


def test_none_tolerable_fails_at_the_first() -> None:
    assert FailureCounter(0).failed(FailureReason.DECLINED)


def test_any_number_is_borne_without_a_limit() -> None:
    counter = FailureCounter(None)
    assert not any(counter.failed(FailureReason.STORAGE_ERROR) for _ in range(1000))
    assert counter.in_a_row == 1000


def test_completion_begins_anew() -> None:
    counter = FailureCounter(1)
    counter.failed(FailureReason.EXPIRED)
    counter.completed()
    assert not counter.failed(FailureReason.EXPIRED)
    assert counter.failed(FailureReason.EXPIRED)


@pytest.mark.parametrize(
    "reason",
    [
        FailureReason.STOPPED,
        FailureReason.SUBSUMED,
        FailureReason.ABORTED_BY_NEWER,
        FailureReason.JOB_FAILED,
        FailureReason.FENCED,
    ],
)
def test_what_the_job_brought_about_does_not_count(reason: FailureReason) -> None:
    counter = FailureCounter(0)
    assert not counter.failed(reason)
    assert counter.in_a_row == 0


def test_every_reason_has_a_message_of_its_own() -> None:
    # Members of one value would be aliases of each other and lose their name in the history.
    assert len({reason.message for reason in FailureReason}) == len(FailureReason.__members__)
