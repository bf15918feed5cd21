"""One case: a job, a plan of faults and a schedule, run life after life to its end.

Everything follows from the case. `run_seed` is all that a script needs to look for a bug.
"""

from __future__ import annotations

import gc
import logging
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

from streamcp.api.jobs import Job
from streamcp.config import JobSettings
from streamcp.runners.life import JobLife
from streamcp.testing.loop import WaitsForever
from streamcp.testing.simulation import invariants
from streamcp.testing.simulation.branches import Branch, begin, existing
from streamcp.testing.simulation.drawing import THEMES, draw_job
from streamcp.testing.simulation.faults import Plan, beginnings, draw_plan, last_life
from streamcp.testing.simulation.invariants import Violation
from streamcp.testing.simulation.jobs import (
    JobSpec,
    build,
    journaled,
    may_be_timed,
    rescaled,
    with_parallelism_1,
)
from streamcp.testing.simulation.loop import StepLimit
from streamcp.testing.simulation.output import Output
from streamcp.testing.simulation.process import Ended, Process, settings_of
from streamcp.testing.simulation.trace import Trace
from streamcp.testing.simulation.world import Life, World

# Cycles are collected between runs only: when a collection comes would depend on the past.
_RUNS_PER_COLLECTION = 50


class Subject(Protocol):
    """A job that is simulated. After `step_limit` callbacks, or `longest` virtual seconds, it goes
    round in circles."""

    step_limit: ClassVar[int]
    longest: ClassVar[float]

    def build(self, life: Life) -> tuple[Job, JobSettings]:
        """Make the job of one life."""
        ...

    def check_running(self, job: JobLife) -> None:
        """Raise Violation if something that must always hold does not."""
        ...

    def check_output(self, output: Output) -> None:
        """Raise Violation if the output of the finished job is not what it should be."""
        ...


@dataclass(frozen=True)
class RandomJob:
    """A drawn job, compared with a computation in plain Python.

    `is_rescaled` says that lives may have other parallelisms than those drawn, `is_drained` that
    it may have been finished before its sources had given out everything."""

    # No drawn job needs a fifth of either.
    step_limit: ClassVar[int] = 100_000
    longest: ClassVar[float] = 7200.0

    spec: JobSpec
    is_rescaled: bool = False
    is_drained: bool = False

    def __str__(self) -> str:
        """Its steps."""
        return str(self.spec)

    def build(self, life: Life) -> tuple[Job, JobSettings]:
        """Make the job of one life."""
        seed = life.rescaling
        job = build(self.spec if seed is None else rescaled(self.spec, seed), life)
        return job, settings_of(job)

    def check_running(self, job: JobLife) -> None:
        """I6."""
        invariants.check_queues(self.spec, job)

    def check_output(self, output: Output) -> None:
        """I1 to I3; what every subtask tells must come, where their number changes, from one.

        What a drained job has read is what its last checkpoint says: a later run would read on
        from there."""
        spec = with_parallelism_1(self.spec) if self.is_rescaled else self.spec
        invariants.check_output(spec, output, output.positions() if self.is_drained else None)


@dataclass(frozen=True)
class Case:
    """What a seed stands for: a job, what goes wrong, and the name of a schedule."""

    job: Subject
    plan: Plan
    schedule: str

    def __str__(self) -> str:
        """The job, the plan and the schedule, a line per thing."""
        return "\n".join([str(self.job), *map(str, self.plan), self.schedule])


@dataclass
class Outcome:
    """How a case ended. `failure` says which invariant broke; None if all held.

    `counts` has what happened: how lives ended, events of the job by their name, and so on.
    `seconds` is how much virtual time it took."""

    failure: str | None = None
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)


def draw_case(seed: int) -> Case:
    """Draw a random job and a plan."""
    rnd = random.Random(f"case {seed}")
    theme = rnd.choice(THEMES)
    job, plan = draw_job(rnd, theme), draw_plan(rnd, theme.plan)
    incremental, timed = rnd.random() < 0.5, rnd.random() < 0.3 and may_be_timed(job)
    job = replace(job, settings={**job.settings, "incremental": incremental, "timed": timed})
    job = journaled(job) if rnd.random() < 0.3 else job
    return Case(_random_job(job, plan), plan, f"schedule {seed}")


def _random_job(spec: JobSpec, plan: Plan) -> RandomJob:
    actions = {fault.action for fault in plan}
    return RandomJob(spec, "rescale" in actions, "drain" in actions)


