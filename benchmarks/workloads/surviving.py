"""The process that is killed: `python -m benchmarks.workloads.surviving SPEC`.

The job is made by `spec["job"]`, a function as `MODULE:NAME`. Its sink appends to a file, a write
per batch, which the system keeps when the process is killed. It prints, each with the time of the
clock and how long it has waited for the processor, when it began and what happens to the job.
"""

from __future__ import annotations

import json
import os
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias, cast

import streamcp as sc
from benchmarks.harness.open_loop import Intake, Schedule, now, use_core_of, waited_for_processor
from benchmarks.workloads.counting import PARALLELISM
from streamcp.config import Mode
from streamcp.observability.events import CheckpointCompleted, Event
from streamcp.runners.local import run_blocking

TOLD = ("JobStarted", "JobRestored", "CheckpointCompleted")


@dataclass(frozen=True, slots=True)
class Written:
    """One write: its time, and of each record the intended time and a number (a count, an id)."""

    at: int
    intended: Sequence[int]
    numbers: Sequence[int]


MakeJob: TypeAlias = Callable[[Intake, int, Mapping[str, Any], Mapping[str, Any]], sc.Job]
"""From what is due, an open file, the specification and settings of `sc.Job`."""


class AppendingSink:
    """Appends what it gets to an open file; `intended` and `number` are places in a record."""

    def __init__(self, file: int, *, intended: int = 0, number: int = 1) -> None:
        self._file = file
        self._intended = intended
        self._number = number

    def write(self, records: Sequence[Sequence[Any]]) -> None:
        """Write all of them at once."""
        numbers = array("q", [now(), len(records)])
        numbers.extend([one[self._intended] for one in records])
        numbers.extend([one[self._number] for one in records])
        os.write(self._file, numbers)


def read_written(file: Path) -> Iterator[Written]:
    """Read what was appended; a last write that was cut off does not count."""
    numbers = array("q")
    data = file.read_bytes()
    numbers.frombytes(data[: len(data) // numbers.itemsize * numbers.itemsize])
    place = 0
    while place + 2 <= len(numbers):
        at, count = numbers[place : place + 2]
        place += 2 + 2 * count
        if place <= len(numbers):
            both = numbers[place - 2 * count : place]
            yield Written(at, both[:count], both[count:])


def _say(**values: Any) -> None:
    print(json.dumps(values | {"waited": waited_for_processor()}), flush=True)


def _say_event(event: Event) -> None:
    told = event.as_dict()
    if told["event"] in TOLD:
        wanted = ("event", "checkpoint_id", "duration", "in_flight_records")
        values = {name: told[name] for name in wanted if name in told}
        if isinstance(event, CheckpointCompleted):
            values["barrier"] = event.statistics["barrier_delay"]
            values["durable"] = event.statistics["durable_delay"]
        _say(at=now(), **values)


async def _run(spec: dict[str, Any]) -> None:
    use_core_of(driver=False)
    intake = Intake(Schedule(**spec["schedule"]).times(), PARALLELISM)
    await intake.connect(spec["socket"])
    _say(event="began", at=now(), begun=intake.begun)
    checkpoints = sc.Checkpoints(
        to=spec["checkpoints"], every=spec["every"], mode=cast("Mode", spec["mode"])
    )
    file = os.open(spec["out"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    module, _, name = spec["job"].partition(":")
    make: MakeJob = getattr(import_module(module), name)
    job = make(intake, file, spec, {"checkpoints": checkpoints})
    async with job.start() as running:
        running.events.subscribe(_say_event)
        for event in running.events.events():
            _say_event(event)
        await running.wait_finished()
    _say(event="ended", at=now())


if __name__ == "__main__":
    run_blocking(lambda: _run(json.loads(sys.argv[1])))
