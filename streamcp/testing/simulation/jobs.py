"""Random jobs as plain data: built for each life, computed in plain Python.

A drawn job can be printed, and made smaller by leaving steps out. How one is drawn is told in
`drawing`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from streamcp.api.jobs import Job
from streamcp.config import Checkpoints, Restart
from streamcp.testing.simulation import kinds, kinds_keyed, kinds_loop, kinds_two_inputs
from streamcp.testing.simulation.ends import (
    SINKS,
    Ends,
    build_sink,
    build_source,
    source_records,
)
from streamcp.testing.simulation.kinds import Kind, Step
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


_JOURNALED = ("async_map", "async_flat_map", "async_failing", "keyed_async", "connect_async")


def journaled(spec: JobSpec) -> JobSpec:
    """The same job with a journal of the answers of its coroutines; at least once there is none."""
    if spec.at_least_once:
        return spec
    steps = (
        replace(step, options={**step.options, "journal": True})
        if step.kind in _JOURNALED
        else step
        for step in spec.steps
    )
    return replace(spec, steps=tuple(steps))


def with_parallelism_1(spec: JobSpec) -> JobSpec:
    """The same job with one subtask per step."""
    return replace(spec, steps=tuple(replace(step, parallelism=1) for step in spec.steps))


# ---- building


def build(spec: JobSpec, ends: Ends) -> Job:
    """Make the job of one life."""
    settings = dict(spec.settings)
    capacity, delay = settings.pop("channel_capacity"), settings.pop("delay")
    timed = settings.pop("timed", False)
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
            streams[step.name, "main"] = build_source(job, step, ends, timed=timed)
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


def may_be_timed(spec: JobSpec) -> bool:
    """Say whether no record of a job is late, however slow what it waits for is: a watermark does
    not wait for records that go round."""
    return all(step.kind != "loop" for step in spec.steps)


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
