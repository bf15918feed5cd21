"""Shrinking, with failures that are plain questions about the case: nothing is run."""

from __future__ import annotations

import pytest

from streamcp.testing.simulation.jobs import KINDS, is_sound
from streamcp.testing.simulation.kinds_two_inputs import TwoInputs
from streamcp.testing.simulation.run import Case, RandomJob, draw_case
from streamcp.testing.simulation.shrink import shrink


def _kinds(case: Case) -> list[str]:
    assert isinstance(case.job, RandomJob)
    return [step.kind for step in case.job.spec.steps]


@pytest.mark.parametrize("kind", ["keyed_async", "branch", "async_map"])
def test_case_shrinks_to_the_step_and_the_fault_that_matter(kind: str) -> None:
    def fails(case: Case) -> bool:
        return kind in _kinds(case) and any(fault.action == "crash" for fault in case.plan)

    case = next(case for case in map(draw_case, range(500)) if fails(case) and len(case.plan) > 3)
    smallest = shrink(case, fails, budget=3000)
    assert fails(smallest)
    assert [fault.action for fault in smallest.plan] == ["crash"]
    kinds = _kinds(smallest)
    assert kinds.count(kind) == 1
    assert len(kinds) == 3  # a source, the step, a sink


def test_every_candidate_is_a_sound_job() -> None:
    seen: list[Case] = []

    def look(case: Case) -> bool:
        seen.append(case)
        return len(seen) % 3 == 0

    for seed in range(10):
        shrink(draw_case(seed), look, budget=150)
    jobs = [case.job for case in seen if isinstance(case.job, RandomJob)]
    assert len(jobs) > 100
    assert all(is_sound(job.spec) for job in jobs)


def test_no_more_runs_than_the_budget() -> None:
    runs: list[Case] = []

    def fails(case: Case) -> bool:
        runs.append(case)
        return True

    shrink(draw_case(1), fails, budget=7)
    assert len(runs) == 7


def test_no_candidate_has_a_step_that_lost_one_of_its_two_inputs() -> None:
    def of_two_inputs(case: Case) -> bool:
        return any(kind in _kinds(case) for kind in ("connect", "broadcast", "keyed_broadcast"))

    seen: list[Case] = []

    def look(case: Case) -> bool:
        seen.append(case)
        return len(seen) % 5 == 0

    for case in filter(of_two_inputs, map(draw_case, range(60))):
        shrink(case, look, budget=100)
    steps = [
        step
        for case in seen
        if isinstance(case.job, RandomJob)
        for step in case.job.spec.steps
        if step.kind in KINDS
    ]
    assert len(steps) > 1000
    for step in steps:
        assert step.inputs
        assert bool(step.second) == isinstance(KINDS[step.kind], TwoInputs), step
