"""From a failing case to a small one that fails as well.

Whatever can be left out is: faults, steps, records, settings that are not the default. A smaller
job reaches a fault's count at another moment, so a few schedules are tried for each candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from streamcp.testing.simulation.faults import Plan
from streamcp.testing.simulation.jobs import KINDS, JobSpec, is_sound, outputs_of
from streamcp.testing.simulation.kinds import Step
from streamcp.testing.simulation.run import Case, RandomJob

Fails = Callable[[Case], bool]
Output: TypeAlias = tuple[str, str]

# Enough for jobs as they are drawn; a run takes some tens of milliseconds.
BUDGET = 400
_SCHEDULES = 3
_PLAIN = {
    "mode": "aligned",
    "every": None,
    "predict": False,
    "max_in_flight_bytes": None,
    "min_pause": "0s",
    "timeout": "10m",
    "tolerable_failures": None,
    "delay": "0s",
}
_PLAIN_OPTIONS = {"splits": 0, "waits": 0, "wait": "none", "concurrency": 1, "call": 0}


def shrink(case: Case, fails: Fails, *, budget: int = BUDGET) -> Case:
    """Make `case` smaller as long as `fails`, with at most `budget` runs."""
    left = budget
    found = True
    while found and left > 0:
        found = False
        for candidate in _candidates(case):
            left -= 1
            if left < 0:
                break
            if fails(candidate):
                case, found = candidate, True
                break
    return case


def _candidates(case: Case) -> Iterator[Case]:
    for plan in _smaller_plans(case.plan):
        yield replace(case, plan=plan)
    if not isinstance(case.job, RandomJob):
        return
    for spec in _smaller_jobs(case.job.spec):
        if is_sound(spec):
            smaller = replace(case, job=replace(case.job, spec=spec))
            for number in range(_SCHEDULES):
                yield replace(smaller, schedule=f"{case.schedule}{'+' * number}")


def _smaller_plans(plan: Plan) -> Iterator[Plan]:
    """Halves first, then without single faults."""
    half = len(plan) // 2
    if half > 1:
        yield plan[:half]
        yield plan[half:]
    for i in range(len(plan)):
        yield plan[:i] + plan[i + 1 :]


def _smaller_jobs(spec: JobSpec) -> Iterator[JobSpec]:
    for step in spec.steps:
        yield from _without(spec, step)
    for step in spec.steps:
        for simpler in _simpler(step):
            yield _replaced(spec, simpler)
    for name, value in _PLAIN.items():
        if spec.settings[name] != value:
            yield replace(spec, settings={**spec.settings, name: value})


def _without(spec: JobSpec, left_out: Step) -> Iterator[JobSpec]:
    """The job without a step: what read it reads its first input instead.

    Without a source, or a sink, what only it feeds, or what feeds it, loses that input; a step
    that loses its second one is left out as well."""
    steps: list[Step] = []
    gone: dict[tuple[str, str], tuple[str, str] | None] = {}
    for output in outputs_of(left_out):
        gone[left_out.name, output] = left_out.inputs[0] if left_out.inputs else None
    for step in spec.steps:
        if step.name == left_out.name:
            continue
        kept, second = _still_there(step.inputs, gone), _still_there(step.second, gone)
        if (step.inputs and not kept) or (step.second and not second):
            first = kept[0] if kept else None
            gone |= {(step.name, output): first for output in outputs_of(step)}
            continue
        steps.append(_fitting(replace(step, inputs=kept, second=second), steps))
    if any(step.kind not in KINDS and step.kind != "source" for step in steps):
        yield JobSpec(tuple(steps), spec.settings)


def _still_there(
    inputs: tuple[Output, ...], gone: Mapping[Output, Output | None]
) -> tuple[Output, ...]:
    """What is read now; an output that is gone stands for another one, or for none."""
    found = [gone.get(one, one) for one in inputs]
    return tuple(dict.fromkeys(one for one in found if one is not None))


def _fitting(step: Step, before: list[Step]) -> Step:
    """A step behind a forward edge has the parallelism of its input."""
    if step.exchange != "forward" or not step.inputs:
        return step
    sender = next(one for one in before if one.name == step.inputs[0][0])
    return replace(step, parallelism=sender.parallelism)


def _simpler(step: Step) -> Iterator[Step]:
    if step.parallelism > 1 and step.exchange != "forward":
        yield replace(step, parallelism=1)
    options = dict(step.options)
    if step.kind == "source" and options["count"] > 1:
        yield replace(step, options={**options, "count": options["count"] // 2})
        yield replace(step, options={**options, "count": options["count"] - 1})
    for name, plain in _PLAIN_OPTIONS.items():
        if options.get(name, plain) != plain:
            yield replace(step, options={**options, name: plain})
    if options.get("splits"):
        yield replace(step, options={**options, "splits": 0}, parallelism=1)


def _replaced(spec: JobSpec, step: Step) -> JobSpec:
    """The job with one step in the place of that of its name, and parallelisms that fit."""
    steps: list[Step] = []
    for one in spec.steps:
        steps.append(_fitting(step if one.name == step.name else one, steps))
    return JobSpec(tuple(steps), spec.settings)
