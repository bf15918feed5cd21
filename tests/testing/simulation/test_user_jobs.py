"""Users' jobs: their functions fail, and their lives have other parallelisms."""

from __future__ import annotations

import asyncio

import pytest

import streamcp as sc
from streamcp.operators.steps import OnError
from streamcp.testing.simulation.branches import Branch
from streamcp.testing.simulation.faults import Fault
from streamcp.testing.simulation.run import Case, Outcome, run_case
from streamcp.testing.simulation.trace import Trace
from streamcp.testing.simulation.user_jobs import UserJob, learn_output
from streamcp.testing.simulation.world import Life, World


async def slowly(number: int) -> int:
    await asyncio.sleep(0.005)
    return number


def the_job(*, on_error: OnError = "fail", retry: sc.Retry | None = None) -> sc.Job:
    job = sc.Job("numbers")
    numbers = job.source(sc.items(range(30)), name="numbers")
    slow = numbers.map(slowly, name="slowly", on_error=on_error, retry=retry)
    slow.key_by(lambda n: n % 3).count(name="count").sink(sc.discard, name="out")
    return job


def _run(subject: UserJob, *plan: Fault, trace: Trace | None = None) -> Outcome:
    learn_output(subject)
    return run_case(Case(subject, plan, "a schedule"), trace)


@pytest.mark.parametrize("action", ["fail", "lose"])
def test_function_that_fails_restarts_the_job(action: str) -> None:
    outcome = _run(UserJob(the_job), Fault(0, "user", 7, action))  # type: ignore[arg-type]
    assert outcome.failure is None
    assert outcome.counts["JobRestarting"] == 1


def test_job_that_waits_for_minutes_takes_as_few_checkpoints_as_a_short_one() -> None:
    async def wait(number: int) -> int:
        await asyncio.sleep(60)
        return number

    job = sc.Job("numbers")
    numbers = job.source(sc.items(range(30)), name="numbers")
    numbers.map(wait, name="wait").sink(sc.discard, name="out")
    outcome = _run(UserJob(lambda: job), Fault(0, "user", 7, "fail"))
    assert outcome.failure is None
    assert 10 < outcome.counts["CheckpointTriggered"] < 100


def test_function_that_is_called_again_does_not() -> None:
    job = the_job(on_error="drop", retry=sc.Retry(attempts=2))
    outcome = _run(UserJob(lambda: job), Fault(0, "user", 7, "fail"), Fault(0, "user", 8, "fail"))
    assert outcome.failure is None
    assert outcome.counts["JobRestarting"] == 0


def test_job_whose_lives_have_other_parallelisms_has_the_same_output() -> None:
    crash = Fault(0, "completed", 1, "crash")
    outcome = _run(UserJob(the_job), crash, Fault(1, "step", 0, "rescale", 5))
    assert outcome.failure is None
    assert (outcome.counts["crashed"], outcome.counts["rescaled"]) == (1, 1)


@pytest.mark.parametrize(("rescale", "parallelisms"), [(True, {1, 2, 3, 4}), (False, {None})])
def test_lives_have_other_parallelisms_unless_that_is_switched_off(
    rescale: bool, parallelisms: set[int | None]
) -> None:
    job, world = the_job(), World("a schedule")
    drawn = set()
    for seed in range(20):
        life = Life(world, 0, (Fault(0, "step", 0, "rescale", seed),), Branch())
        made, _ = UserJob(lambda: job, rescale=rescale).build(life)
        drawn.add(next(node.parallelism for node in made.graph.nodes if node.name == "count"))
    world.close()
    assert drawn == parallelisms
    assert all(node.parallelism in (None, 1) for node in job.graph.nodes), "that of the user"


def test_job_begins_from_a_savepoint_beside_itself() -> None:
    plan = (
        Fault(0, "step", 60, "savepoint"),
        Fault(1, "step", 0, "begin from savepoint", ("beside", 0)),
    )
    outcome = _run(UserJob(the_job), *plan)
    assert outcome.failure is None
    assert outcome.counts["begun from a savepoint, beside"] == 1