def run_seed(seed: int, trace: Trace | None = None) -> Outcome:
    """Run the random job of a seed; fills `trace` if there is one."""
    return run_case(draw_case(seed), trace)


def run_case(case: Case, trace: Trace | None = None) -> Outcome:
    """Run a case to its end and check the invariants. Never raises for what the job does."""
    outcome = Outcome()
    world = World(case.schedule, trace=trace, step_limit=case.job.step_limit)
    with _undisturbed():
        try:
            world.loop.run_until_complete(_Run(case, world, outcome.counts).run())
        except (Violation, WaitsForever, StepLimit) as error:
            outcome.failure = f"{type(error).__name__}: {error}"
        finally:
            outcome.seconds = world.clock.now
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
        self._undisturbed = last_life(case.plan) + 1
        self._beginnings = beginnings(case.plan)
        self._branch = Branch()
        self._left: list[Branch] = []
        world.savepoints.begun_from = bool(self._beginnings)

    async def run(self) -> None:
        """Run until every job has finished, at the latest in a life without faults."""
        number, error = 0, ""
        while number <= self._undisturbed:
            self._begin_from_savepoint(number)
            ended = await self._live(number)
            error = "" if ended.finished else str(ended.error or ended.how)
            number = self._next_life(number) if ended.finished else number + 1
        for later, branch in enumerate(self._left):
            self._branch = branch
            ended = await self._live(number + later)
            error = error or ("" if ended.finished else str(ended.error or ended.how))
        if error:
            raise Violation(f"the job does not finish undisturbed: {error}")

    def _next_life(self, number: int) -> int:
        """Behind a life that has finished the job: one that begins from a savepoint, if any."""
        later = min((life for life in self._beginnings if life > number), default=None)
        if later is None or not existing(self.world.outside.files):
            return self._undisturbed + 1
        return later

    def _begin_from_savepoint(self, number: int) -> None:
        beginning, files = self._beginnings.get(number), self.world.outside.files
        if beginning is None:
            return
        branch = begin(beginning, self._branch, number, files, self.world.savepoints)
        if branch is None:
            return
        self.counts[f"begun from a savepoint, {beginning[0]}"] += 1
        if branch.directory != self._branch.directory:
            self._left.append(self._branch)
        self._branch = branch

    async def _live(self, number: int) -> Ended:
        life = Life(self.world, number, self.case.plan, self._branch)
        self.counts["rescaled"] += life.rescaling is not None
        job, settings = self.case.job.build(life)
        begins = self._begins(job.name)
        process = Process(
            life,
            job,
            replace(settings, **begins),
            self.counts,
            # Going back a second time would be what it was asked for.
            None if begins.get("fresh") else lambda: self._second_copy(number),
        )
        self.world.loop.look = lambda: self._look(process.job)
        ended = await process.run()
        self.counts[ended.how] += 1
        self.counts["answers found"] += life.found_answers
        life.say("life", f"{ended.how} {ended.error or ''}")
        self._check_life(life, job.name)
        if ended.finished:
            self.case.job.check_output(Output(self.world.outside, self._branch, job.name))
        return ended

    def _look(self, job: JobLife) -> None:
        if self.world.clock.now > self.case.job.longest:
            raise StepLimit(f"no end after {self.case.job.longest / 3600:g} hours")
        self.case.job.check_running(job)

    def _begins(self, job: str) -> dict[str, Any]:
        """What the start is told about the savepoint of its branch, if there is one."""
        if self._branch.origin is None:
            return {}
        view = self._branch.log(self.world.outside.files, job)
        if not self._branch.must_begin(view):
            return {}
        return {"restore": self._branch.origin, "fresh": self._branch.goes_back(view)}

    def _check_life(self, life: Life, job: str) -> None:
        invariants.check_nothing_left(life)
        if life.violations:
            raise Violation(life.violations[0])
        life.end()
        if life.survived is not None:
            self.world.outside = life.survived
        elif life.number >= self._undisturbed:
            invariants.check_files(life, job)
        invariants.check_savepoints(self.world)

    def _second_copy(self, number: int) -> Process:
        self.counts["taken over"] += 1
        life = Life(self.world, number, (), self._branch, beside=True)
        job, settings = self.case.job.build(life)
        settings = replace(settings, take_over=True, **self._begins(job.name))
        return Process(life, job, settings, self.counts)


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
