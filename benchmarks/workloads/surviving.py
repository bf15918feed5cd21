"""The process that `failure` kills: `python -m benchmarks.workloads.surviving SPEC`.

Its sink appends to a file, a write per batch, which the system keeps when the process is killed. It
prints, each with the time of the clock, when it began and what happens to the job.
"""

from __future__ import annotations

import json
import os
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import streamcp as sc
from benchmarks.harness.open_loop import Intake, Schedule, now, use_core_of
from benchmarks.workloads.counting import PARALLELISM, Counted, counting_job
from streamcp.config import Mode
from streamcp.observability.events import Event
from streamcp.runners.local import run_blocking

TOLD = ("JobStarted", "JobRestored", "CheckpointCompleted")


@dataclass(frozen=True, slots=True)
class Written:
    """One write: its time, and of each record the intended time and the count of its key."""

    at: int
    intended: Sequence[int]
    counts: Sequence[int]


class AppendingSink:
    """Appends what it gets to an open file."""

    def __init__(self, file: int) -> None:
        self._file = file

    def write(self, records: Sequence[Counted]) -> None:
        """Write all of them at once."""
        numbers = array("q", [now(), len(records)])
        numbers.extend([one[2] for one in records])
        numbers.extend([one[1] for one in records])
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
    print(json.dumps(values), flush=True)


def _say_event(event: Event) -> None:
    told = event.as_dict()
    if told["event"] in TOLD:
        wanted = ("event", "checkpoint_id", "duration", "in_flight_records")
        _say(at=now(), **{name: told[name] for name in wanted if name in told})


async def _run(spec: dict[str, Any]) -> None:
    use_core_of(driver=False)
    intake = Intake(Schedule(**spec["schedule"]).times(), PARALLELISM)
    await intake.connect(spec["socket"])
    _say(event="began", at=now(), begun=intake.begun)
    checkpoints = sc.Checkpoints(
        to=spec["checkpoints"], every=spec["every"], mode=cast("Mode", spec["mode"])
    )
    file = os.open(spec["out"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    job = counting_job(
        intake,
        lambda counted: counted.sink(lambda: AppendingSink(file), name="results"),
        checkpoints=checkpoints,
    )
    async with job.start() as running:
        running.events.subscribe(_say_event)
        for event in running.events.events():
            _say_event(event)
        await running.wait_finished()
    _say(event="ended", at=now())


if __name__ == "__main__":
    run_blocking(lambda: _run(json.loads(sys.argv[1])))
