"""The crash simulator in a test: `simulate(make_job)` fails with the smallest case it can find."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from streamcp.api.jobs import Job
from streamcp.testing.simulation.invariants import Violation
from streamcp.testing.simulation.run import Case, run_case
from streamcp.testing.simulation.shrink import shrink
from streamcp.testing.simulation.trace import Trace
from streamcp.testing.simulation.user_jobs import (
    DEFAULT_LIMIT,
    UserJob,
    draw_user_case,
    learn_output,
)

# What a failing test prints of a trace: its end.
_LINES = 200


def simulate(
    make: Callable[[], Job],
    *,
    seeds: Iterable[int] = range(50),
    limit: int = DEFAULT_LIMIT,
    rescale: bool = True,
) -> None:
    """Run the job that `make` gives under the schedule, crashes and faults of each seed.

    Its sinks record instead of writing, its sources and services are replaced by the fakes that
    `Job(fakes=...)` names; a source without one gives out `limit` records. Every run must have the
    output of an undisturbed run, in any order: exactly for sinks that are exactly once, at least
    for others. A call of a user's function fails now and then, where the job survives that; with
    `rescale` the job goes on under other parallelisms behind some crashes, where its steps allow
    it.

    Raises AssertionError for the first seed that fails, with a small case that fails alike and
    what happened in it; also if the job fails undisturbed. Call it outside of any event loop."""
    subject = UserJob(make, limit=limit, rescale=rescale)
    try:
        learn_output(subject)
    except Violation as error:
        raise AssertionError(str(error)) from error
    for seed in seeds:
        case = draw_user_case(subject, seed)
        failure = run_case(case).failure
        if failure is not None:
            raise AssertionError(f"seed {seed}: {failure}\n{_told(case)}")


def _told(case: Case) -> str:
    smallest = shrink(case, lambda smaller: run_case(smaller).failure is not None)
    trace = Trace()
    run_case(smallest, trace)
    return "\n".join([str(smallest), *trace.lines[-_LINES:]])
