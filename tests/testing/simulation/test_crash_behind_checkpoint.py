"""Crashes behind the n-th completed checkpoint: then all that is wrong in it shows."""

from __future__ import annotations

import random
from dataclasses import replace

from streamcp.testing.simulation.drawing import draw_job
from streamcp.testing.simulation.faults import Fault
from streamcp.testing.simulation.run import Case, RandomJob, run_case
from streamcp.testing.simulation.trace import Trace


def _case(number: int) -> Case:
    spec = draw_job(random.Random(number))
    # The final checkpoint is one at least.
    job = RandomJob(replace(spec, settings={**spec.settings, "timeout": "10m"}))
    return Case(job, (Fault(0, "completed", 1, "crash"),), f"schedule {number}")


def test_crash_comes_with_the_completion_and_the_next_life_begins_from_it() -> None:
    trace = Trace()
    outcome = run_case(_case(1), trace)
    assert outcome.failure is None
    assert outcome.counts["crashed"] == 1
    at = next(i for i, line in enumerate(trace.lines) if "completed 1: crash" in line)
    assert "CheckpointCompleted" in trace.lines[at - 1]
    assert any("JobRestored" in line or "already_finished" in line for line in trace.lines[at:])
