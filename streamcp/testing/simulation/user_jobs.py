"""A user's own job in the simulator: its fakes, limited sources, and sinks that record.

Its functions are called as they are, with whatever they do outside; only what the job names in
`Job(fakes=...)` is replaced. A job cannot be computed in plain Python, so its output is compared
with that of an undisturbed run.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import orjson

from streamcp.api.jobs import Job
from streamcp.compare.limits import Quota, limited
from streamcp.compare.recording import json_value
from streamcp.config import Checkpoints, JobSettings, Restart
from streamcp.errors import DefinitionError
from streamcp.graph.logical import Node
from streamcp.operators.steps import Call, SinkStep, SourceStep
from streamcp.runners.life import JobLife
from streamcp.testing.graphs import copied_graph
from streamcp.testing.simulation.faults import Emphasis, draw_plan
from streamcp.testing.simulation.invariants import Violation, some
from streamcp.testing.simulation.output import Output
from streamcp.testing.simulation.run import Case, run_case
from streamcp.testing.simulation.targets import PlainSink, StagedSink, TransactionalSink
from streamcp.testing.simulation.user_functions import with_faults
from streamcp.testing.simulation.user_parallelism import change_parallelism
from streamcp.testing.simulation.world import Life
from streamcp.testing.strict_settings import strictly

DEFAULT_LIMIT = 100
"""How many records a source that has no fake gives out."""

_SHORTEST_INTERVAL = 0.02
# A job that waits for seconds would take thousands of checkpoints in which nothing has happened.
_CHECKPOINTS_PER_RUN = 50

_SINKS = {
    "at_least_once": PlainSink,
    "staged": StagedSink,
    "transactional": TransactionalSink,
}
_RESTARTS = 100


class UserJob:
    """The job that `make` gives; called for each life, it may give the same one every time.

    The first run that finishes says what the output is: let it be an undisturbed one."""

    step_limit: ClassVar[int] = 400_000
    longest: ClassVar[float] = math.inf  # it may wait for a day

    def __init__(
        self, make: Callable[[], Job], *, limit: int = DEFAULT_LIMIT, rescale: bool = True
    ) -> None:
        """`rescale`: lives may have other parallelisms than the job, where its steps allow that."""
        self._make = make
        self._limit = limit
        self.rescale = rescale
        self._sinks: dict[str, str] = {}
        self._at_least_once = False
        self.expected: dict[str, Counter[bytes]] | None = None
        self.every: float | None = None  # none before it is known how long the job runs

    def __str__(self) -> str:
        """Its sinks."""
        return "\n".join(f"sink {name}: {kind}" for name, kind in self._sinks.items())

    def build(self, life: Life) -> tuple[Job, JobSettings]:
        """Make the job of one life; raises DefinitionError for a fake of no source or service."""
        job = copy.copy(self._make())
        # The same job may be made every time, and two lives of it may run at once.
        job.graph = copied_graph(job.graph)
        nodes = job.graph.nodes
        _check_fakes(job)
        for node in nodes:
            self._stand_in(job, node, life)
        if self.rescale and life.rescaling is not None:
            change_parallelism(nodes, job.graph.max_parallelism, life.rescaling)
        settings = simulated_settings(job, self.every)
        job.validate(settings)
        self._at_least_once = _mode(settings) == "at_least_once"
        return job, settings

    def _stand_in(self, job: Job, node: Node, life: Life) -> None:
        spec = node.spec
        if isinstance(spec, SourceStep):
            fake = job.fakes.get(node.name)
            source = limited(spec.source, node.label, Quota(records=self._limit))
            node.spec = dataclasses.replace(spec, source=source if fake is None else fake)
        elif isinstance(spec, SinkStep):
            node.name = node.label  # a plain sink needs none
            kind = "at_least_once" if spec.kind == "plain" else spec.kind
            self._sinks[node.label] = kind
            make = partial(_SINKS[kind], life.target, node.label, life.call_target)
            node.spec = dataclasses.replace(spec, open=partial(make, life.opened), kind=kind)
        else:
            if isinstance(spec, Call) and spec.uses is not None:
                spec = dataclasses.replace(spec, uses=job.fakes.get(spec.uses, spec.uses))
            node.spec = with_faults(spec, node.label, life)

    def check_running(self, job: JobLife) -> None:
        """Nothing: how much a step puts out at once is the user's business."""

    def check_output(self, output: Output) -> None:
        """I1, I2: every sink has the records of the undisturbed run, in any order."""
        if output.broken is not None:
            raise Violation(f"I2: {output.broken}")
        found = {name: _lines(output.rows(name)) for name in self._sinks}
        if self.expected is None:
            self.expected = found
        for name, lines in self.expected.items():
            self._compare(name, lines, found[name])

    def _compare(self, name: str, expected: Counter[bytes], found: Counter[bytes]) -> None:
        too_many: Any = found - expected
        if self._at_least_once:
            too_many = {}
        elif self._sinks[name] == "at_least_once":
            too_many = dict.fromkeys(found.keys() - expected, 1)
        too_few = expected - found
        if too_many or too_few:
            raise Violation(f"I1: {name} has {some(too_many)} too many, {some(too_few)} too few")


