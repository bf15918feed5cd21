"""Drawing random jobs from a seed.

Most jobs are drawn from everything there is. The others have a theme: a situation that is rare
among them, and in which a whole kind of fault shows.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from streamcp.config import EXACTLY_ONCE_MODES, MODES
from streamcp.testing.simulation.ends import SINKS, draw_sink, draw_source
from streamcp.testing.simulation.faults import Counter, Emphasis
from streamcp.testing.simulation.jobs import KINDS, JobSpec, outputs_of
from streamcp.testing.simulation.kinds import Exchange, Step
from streamcp.testing.simulation.kinds_two_inputs import TwoInputs

Choices: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class Theme:
    """What a job is drawn from, where that is not everything. `weights` are those of kinds of
    steps; without any, each has its own. `plan` says what goes wrong with it."""

    longest: Choices = (4, 8, 8, 15, 30)
    steps: Choices = (0, 1, 2, 2, 3, 3, 4, 5)
    parallelism: Choices = (1, 1, 2, 3)
    weights: Mapping[str, int] = field(default_factory=dict)
    source: Mapping[str, Choices] = field(default_factory=dict)
    calls: Mapping[str, Choices] = field(default_factory=dict)
    settings: Mapping[str, Choices] = field(default_factory=dict)
    plan: Emphasis = field(default_factory=Emphasis)


_BEHIND_CHECKPOINTS: tuple[Counter, ...] = (*("completed",) * 5, "step", "storage")

ANYTHING = Theme()
RESCALED = Theme(
    longest=(8, 15, 30),
    steps=(2, 2, 3, 4),
    parallelism=(1, 2, 3, 4),
    weights={
        **{"keyed": 3, "keyed_async": 3, "connect": 1, "connect_async": 1, "count": 1},
        **{"broadcast": 2, "keyed_broadcast": 2, "async_map": 1, "map": 1, "flat_map": 1},
    },
    source={"waits": (0, 0, 1), "keys": (1, 3), "splits": (0, 2, 3)},
    settings={
        "every": (None, "2ms", "5ms"),
        "mode": ("unaligned", "unaligned", "adaptive"),
        "alignment_timeout": ("0s", "1ms"),
        "channel_capacity": (5, 20, 50),
        "max_in_flight_bytes": (None,),
        "timeout": ("10m",),
        "tolerable_failures": (None,),
    },
    plan=Emphasis((1, 2, 3, 4), _BEHIND_CHECKPOINTS, checkpoints=4, rescaled=1.0, asked=(2, 4, 8)),
)
"""Full queues in front of steps that keep order, for lives under other parallelisms."""
ESCALATED = Theme(
    longest=(15, 30, 40),
    steps=(1, 2, 2, 3),
    weights={
        **{"keyed": 1, "keyed_async": 4, "connect_async": 2, "connect": 1},
        **{"async_map": 4, "async_flat_map": 1, "map": 1, "flat_map": 1},
    },
    source={"waits": (1, 1, 7)},
    calls={"concurrency": (1, 2), "wait": ("time",)},
    settings={
        "every": ("2ms", "5ms", "20ms"),
        "mode": ("adaptive", "adaptive", "aligned"),
        "alignment_timeout": ("1ms", "3ms"),
        "predict": (False,),
        "channel_capacity": (5, 20, 50),
        "max_in_flight_bytes": (None, None, 2000),
        "timeout": ("10m", "10m", "10ms"),
        "tolerable_failures": (None,),
        "min_pause": ("0s",),
    },
    plan=Emphasis((1, 2, 3), _BEHIND_CHECKPOINTS, checkpoints=4, asked=(0, 2)),
)
"""Slow steps behind sources that go on reading: barriers that stand in line between records, and
checkpoints that expire before all of them have come."""
THEMES = (ANYTHING, ANYTHING, RESCALED, ESCALATED)


def draw_job(rnd: random.Random, theme: Theme = ANYTHING) -> JobSpec:
    """Draw a job: mostly a small one, since a small one shows most bugs, and sooner."""
    return _Drawing(rnd, theme).draw()


class _Drawing:
    def __init__(self, rnd: random.Random, theme: Theme) -> None:
        self.rnd = rnd
        self.theme = theme
        self.weights = theme.weights or {kind: one.weight for kind, one in KINDS.items()}
        self.longest = rnd.choice(theme.longest)
        self.settings = draw_settings(rnd, theme.settings)
        self.steps: list[Step] = []
        self.parallelism: dict[str, int] = {}

    def draw(self) -> JobSpec:
        rnd = self.rnd
        stream = [self._source()]
        for _ in range(rnd.choice(self.theme.steps)):
            if rnd.random() < 0.2:
                stream.append(self._source())
            stream = self._step(stream)
            if rnd.random() < 0.15:
                self._sink(stream)
        self._sink(stream)
        if any(step.kind == "loop" for step in self.steps):
            self.settings["max_concurrent"] = 1
        return JobSpec(tuple(self.steps), self.settings)

    def _add(self, kind: str, inputs: list[tuple[str, str]], exchange: Exchange, **o: Any) -> Step:
        rnd, name = self.rnd, f"{kind}{len(self.steps) + 1}"
        parallelism = rnd.choice(self.theme.parallelism)
        if exchange == "forward" and inputs:
            parallelism = self.parallelism[inputs[0][0]]
        step = Step(kind, name, tuple(inputs), exchange, parallelism, o)
        self.parallelism[name] = parallelism
        self.steps.append(step)
        return step

    def _source(self, **fixed: Any) -> tuple[str, str]:
        options = draw_source(self.rnd, first=not self.steps, longest=self.longest)
        options |= _chosen(self.rnd, self.theme.source) | fixed
        step = self._add("source", [], "rebalance", **options)
        if not options["splits"]:
            self.steps[-1] = replace(step, parallelism=1)
            self.parallelism[step.name] = 1
        return step.name, "main"

    def _step(self, stream: list[tuple[str, str]]) -> list[tuple[str, str]]:
        rnd = self.rnd
        (kind,) = rnd.choices([*self.weights], [*self.weights.values()])
        exchange: Exchange = "forward"
        if KINDS[kind].keyed:
            exchange = "key"
        elif len(stream) > 1 or rnd.random() < 0.25:
            exchange = "rebalance"
        second = self._second(kind, stream)
        options = KINDS[kind].draw(rnd)
        if "concurrency" in options:
            options |= _chosen(rnd, self.theme.calls)
        step = self._add(kind, stream, exchange, **options)
        if second:
            step = self.steps[-1] = replace(step, second=tuple(second))
        return self._outputs(step)

    def _second(self, kind: str, stream: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """What comes by the second input of a kind that has one: a source of its own, or the
        stream of the first."""
        drawn = KINDS[kind]
        if not isinstance(drawn, TwoInputs):
            return []
        if drawn.broadcast:
            # As long as the other input: what was learnt must differ between subtasks for a while.
            count, waits = self.rnd.randint(1, self.longest), self.rnd.choice((0, 1, 1))
            return [self._source(splits=0, count=count, waits=waits)]
        return stream if self.rnd.random() < 0.5 else [self._source()]

    def _outputs(self, step: Step) -> list[tuple[str, str]]:
        """What goes on: the main output; another one ends in a sink, or joins in again."""
        main, others = (step.name, "main"), outputs_of(step) - {"main"}
        for other in sorted(others):
            if other == "no" and self.rnd.random() < 0.6:
                return [main, (step.name, other)]
            self._sink([(step.name, other)])
        return [main]

    def _sink(self, stream: list[tuple[str, str]]) -> None:
        forward = len(stream) == 1 and self.rnd.random() < 0.4
        # What every subtask tells comes several times.
        repeated = self.settings["mode"] == "at_least_once" or stream[0][1] == "told"
        kinds = ("plain",) if repeated else SINKS
        options = draw_sink(self.rnd)
        self._add(self.rnd.choice(kinds), stream, "forward" if forward else "rebalance", **options)


def _chosen(rnd: random.Random, choices: Mapping[str, Choices]) -> dict[str, Any]:
    return {name: rnd.choice(values) for name, values in choices.items()}


def draw_settings(rnd: random.Random, choices: Mapping[str, Choices]) -> dict[str, Any]:
    """Draw checkpoints, capacity and restart delay, from `choices` where there are such."""
    # A job all of whose checkpoints expire must not fail by that, again and again.
    timeout, tolerable = rnd.choice((("10m", None), ("10m", None), ("10m", 1), ("30ms", None)))
    settings = {
        "every": rnd.choice((None, "1ms", "1ms", "2ms", "5ms", "20ms")),
        "mode": rnd.choice((*EXACTLY_ONCE_MODES, *EXACTLY_ONCE_MODES, "adaptive", *MODES)),
        "alignment_timeout": rnd.choice(("0s", "1ms", "3ms", "20ms")),
        "predict": rnd.random() < 0.5,
        "retain": rnd.choice((1, 2, 5)),
        "max_in_flight_bytes": rnd.choice((None, None, 2000)),
        "timeout": timeout,
        "min_pause": rnd.choice(("0s", "0s", "3ms")),
        "tolerable_failures": tolerable,
        "channel_capacity": rnd.choice((1, 2, 5, 20, 50)),
        "delay": rnd.choice(("0s", "2ms")),
    }
    settings |= _chosen(rnd, choices)
    overlap = settings["mode"] == "aligned" and settings["min_pause"] == "0s"
    return settings | {"max_concurrent": rnd.choice((1, 2, 3)) if overlap else 1}
