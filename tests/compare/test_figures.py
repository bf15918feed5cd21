"""The figures per mode are over the completed checkpoints, and no wrong output gets through."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson
import pytest

from streamcp.checkpoint.statistics import CheckpointStatistics, Figure
from streamcp.compare.experiment import Experiment
from streamcp.compare.figures import Comparison, Recovery, caught_up, compare, keeps_up
from streamcp.compare.messages import Checkpoint, Ended, FirstOutput, Running, Sample
from streamcp.compare.runs import KilledRun, Life, MeasuredRun

RIGHT = Counter({b"1-out: a": 2, b"1-out: b": 1})


def statistics(number: int, **figures: Any) -> Checkpoint:
    values: dict[str, Any] = {"checkpoint_id": number, "outcome": "completed"} | figures
    return Checkpoint(0.0, CheckpointStatistics(**values).as_dict())


def ended(*checkpoints: Checkpoint, seconds: float = 10.0, records: int = 100) -> Life:
    samples = [Sample(0.5, 50, 20, 30), Sample(1.0, 100, 100, 0)]
    return Life(
        running=Running(None, 0.1, 0),
        samples=samples,
        checkpoints=list(checkpoints),
        ended=Ended(seconds, {"rows": records}),
    )


def restored() -> Life:
    life = Life(ended=Ended(5.0, {"rows": 100}))
    life.add(1.5, Running(2, 0.25, 30))
    life.add(1.75, FirstOutput(0.25))
    return life


def experiment_with(
    first: Life,
    second: Life,
    *,
    output: Counter[bytes] | None = RIGHT,
    again: Counter[bytes] | None = RIGHT,
) -> Experiment:
    """Two undisturbed runs; the second wrote `again`. The killed one wrote `output`."""
    return Experiment(
        [MeasuredRun("unaligned", first, RIGHT), MeasuredRun("unaligned", second, again)],
        [KilledRun("unaligned", Life(killed=4.0), restored(), output)],
    )


def compared(experiment: Experiment) -> Comparison:
    return compare(experiment, ["unaligned"])


def test_figures_are_over_the_completed_checkpoints_of_both_runs() -> None:
    first = ended(
        statistics(1, barrier_delay=0.1, durable_delay=0.2, state_bytes=10, in_flight_bytes=5),
        statistics(2, outcome="failed", failure="EXPIRED", barrier_delay=9.0),
        statistics(3, kind="final", barrier_delay=7.0),
    )
    second = ended(
        statistics(1, mode="unaligned", barrier_delay=0.3, durable_delay=0.4, in_flight_bytes=7),
        statistics(2, barrier_delay=0.5, durable_delay=0.6, escalated_after=0.1),
        seconds=30.0,
    )

    (mode,) = compared(experiment_with(first, second)).modes

    assert (mode.completed, mode.failed, mode.failures) == (3, 1, {"EXPIRED": 1})
    assert (mode.unaligned, mode.escalated) == (1, 1)
    assert mode.barrier_delay == Figure(0.3, 0.5)
    assert mode.durable_delay == Figure(0.4, 0.6)
    assert mode.snapshot_bytes == Figure(7, 15)
    assert mode.queued == Figure(0, 30)
    assert mode.records_per_second == 200 / 40.0


def test_mode_whose_checkpoints_never_complete_has_no_delays() -> None:
    failed = ended(statistics(1, outcome="failed", failure="EXPIRED"))

    (mode,) = compared(experiment_with(failed, failed)).modes

    assert (mode.completed, mode.failed) == (0, 2)
    assert mode.barrier_delay is None
    assert mode.durable_delay is None
    assert orjson.loads(orjson.dumps(mode.as_dict()))["failures"] == {"EXPIRED": 2}


def test_recovery_is_told_by_the_new_process() -> None:
    (mode,) = compared(experiment_with(ended(), ended())).modes

    recovery = mode.recovery
    assert (recovery.killed_after, recovery.checkpoint, recovery.replayed) == (4.0, 2, 30)
    assert (recovery.restore, recovery.first_output, recovery.back) == (0.25, 0.25, 1.75)


def test_equal_outputs_are_right() -> None:
    comparison = compared(experiment_with(ended(), ended()))

    assert comparison.is_right
    assert comparison.modes[0].verdict.answer == "equal"
    assert comparison.modes[0].verdict.lines == 3


@pytest.mark.parametrize(
    ("output", "missing", "extra"),
    [
        (Counter({b"1-out: a": 1, b"1-out: b": 1}), 1, 0),
        (Counter({b"1-out: a": 3, b"1-out: b": 1}), 0, 1),
        (Counter({b"1-out: a": 2, b"1-out: c": 1}), 1, 1),
        (Counter(), 3, 0),
    ],
)
def test_other_output_after_the_kill_is_unequal(
    output: Counter[bytes], missing: int, extra: int
) -> None:
    comparison = compared(experiment_with(ended(), ended(), output=output))

    verdict = comparison.modes[0].verdict
    assert verdict.answer == "unequal"
    assert (verdict.difference.missing, verdict.difference.extra) == (missing, extra)
    assert not comparison.is_right


def test_undisturbed_runs_that_differ_are_not_right() -> None:
    comparison = compared(experiment_with(ended(), ended(), again=Counter({b"1-out: a": 3})))

    assert comparison.undisturbed.answer == "unequal"
    assert not comparison.is_right


def test_run_that_did_not_end_is_not_right() -> None:
    cut_off = Life(samples=[Sample(1.0, 1, 1, 0)], error="cut off after 9 s")

    comparison = compared(experiment_with(ended(), cut_off, again=None))

    assert comparison.modes[0].errors == ("cut off after 9 s",)
    assert comparison.undisturbed.answer == "unknown"
    assert comparison.modes[0].records_per_second == 10.0
    assert not comparison.is_right


def test_killed_run_that_did_not_end_is_not_right() -> None:
    comparison = compared(experiment_with(ended(), ended(), output=None))

    assert comparison.modes[0].verdict.answer == "unknown"
    assert not comparison.is_right


def test_job_that_ended_before_the_kill_is_not_right() -> None:
    experiment = experiment_with(ended(), ended())
    experiment.killed[:] = [KilledRun("unaligned", ended(), None, RIGHT)]

    comparison = compared(experiment)

    assert "before it could be killed" in (comparison.modes[0].recovery.error or "")
    assert not comparison.is_right


def test_job_without_output_proves_nothing() -> None:
    nothing: Counter[bytes] = Counter()
    experiment = Experiment(
        [MeasuredRun("unaligned", ended(), nothing)] * 2,
        [KilledRun("unaligned", Life(killed=4.0), restored(), nothing)],
    )

    comparison = compared(experiment)

    assert comparison.modes[0].verdict.answer == "unknown"
    assert not comparison.is_right


def backlog(*values: int) -> list[Sample]:
    """Four samples a second, at a hundred records a second."""
    return [
        Sample(n / 4, 25 * n, 0, value // 2, value - value // 2) for n, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("samples", "kept_up"),
    [
        (backlog(*[20] * 40), True),
        (backlog(*range(0, 200, 5)), False),
        # A checkpoint held everything up, and that was worked off.
        (backlog(*[5] * 25, *range(10, 110, 10), 60, 20, 5, 5, 5), True),
        # It piled up early, and never was worked off.
        (backlog(*[400] * 40), False),
        # Too short to tell.
        (backlog(0, 50, 100), True),
        ([], True),
    ],
)
def test_load_is_taken_if_the_least_that_waits_does_not_grow(
    samples: list[Sample], kept_up: bool
) -> None:
    assert keeps_up(samples, 100.0) is kept_up


def test_killed_job_has_caught_up_when_it_has_given_out_what_it_had_before() -> None:
    before = Life(samples=[Sample(1.0, 70, 0, 0)])
    after = Life(samples=[Sample(0.0, 40, 0, 0), Sample(1.0, 60, 0, 0), Sample(2.0, 80, 0, 0)])

    assert caught_up(before, after) == 1.5
    assert caught_up(before, Life(samples=[Sample(0.25, 70, 0, 0)])) == 0.25
    assert caught_up(before, Life(samples=after.samples[:2])) is None
    assert caught_up(before, Life(ended=Ended(3.0, {"rows": 70}))) == 3.0


def test_steps_of_a_recovery_follow_one_another() -> None:
    recovery = Recovery(started=1.5, restore=0.5, first_output=0.25, caught_up=2.25)

    assert recovery.steps == (1.0, 0.5, 0.25, 2.0)
    assert Recovery().steps == (None, None, None, None)


def test_comparison_without_kills_is_right_if_its_outputs_are_equal() -> None:
    experiment = Experiment([MeasuredRun("unaligned", ended(), RIGHT)] * 2)

    assert compared(experiment).is_right
    assert compared(experiment).modes[0].verdict.answer == "not asked"

    experiment.measured[1] = MeasuredRun("unaligned", ended(), Counter({b"1-out: c": 1}))
    assert not compared(experiment).is_right
