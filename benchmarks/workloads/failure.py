"""W11: kill -9 in the middle of a load, and how long it takes until nothing is felt of it any more.

The driver goes on: what becomes due while the job is dead has its intended time like everything
else. The job is killed at a random phase of the checkpoint interval and started again at once.
Every record is accounted for: which are missing, which came twice, and whether the state, which is
exactly once, has counted each of them once.
"""

from __future__ import annotations

import asyncio
import math
import random
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamcp as sc
from benchmarks.harness import Row, Run, Suite, check
from benchmarks.harness.open_loop import SECOND, Intake, Schedule
from benchmarks.harness.recorder import Recorder, backlog
from benchmarks.workloads.counting import counting_job, key
from benchmarks.workloads.killing import Life, killed_once, seconds_row, time_rows
from benchmarks.workloads.running import most_sustained
from benchmarks.workloads.surviving import AppendingSink

MODES = ("aligned", "unaligned", "adaptive")
SHARE = 0.8
AS_BEFORE = 1.1  # p99, of what it was before the kill
CALM = 3  # slices in a row


@dataclass(frozen=True, slots=True)
class Sizes:
    """Seconds of a probe for the highest load; when the job is killed at the earliest, and how long
    the load goes on; intervals in seconds. With a `rate` no highest load is looked for."""

    probe: int
    rush: int
    earliest: float
    seconds: float
    intervals: Sequence[float]
    modes: Sequence[str] = MODES
    rate: int | None = None


FULL = Sizes(3, 400_000, 6.0, 16.0, (1.0, 5.0))
QUICK = Sizes(1, 100_000, 1.5, 6.0, (0.5,), ("unaligned",), rate=20_000)


def appending_job(
    intake: Intake, file: int, spec: Mapping[str, Any], settings: Mapping[str, Any]
) -> sc.Job:
    """The counting job, for a process that is killed."""
    return counting_job(
        intake,
        lambda counted: counted.sink(
            lambda: AppendingSink(file, intended=2, number=1), name="results"
        ),
        **settings,
    )


async def failure(run: Run[Sizes]) -> Sequence[Row]:
    """What does a kill -9 at 80 % of the highest load cost, and is every record there once?"""
    sizes = run.sizes
    run.say("the highest load that is sustained")
    rate = sizes.rate or round(SHARE * await most_sustained(sizes.probe, 1.0, sizes.rush))
    rows, kept = [Row("load", rate, "records/s")], list[dict[str, Any]]()
    chance = random.Random(run.seed)
    for interval in sizes.intervals:
        for mode in sizes.modes:
            run.say(f"{mode}, every {interval:g} s")
            kill_at = sizes.earliest + chance.uniform(0, interval)
            schedule = Schedule(rate, round(rate * sizes.seconds))
            spec = {"job": f"{__name__}:appending_job", "mode": mode, "every": f"{interval}s"}
            life = await killed_once(schedule, spec, kill_at)
            found = await asyncio.to_thread(_rows, f"{mode}, every {interval:g} s", life)
            rows += found[0]
            kept.append({"mode": mode, "interval": interval, **found[1]})
    run.keep("runs", kept)
    return rows


# ---- what came out


def _rows(at: str, life: Life) -> tuple[list[Row], dict[str, Any]]:
    recorder = Recorder()
    for write in sorted([*life.written, *life.again], key=lambda one: one.at):
        recorder.write_at(write.at, write.intended, write.intended)
    slices = recorder.slices(life.begun)
    times = life.schedule.times()
    killed = (life.killed - life.begun) / SECOND
    caught = caught_up(slices, backlog_of_distinct(life), killed)
    completed = [line for line in life.first if line["event"] == "CheckpointCompleted"]
    rows = [
        Row(f"share of the time that others had its processor, {at}", life.waited),
        *time_rows(at, life, len(completed)),
        seconds_row(f"kill → caught up, {at}", None if caught is None else caught - killed),
        *account_rows(at, life),
    ]
    raw = {
        "killed": killed,
        "waited": life.waited,
        "caught_up": caught,
        "slices": slices,
        "backlog": backlog(slices, times),
        "events": [
            {**line, "at": (line["at"] - life.begun) / SECOND}
            for line in [*life.first, *life.second]
        ],
    }
    return rows, raw


def backlog_of_distinct(life: Life) -> list[list[float]]:
    """The backlog at the end of each tenth of a second; what is written twice is done once."""
    times, seen = life.schedule.times(), set[int]()
    ends = Counter[int]()
    for write in sorted([*life.written, *life.again], key=lambda one: one.at):
        fresh = [intended for intended in write.intended if intended not in seen]
        seen.update(fresh)
        ends[(write.at - life.begun) * 10 // SECOND] += len(fresh)
    done, found = 0, list[list[float]]()
    for number in range(max(ends, default=0) + 1):
        done += ends[number]
        end = (number + 1) / 10
        found.append([end, times.due(round(end * SECOND)) - done])
    return found


def caught_up(
    slices: Sequence[Sequence[float]], waiting: Sequence[Sequence[float]], killed: float
) -> float | None:
    """When backlog and p99 are as they were before the kill, and stay so for three slices."""
    before = [one for one in slices if 1 <= one[0] <= killed]
    most = max((records for end, records in waiting if 1 <= end <= killed), default=math.nan)
    limit = AS_BEFORE * statistics.median_high([one[2] for one in before] or [math.nan])
    limit = max(limit, max((one[2] for one in before), default=math.nan))
    left = {round(end, 1): records for end, records in waiting}
    calm = 0
    for end, _, p99, *_ in slices:
        if end <= killed + 0.1:
            continue
        calm = calm + 1 if p99 <= limit and left[round(end, 1)] <= most else 0
        if calm == CALM:
            return end - (CALM - 1) / 10
    return None


def account_rows(at: str, life: Life) -> list[Row]:
    """Lost, written again, and counted wrongly: exact numbers."""
    times, count = life.schedule.times(), life.schedule.count
    writes = [*life.written, *life.again]
    indexes = [times.due(one - life.begun) - 1 for write in writes for one in write.intended]
    often = Counter(indexes)
    lost = count - len(often)
    found = _final_counts(indexes, (n for write in writes for n in write.numbers))
    right = Counter(map(key, range(count)))
    wrong = sum(abs(found.get(one, 0) - right[one]) for one in right)
    return [
        check(f"no record lost, {at}", lost == 0, f"{lost:,} of {count:,}"),
        check(
            f"every record counted once, {at}",
            wrong == 0,
            f"{wrong:,} too many or too few, over {len(right):,} keys",
        ),
        Row(f"records written again, {at}", len(indexes) - len(often)),
    ]


def _final_counts(indexes: Iterable[int], counts: Iterable[int]) -> dict[int, int]:
    """The highest count that was written of each key."""
    found: dict[int, int] = {}
    for index, number in zip(indexes, counts, strict=True):
        one = key(index)
        found[one] = max(found.get(one, 0), number)
    return found


SUITE = Suite("failure", {"failure": failure}, FULL, QUICK)
