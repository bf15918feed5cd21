"""One case: a drawn job, a plan of faults and a schedule, run life after life to its end.

Everything follows from the seed. `run_seed` is all that a script needs to look for a bug.
"""

from __future__ import annotations

import gc
import logging
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from streamcp.testing.loop import WaitsForever
from streamcp.testing.simulation import invariants
from streamcp.testing.simulation.faults import Plan, draw_plan
from streamcp.testing.simulation.invariants import Violation
from streamcp.testing.simulation.jobs import JobSpec, build, draw_job, rescaled
from streamcp.testing.simulation.loop import StepLimit
from streamcp.testing.simulation.process import Ended, Process, settings_of
from streamcp.testing.simulation.trace import Trace
from streamcp.testing.simulation.world import Life, World

# Cycles are collected between runs only: when a collection comes would depend on the past.
_RUNS_PER_COLLECTION = 50


@dataclass(frozen=True)
class Case:
    """What a seed stands for."""

    job: JobSpec
    plan: Plan
    schedule: str

    def __str__(self) -> str:
        """The job, the plan and the schedule."""
        return "\n".join([str(self.job), *map(str, self.plan), self.schedule])


@dataclass
class Outcome:
    """How a case ended. `failure` says which invariant broke; None if all held.

    `counts` has what happened: lives, crashes, events of the job by their name, and so on."""

    failure: str | None = None
    counts: Counter[str] = field(default_factory=Counter)


def draw_case(seed: int) -> Case:
    """Draw the case of a seed."""
    rnd = random.Random(f"case {seed}")
    return Case(draw_job(rnd), draw_plan(rnd), f"schedule {seed}")


def run_seed(seed: int, trace: Trace | None = None) -> Outcome:
    """Run the case of a seed; fills `trace` if there is one."""
    return run_case(draw_case(seed), trace)


def run_case(case: Case, trace: Trace | None = None) -> Outcome:
    """Run a case to its end and check the invariants. Never raises for what the job does."""
    outcome = Outcome()
    world = World(case.schedule, trace=trace)
    with _undisturbed():
        try:
            world.loop.run_until_complete(_Run(case, world, outcome.counts).run())
        except (Violation, WaitsForever, StepLimit) as error:
            outcome.failure = f"{type(error).__name__}: {error}"
        finally:
            world.close()
    if trace is not None:
        trace.say("end", outcome.failure or "all invariants held")
    return outcome


class _Run:
    """A case, life after life."""

    def __init__(self, case: Case, world: World, counts: Counter[str]) -> None:
        self.case = case
        self.world = world
        self.counts = counts
        self._disturbed = 1 + max((fault.life for fault in case.plan), default=-1)

    async def run(self) -> None:
        """Run until the job has finished, at the latest in a life without faults."""
        for number in range(self._disturbed + 1):
            ended = await self._live(number)
            self.counts[ended.how] += 1
            if ended.how in ("finished", "already_finished"):
                invariants.check_output(self.case.job, self.world.outside)
                return
        error = ended.error
        raise Violation(f"the job does not finish undisturbed: {ended.how}") from error

    async def _live(self, number: int) -> Ended:
        life = Life(self.world, number, self.case.plan)
        job = build(self._job_of(number), life)
        process = Process(life, job, settings_of(job), self.counts)
        self.world.loop.look = lambda: invariants.check_queues(self.case.job, process.job)
        ended = await process.run()
        life.say("life", f"{ended.how} {ended.error or ''}")
        invariants.check_nothing_left(life)
        if life.violations:
            raise Violation(life.violations[0])
        life.end()
        if life.survived is not None:
            self.world.outside = life.survived
        elif number == self._disturbed:
            invariants.check_files(life, job.name)
        return ended

    def _job_of(self, life: int) -> JobSpec:
        for fault in self.case.plan:
            if (fault.life, fault.action) == (life, "rescale"):
                self.counts["rescaled"] += 1
                return rescaled(self.case.job, fault.value)
        return self.case.job


_runs = 0


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No garbage collection and no warnings while a run lasts."""
    global _runs
    _runs += 1
    was_enabled, disabled = gc.isenabled(), logging.root.manager.disable
    gc.disable()
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(disabled)
        if was_enabled:
            gc.enable()
        if _runs % _RUNS_PER_COLLECTION == 0:
            gc.collect()