def _lines(records: list[Any]) -> Counter[bytes]:
    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_SORT_KEYS
    return Counter(orjson.dumps(json_value(record), option=options) for record in records)


def _check_fakes(job: Job) -> None:
    sources = {node.name for node in job.graph.nodes if isinstance(node.spec, SourceStep)}
    services = {node.spec.uses for node in job.graph.nodes if isinstance(node.spec, Call)}
    for replaced in job.fakes:
        if replaced not in (sources if isinstance(replaced, str) else services):
            names = ", ".join(sorted(filter(None, sources))) or "none has a name"
            raise DefinitionError(
                f"Job(fakes={{{replaced!r}: ...}}) replaces nothing of job {job.name!r}: write "
                f"the name of a source ({names}) or the function of a uses="
            )


def simulated_settings(job: Job, every: float | None) -> JobSettings:
    """The job's own settings, with checkpoints in the simulated world `every` so many seconds, and
    restarts enough for every fault."""
    interval = None if every is None else f"{every * 1000:.0f}ms"
    own = job.settings({}).checkpoints or Checkpoints(to="/checkpoints")
    checkpoints = dataclasses.replace(own, to="/checkpoints", every=interval)
    restart = Restart.fixed_delay(attempts=_RESTARTS, delay="1ms")
    return strictly(job.settings({"checkpoints": checkpoints, "restart": restart}))


def _mode(settings: JobSettings) -> str:
    return settings.checkpoints.mode if settings.checkpoints is not None else ""


def learn_output(subject: UserJob) -> None:
    """Run the job undisturbed, so that it is known what it puts out and how long it runs; raises
    Violation if it does not end."""
    outcome = run_case(Case(subject, (), "undisturbed"))
    if outcome.failure is not None:
        raise Violation(
            "the job fails when nothing disturbs it: it is broken, or needs a fake of what is "
            f"outside, Job(fakes={{...}}): {outcome.failure}"
        )
    subject.every = max(_SHORTEST_INTERVAL, outcome.seconds / _CHECKPOINTS_PER_RUN)


def draw_user_case(subject: UserJob, seed: int) -> Case:
    """Draw what goes wrong, and a schedule."""
    rnd = random.Random(f"case {seed}")
    emphasis = Emphasis(drains=False, rescaled=0.5 if subject.rescale else 0.0)
    plan = draw_plan(rnd, emphasis)
    if subject.every != _SHORTEST_INTERVAL:  # those drawn are for jobs of some milliseconds
        plan = tuple(fault for fault in plan if fault.action != "interval")
    return Case(subject, plan, f"schedule {seed}")
