"""Random jobs under random schedules, faults and crashes: I1 to I8.

To replay one seed: SIMULATE=17 pytest tests/testing/simulation/test_simulated_jobs.py; a range is
0-2000. A failure prints the job, the plan and the trace.
"""

from __future__ import annotations

import os
from collections import Counter as Happened
from dataclasses import replace
from typing import get_args

import pytest

from streamcp.testing.simulation.faults import Action, Counter
from streamcp.testing.simulation.jobs import KINDS, JobSpec, is_sound
from streamcp.testing.simulation.kinds_two_inputs import TwoInputs
from streamcp.testing.simulation.run import Case, RandomJob, draw_case, run_case, run_seed
from streamcp.testing.simulation.trace import Trace

_CHUNK = 20
# In CI `streamcp simulate --random-jobs` runs the same seeds, and thousands more.
_SEEDS = "0-19" if os.environ.get("CI") else "0-99"


def _chunks() -> list[range]:
    first, _, last = os.environ.get("SIMULATE", _SEEDS).partition("-")
    start, stop = int(first), int(last or first) + 1
    return [range(at, min(at + _CHUNK, stop)) for at in range(start, stop, _CHUNK)]


@pytest.mark.parametrize("seeds", _chunks(), ids=str)
def test_random_job_under_faults_has_the_output_of_plain_python(seeds: range) -> None:
    for seed in seeds:
        outcome = run_seed(seed)
        if outcome.failure is not None:
            trace = Trace()
            run_seed(seed, trace)
            pytest.fail(f"seed {seed}: {outcome.failure}\n{draw_case(seed)}\n{trace}")


def test_seeds_of_the_suite_see_every_kind_of_thing_happen() -> None:
    """A simulator that crashes nothing finds nothing."""
    wanted = (
        "crashed",
        "cancelled",
        "stopped",
        "CheckpointCompleted",
        "CheckpointFailed",
        "CheckpointEscalated",
        "JobRestarting",
        "JobRestored",
        "restored in-flight records",
    )
    seen = Happened[str]()
    for seed in range(40):
        seen += run_seed(seed).counts
        if all(seen[name] > 0 for name in wanted):
            return
    pytest.fail(f"not all of {wanted}: {seen}")


def _drawn(seed: int) -> JobSpec:
    job = draw_case(seed).job
    assert isinstance(job, RandomJob)
    return job.spec


def test_seeds_of_the_suite_draw_every_kind_of_step() -> None:
    drawn = {step.kind for seed in range(300) for step in _drawn(seed).steps}
    assert drawn >= {*KINDS}


def test_seeds_of_the_suite_draw_every_kind_of_fault() -> None:
    faults = [fault for seed in range(300) for fault in draw_case(seed).plan]
    assert {fault.action for fault in faults} == {*get_args(Action)}
    assert {fault.counter for fault in faults} == {*get_args(Counter)}


def test_drawn_jobs_are_sound_and_say_which_input_is_the_second() -> None:
    for seed in range(300):
        job = _drawn(seed)
        assert is_sound(job), job
        for step in job.steps:
            assert bool(step.second) == isinstance(KINDS.get(step.kind), TwoInputs)
            assert ("input 2 behind" in str(step)) == bool(step.second)


def test_job_whose_checkpoints_expire_for_ever_gets_a_longer_timeout() -> None:
    """It would not end otherwise: it cannot finish without a final checkpoint."""
    impossible = {"timeout": "0.1ms", "tolerable_failures": None, "every": "1ms"}
    drawn = _drawn(2)
    case = Case(
        RandomJob(replace(drawn, settings={**drawn.settings, **impossible})), (), "schedule 0"
    )
    outcome = run_case(case)
    assert outcome.failure is None
    assert (outcome.counts["given time"], outcome.counts["finished"]) == (1, 1)
    assert outcome.counts["CheckpointFailed"] >= 20
