"""Drains, stops that fail, and lives that begin from savepoints, as plans of a few faults."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

from streamcp.testing.simulation.branches import Branch
from streamcp.testing.simulation.drawing import draw_job
from streamcp.testing.simulation.faults import Fault
from streamcp.testing.simulation.run import Case, RandomJob, run_case
from streamcp.testing.simulation.trace import Trace

_PLAIN = {"timeout": "10m", "tolerable_failures": None, "every": "5ms", "mode": "adaptive"}


def _case(number: int, *plan: Fault, drained: bool = False) -> Case:
    spec = draw_job(random.Random(number))
    spec = replace(spec, settings={**spec.settings, **_PLAIN, "max_concurrent": 1})
    return Case(RandomJob(spec, is_drained=drained), plan, f"schedule {number}")


def _counted(*plan: Fault, drained: bool = False) -> tuple[Counter[str], list[str]]:
    """What happened in some cases, in all of which the invariants held; and all that was traced."""
    counts, lines = Counter[str](), list[str]()
    for number in range(12):
        trace = Trace()
        outcome = run_case(_case(number, *plan, drained=drained), trace)
        assert outcome.failure is None, f"{number}: {outcome.failure}\n{trace}"
        counts += outcome.counts
        lines += trace.lines
    return counts, lines


def _begins(how: str) -> Fault:
    return Fault(1, "step", 0, "begin from savepoint", (how, 0))


def test_job_begins_beside_the_one_that_goes_on_and_both_finish() -> None:
    taken = Fault(0, "step", 150, "savepoint")
    counts, lines = _counted(taken, Fault(0, "step", 400, "crash"), _begins("beside"))
    begun = counts["begun from a savepoint, beside"]
    assert begun > 2
    assert counts["finished"] + counts["already_finished"] >= 12 + begun
    assert any("/checkpoints1" in line for line in lines)


def test_job_goes_back_to_a_savepoint_in_the_same_directory() -> None:
    taken = Fault(0, "step", 150, "savepoint")
    counts, lines = _counted(taken, Fault(0, "step", 400, "crash"), _begins("instead"))
    assert counts["begun from a savepoint, instead"] > 2
    assert not any("/checkpoints1" in line for line in lines)


def test_job_that_was_stopped_with_a_savepoint_begins_from_it() -> None:
    counts, _ = _counted(Fault(0, "step", 150, "stop with savepoint"), _begins("instead"))
    assert counts["stopped"] > 2
    assert counts["begun from a savepoint, instead"] >= counts["stopped"]


def test_life_goes_on_as_ever_where_there_is_no_savepoint_to_begin_from() -> None:
    counts, _ = _counted(Fault(0, "step", 150, "crash"), _begins("beside"))
    assert counts["begun from a savepoint, beside"] == 0
    assert counts["finished"] + counts["already_finished"] == 12


def test_stop_whose_savepoint_fails_does_not_end_the_job() -> None:
    stop = Fault(0, "step", 100, "stop with savepoint")
    counts, lines = _counted(stop, Fault(0, "savepoint", 1, "fail"))
    assert any("savepoint 1: fail" in line for line in lines)
    assert (counts["stopped"], counts["finished"]) == (0, 12)


def test_drained_job_has_put_out_what_it_has_read_and_no_more() -> None:
    counts, lines = _counted(Fault(0, "step", 100, "drain"), drained=True)
    assert (counts["stopped"], counts["finished"]) == (0, 12)
    assert any("drain" in line for line in lines)


def test_output_of_a_drained_job_is_not_that_of_all_its_records() -> None:
    """The check that all were read is a sharper one: it must fail somewhere."""
    cases = (_case(number, Fault(0, "step", 100, "drain")) for number in range(12))
    assert any("I1" in str(run_case(case).failure) for case in cases)


def test_branch_owns_what_its_forks_write_and_what_it_inherits() -> None:
    first: Any = Branch()
    branch = Branch("b2", inherited=frozenset({"random.out.0.1.1"}))
    assert [first.owns(f"random{fork}.out.0.1.1") for fork in ("", "~b2-1")] == [True, False]
    assert [branch.owns(f"random~{branch.fork(7)}.out.0.9.{n}") for n in (1, 2)] == [True, True]
    assert [branch.owns(f"random.out.0.1.{n}") for n in (1, 2)] == [True, False]
    assert not branch.owns("random~b21-1.out.0.1.1")
