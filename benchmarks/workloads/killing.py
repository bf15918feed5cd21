"""A job that is killed once under a load that goes on, and started again at once: what was seen."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import Child, Row, skipped
from benchmarks.harness.histogram import Histogram
from benchmarks.harness.open_loop import SECOND, Schedule, driver, now
from benchmarks.workloads.surviving import Written, read_written

NEVER = "not until the end of the load"
CHILD = "benchmarks.workloads.surviving"


@dataclass
class Life:
    """What was seen of a job that was killed once. Times are of the clock, in nanoseconds."""

    schedule: Schedule
    begun: int = 0
    killed: int = 0
    detected: int = 0
    first: list[Mapping[str, Any]] = field(default_factory=list)
    second: list[Mapping[str, Any]] = field(default_factory=list)
    written: Sequence[Written] = ()
    again: Sequence[Written] = ()
    lateness: Histogram = field(default_factory=Histogram)

    @property
    def waited(self) -> float:
        """The share of the time before the kill in which others had the job's processor."""
        if not self.first:
            return 0.0
        last = self.first[-1]
        share: float = last["waited"] / ((last["at"] - self.begun) / SECOND)
        return share

    def when(self, event: str) -> int | None:
        """When something was first told after the kill."""
        return next((line["at"] for line in self.second if line["event"] == event), None)


async def killed_once(schedule: Schedule, job: Mapping[str, Any], kill_at: float) -> Life:
    """Run `job`, the specification of a surviving process, kill it so many seconds after the
    schedule began, and start it again; return when the load is over and worked off."""
    life = Life(schedule)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with driver(schedule) as due:
            spec = {
                "schedule": asdict(schedule),
                "socket": due.socket,
                "checkpoints": str(folder / "checkpoints"),
                **job,
            }
            await _until_killed(life, spec | {"out": str(folder / "first")}, kill_at)
            async with Child([CHILD, json.dumps(spec | {"out": str(folder / "second")})]) as child:
                life.second = [json.loads(line) for line in await child.lines()]
                if await child.wait():
                    raise RuntimeError(f"the job failed after its restart:\n{child.errors}")
            life.lateness = await due.lateness()
        life.written = [*read_written(folder / "first")]
        life.again = [*read_written(folder / "second")]
    return life


async def _until_killed(life: Life, spec: Mapping[str, Any], kill_at: float) -> None:
    async with Child([CHILD, json.dumps(spec)]) as child:
        life.begun = json.loads(await child.line())["begun"]
        await asyncio.sleep(kill_at - (now() - life.begun) / SECOND)
        life.killed = now()
        child.kill()
        await child.wait()
        life.detected = now()
        life.first = [json.loads(line) for line in await child.lines() if line.endswith("}")]


def time_rows(at: str, life: Life, checkpoints: int) -> list[Row]:
    """How long everything took from the kill on."""
    restored = next((one for one in life.second if one["event"] == "JobRestored"), None)
    records = restored["in_flight_records"] if restored else 0
    first_output = life.again[0].at if life.again else None
    moments = {
        "detected": life.detected,
        "process ready": life.when("began"),
        "restored": restored["at"] if restored else None,
        "first output": first_output,
        "first new checkpoint": life.when("CheckpointCompleted"),
    }
    details = {
        "restored": f"{records:,} records in flight; {checkpoints} checkpoints before the kill",
    }
    missing = {} if checkpoints else {"restored": "no checkpoint was complete: it began anew"}
    return [
        seconds_row(
            f"kill → {name}, {at}",
            None if moment is None else (moment - life.killed) / SECOND,
            details.get(name, ""),
            missing.get(name, NEVER),
        )
        for name, moment in moments.items()
    ]


def seconds_row(name: str, seconds: float | None, detail: str = "", missing: str = NEVER) -> Row:
    """A time, or why it never came."""
    if seconds is None:
        return skipped(name, missing)
    return Row(name, seconds, "s", detail=detail)
