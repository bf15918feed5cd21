"""Random jobs as plain data: drawn from a seed, built for each life, computed in plain Python.

A drawn job can be printed, and made smaller by leaving steps out.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from streamcp.api.jobs import Job
from streamcp.config import EXACTLY_ONCE_MODES, MODES, Checkpoints, Restart
from streamcp.testing.simulation import kinds, kinds_keyed, kinds_loop, kinds_two_inputs
from streamcp.testing.simulation.ends import (
    SINKS,
    Ends,
    build_sink,
    build_source,
    draw_source,
    source_records,
)
from streamcp.testing.simulation.kinds import Exchange, Kind, Step
from streamcp.testing.simulation.kinds_two_inputs import TwoInputs
from streamcp.testing.simulation.records import Item, Loose, as_row

KINDS: Mapping[str, Kind] = {
    "map": kinds.Map(),
    "filter": kinds.Filter(),
    "flat_map": kinds.FlatMap(),
    "branch": kinds.Branch(),
    "failing": kinds.Failing(),
    "async_map": kinds.AsyncMap(),
    "async_flat_map": kinds.AsyncFlatMap(),
    "async_failing": kinds.AsyncFailing(),
    "keyed": kinds_keyed.Keyed(),
    "keyed_async": kinds_keyed.KeyedAsync(),
    "count": kinds_keyed.Count(),
    "scan": kinds_keyed.Scan(),
    "loop": kinds_loop.Loop(),
    "connect": kinds_two_inputs.Connect(),
    "connect_async": kinds_two_inputs.ConnectAsync(),
    "broadcast": kinds_two_inputs.Broadcast(),
    "keyed_broadcast": kinds_two_inputs.KeyedBroadcast(),
}

# No plan has as many faults: more restarts than that are a circle.
_RESTARTS = 30

Rows: TypeAlias = Counter[tuple[Any, ...]]


@dataclass(frozen=True)
class JobSpec:
    """A drawn job: its steps, senders before receivers, and its settings."""

    steps: tuple[Step, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """A line per step."""
        settings = " ".join(f"{name}={value}" for name, value in self.settings.items())
        return "\n".join([*map(str, self.steps), settings])

    @property
    def at_least_once(self) -> bool:
        """Records may come again after a restore, also into state (P29)."""
        return bool(self.settings["mode"] == "at_least_once")

    @property
    def sinks(self) -> list[Step]:
        """The sinks."""
        return [step for step in self.steps if step.kind in SINKS]


# ---- drawing


def draw_job(rnd: random.Random) -> JobSpec:
    """Draw a job: mostly a small one, since a small one shows most bugs, and sooner."""
    return _Drawing(rnd).draw()


class _Drawing:
    def __init__(self, rnd: random.Random) -> None:
        self.rnd = rnd
        self.longest = rnd.choice((4, 8, 8, 15, 30))
        self.settings = draw_settings(rnd)
        self.steps: list[Step] = []
        self.parallelism: dict[str, int] = {}

    def draw(self) -> JobSpec:
        rnd = self.rnd
        stream = [self._source()]
        for _ in range(rnd.choice((0, 1, 2, 2, 3, 3, 4, 5))):
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
        parallelism = rnd.choice((1, 1, 2, 3))
        if exchange == "forward" and inputs:
            parallelism = self.parallelism[inputs[0][0]]
        step = Step(kind, name, tuple(inputs), exchange, parallelism, o)
        self.parallelism[name] = parallelism
        self.steps.append(step)
        return step

    def _source(self, **fixed: Any) -> tuple[str, str]:
        options = draw_source(self.rnd, first=not self.steps, longest=self.longest) | fixed
        step = self._add("source", [], "rebalance", **options)
        if not options["splits"]:
            self.steps[-1] = replace(step, parallelism=1)
            self.parallelism[step.name] = 1
        return step.name, "main"

    def _step(self, stream: list[tuple[str, str]]) -> list[tuple[str, str]]:
        rnd = self.rnd
        (kind,) = rnd.choices([*KINDS], [one.weight for one in KINDS.values()])
        exchange: Exchange = "forward"
        if KINDS[kind].keyed:
            exchange = "key"
        elif len(stream) > 1 or rnd.random() < 0.25:
            exchange = "rebalance"
        second = self._second(kind, stream)
        step = self._add(kind, stream, exchange, **KINDS[kind].draw(rnd))
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
            return [self._source(splits=0)]
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
        self._add(self.rnd.choice(kinds), stream, "forward" if forward else "rebalance")


def outputs_of(step: Step) -> set[str]:
    """The outputs that a step has."""
    if step.kind not in KINDS:
        return {"main"}
    has_errors = step.options.get("on_error") == "divert"
    return {one for one in KINDS[step.kind].outputs if one != "errors" or has_errors}


def rescaled(spec: JobSpec, seed: int) -> JobSpec:
    """The same job under other parallelisms, drawn from `seed`."""
    rnd = random.Random(f"parallelism {seed}")
    drawn: dict[str, int] = {}
    for step in spec.steps:
        drawn[step.name] = rnd.randint(1, 4)
        if step.kind == "source" and not step.options["splits"]:
            drawn[step.name] = 1
        elif step.inputs and step.exchange == "forward":
            drawn[step.name] = drawn[step.inputs[0][0]]
    steps = (replace(step, parallelism=drawn[step.name]) for step in spec.steps)
    return replace(spec, steps=tuple(steps))


def with_parallelism_1(spec: JobSpec) -> JobSpec:
    """The same job with one subtask per step."""
    return replace(spec, steps=tuple(replace(step, parallelism=1) for step in spec.steps))


def draw_settings(rnd: random.Random) -> dict[str, Any]:
    """Draw checkpoints, capacity and restart delay."""
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
    overlap = settings["mode"] == "aligned" and settings["min_pause"] == "0s"
    return settings | {"max_concurrent": rnd.choice((1, 2, 3)) if overlap else 1}


# ---- building


def build(spec: JobSpec, ends: Ends) -> Job:
    """Make the job of one life."""
    settings = dict(spec.settings)
    capacity, delay = settings.pop("channel_capacity"), settings.pop("delay")
    job = Job(
        "random",
        checkpoints=Checkpoints(to=Path("simulated"), **settings),
        channel_capacity=capacity,
        restart=Restart.fixed_delay(attempts=_RESTARTS, delay=delay),
        types=[Item, Loose],
    )
    streams: dict[tuple[str, str], Any] = {}
    ordered = ordered_outputs(spec)
    for step in spec.steps:
        if step.kind == "source":
            streams[step.name, "main"] = build_source(job, step, ends)
            continue
        stream = _exchanged(step, [streams[one] for one in step.inputs])
        if step.second:
            stream = _connected(step, stream, [streams[one] for one in step.second])
        if step.kind in SINKS:
            build_sink(step, stream, ends)
            continue
        made = KINDS[step.kind].build(step, stream, ends, _input_ordered(step, ordered))
        streams |= {(step.name, output): one for output, one in made.items()}
    return job


def _exchanged(step: Step, inputs: list[Any]) -> Any:
    stream = inputs[0].union(*inputs[1:]) if len(inputs) > 1 else inputs[0]
    if step.exchange == "key":
        return stream.key_by(kinds_keyed.key_of)
    return stream.rebalance() if step.exchange == "rebalance" else stream


def _connected(step: Step, stream: Any, second: list[Any]) -> Any:
    kind, other = KINDS[step.kind], second[0].union(*second[1:])
    if isinstance(kind, TwoInputs) and kind.broadcast:
        return stream.connect(other.broadcast())
    return stream.connect(other.key_by(kinds_keyed.key_of))


def ordered_outputs(spec: JobSpec) -> dict[str, bool]:
    """Which steps put out the records of a key and origin in their order."""
    ordered: dict[str, bool] = {}
    for step in spec.steps:
        keeps = step.kind not in KINDS or KINDS[step.kind].keeps_order(step)
        ordered[step.name] = keeps and (not step.inputs or _input_ordered(step, ordered))
        if step.kind in ("count", "scan"):
            ordered[step.name] = True  # its records are new ones
    return ordered


def _input_ordered(step: Step, ordered: Mapping[str, bool]) -> bool:
    inputs = step.inputs + step.second
    return step.exchange != "rebalance" and all(ordered[name] for name, _ in inputs)


# ---- in plain Python


def expected_rows(
    spec: JobSpec, read: Mapping[tuple[str, int], int] | None = None
) -> dict[str, Rows]:
    """What each sink gets, computed without streamcp: the reference of every run.

    `read` says how many records of each split were read, if not all were."""
    lists: dict[tuple[str, str], list[Any]] = {}
    rows: dict[str, Rows] = {}
    for step in spec.steps:
        if step.kind == "source":
            lists[step.name, "main"] = _read(step, read)
            continue
        records = [record for one in step.inputs for record in lists[one]]
        if step.kind not in SINKS:
            kind = KINDS[step.kind]
            if isinstance(kind, TwoInputs):
                second = [record for one in step.second for record in lists[one]]
                made = kind.expected_of(step, records, second)
            else:
                made = kind.expected(step, records)
            lists |= {(step.name, output): one for output, one in made.items()}
        elif step.inputs[0][1] == "errors":
            rows[step.name] = Counter(("failure", *as_row(record)) for record in records)
        else:
            rows[step.name] = Counter(map(as_row, records))
    return rows


def _read(step: Step, read: Mapping[tuple[str, int], int] | None) -> list[Any]:
    splits = {split: source_records(step, split) for split in range(step.options["splits"] or 1)}
    if read is not None:
        splits = {split: records[: read[step.name, split]] for split, records in splits.items()}
    return [record for records in splits.values() for record in records]


def is_sound(spec: JobSpec) -> bool:
    """No record comes twice to a step, as in every drawn job; a job with steps left out may be
    unsound: then what it puts out depends on the order of things."""
    told = {sink.name for sink in spec.sinks if sink.inputs[0][1] == "told"}  # by every subtask
    rows = (rows for name, rows in expected_rows(spec).items() if name not in told)
    return all(max(one.values(), default=1) == 1 for one in rows)
