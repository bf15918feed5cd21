"""CheckMate's queries in open loop, each killed once: latency, checkpoints, restart, correctness.

Its rate is an input, as there; the skew h is the share of events that are of a key that is hot for
a while. What is durable is told apart from the barrier, and a failure is a kill -9.
"""

from __future__ import annotations

import asyncio
import math
import pickle
import random
import statistics
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import streamcp as sc
from benchmarks.checkmate.changes import changes
from benchmarks.checkmate.queries import STATES, q1, q3, q8, q12
from benchmarks.checkmate.reachability import cyclic
from benchmarks.harness import Row, Run, Suite, check, skipped
from benchmarks.harness.histogram import Histogram, merged
from benchmarks.harness.open_loop import SECOND, Intake, Schedule, bound_by, taken_by_others
from benchmarks.harness.recorder import Recorder
from benchmarks.nexmark.generator import Auctioneering, events
from benchmarks.nexmark.model import Auction, Bid, Person
from benchmarks.workloads.counting import PARALLELISM
from benchmarks.workloads.killing import Life, killed_once, time_rows
from benchmarks.workloads.surviving import AppendingSink

MODES = ("aligned", "unaligned", "adaptive")
CAPACITY = 100
INTERVAL = 1.0

QUERIES: Mapping[str, Callable[[Any], sc.Stream[Any]]] = {
    "q1": q1,
    "q3": q3,
    "q8": q8,
    "q12": q12,
    "cyclic": cyclic,
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """Events per second of each query; seconds of a run, after how many it is killed at the
    earliest, and how many are left out before; hot shares, of q12 alone where not 0."""

    rates: Mapping[str, int]
    seconds: float
    earliest: float
    warm: float
    hot: Sequence[float] = (0.0, 0.1, 0.2, 0.3)
    modes: Sequence[str] = MODES


FULL = Sizes({"q1": 8000, "q3": 6000, "q8": 6000, "q12": 8000, "cyclic": 1500}, 9.0, 5.0, 1.0)
QUICK = Sizes({"q3": 2000, "q12": 2000}, 4.0, 1.5, 0.5, (0.0,), ("unaligned",))


@dataclass(frozen=True, slots=True)
class Cell:
    """One query in one mode, at one skew."""

    query: str
    mode: str
    hot: float
    rate: int

    def __str__(self) -> str:
        return f"{self.query}, {self.mode}, h = {self.hot:g}"


async def checkmate(run: Run[Sizes]) -> Sequence[Row]:
    """What do checkpoints and a kill -9 cost CheckMate's queries, in each mode and with skew?"""
    rows, kept = list[Row](), list[dict[str, Any]]()
    chance = random.Random(run.seed)
    for number, cell in enumerate(cells(run.sizes)):
        run.say(f"{cell}")
        kill_at = run.sizes.earliest + chance.uniform(0, INTERVAL)
        found, raw = await _measure(cell, run.sizes, kill_at, run.seed + number)
        rows += found
        kept.append({"query": cell.query, "mode": cell.mode, "hot": cell.hot, **raw})
    run.keep("runs", kept)
    return rows


def cells(sizes: Sizes) -> list[Cell]:
    """Everything that is measured; the order of the modes turns round each time."""
    found = list[Cell]()
    for hot in sizes.hot:
        for query, rate in sizes.rates.items():
            if not hot or query == "q12":
                one_way = [Cell(query, mode, hot, rate) for mode in sizes.modes]
                found += one_way if len(found) // len(one_way) % 2 == 0 else one_way[::-1]
    return found


async def _measure(
    cell: Cell, sizes: Sizes, kill_at: float, seed: int
) -> tuple[list[Row], dict[str, Any]]:
    schedule = Schedule(cell.rate, round(cell.rate * sizes.seconds))
    with tempfile.TemporaryDirectory() as folder:
        made = await asyncio.to_thread(make_input, cell, schedule.count, seed)
        file = Path(folder) / "input"
        await asyncio.to_thread(file.write_bytes, pickle.dumps(made))
        spec = {
            "job": f"{__name__}:make_job",
            "query": cell.query,
            "input": str(file),
            "mode": cell.mode,
            "every": f"{INTERVAL}s",
        }
        life = await killed_once(schedule, spec, kill_at)
    return _rows(cell, life, sizes.warm, made)


# ---- the job


def make_input(cell: Cell, count: int, seed: int) -> list[Any]:
    """Make what a query looks at, and nothing else."""
    if cell.query == "cyclic":
        return list(changes(count, seed))
    how = Auctioneering(
        seed=seed, hot_auctions=cell.hot, hot_bidders=cell.hot, hot_sellers=cell.hot
    )
    if cell.query in ("q3", "q8"):
        return list(events(count, replace(how, bids=False)))
    made = events(count * 50 // 46 + 50, how)
    return [event for event in made if type(event) is Bid][:count]


def make_job(
    intake: Intake, file: int, spec: Mapping[str, Any], settings: Mapping[str, Any]
) -> sc.Job:
    """The job of a query, for a process that is killed."""
    made = pickle.loads(Path(spec["input"]).read_bytes())

    @sc.source(splits=lambda: range(PARALLELISM), batches=True)
    async def due(split: int, position: int = 0) -> AsyncIterator[tuple[list[Any], int]]:
        intended, begun = intake.times.intended, intake.begun
        async for indexes in intake.batches(split, position):
            position += len(indexes)
            yield [(begun + intended(index), made[index]) for index in indexes], position

    job = sc.Job(
        spec["query"],
        parallelism=PARALLELISM,
        channel_capacity=CAPACITY,
        types=[Person, Auction, Bid],
        **settings,
    )
    results = QUERIES[spec["query"]](job.source(due(), name="due"))
    results.sink(lambda: AppendingSink(file), name="results")
    return job


# ---- what came out


def _rows(
    cell: Cell, life: Life, warm: float, made: Sequence[Any]
) -> tuple[list[Row], dict[str, Any]]:
    seconds, slices = _latencies(life, warm)
    completed = [one for one in life.first if one["event"] == "CheckpointCompleted"]
    rows = [
        *_latency_rows(f"{cell}", merged(seconds), life),
        *_checkpoint_rows(f"{cell}", completed),
        *time_rows(f"{cell}", life, len(completed)),
        *account_rows(cell, life, made),
    ]
    raw = {
        "seconds": [one.buckets for one in seconds],
        "slices": slices,
        "killed": (life.killed - life.begun) / SECOND,
        "lateness": life.lateness.buckets,
        "events": [*life.first, *life.second],
    }
    return rows, raw


def _latencies(life: Life, warm: float) -> tuple[list[Histogram], list[list[float]]]:
    """Of each second before the kill, and of each tenth of a second of the whole run."""
    recorder = Recorder()
    for write in sorted([*life.written, *life.again], key=lambda one: one.at):
        recorder.write_at(write.at, write.intended, write.intended)
    start = life.begun + round(warm * SECOND)
    return recorder.by_second(start, (life.killed - start) // SECOND), recorder.slices(life.begun)


def _latency_rows(at: str, latency: Histogram, life: Life) -> list[Row]:
    if reason := taken_by_others(life.waited):
        return [skipped(f"latency, {at}", f"rejected: {reason}")]
    rows: list[Row] = []
    for share in (0.5, 0.99):
        name, value = f"latency p{share * 100:g}, {at}", latency.quantile(share)
        if math.isnan(value):
            few = f"of {latency.count:,} results fewer than 100 are beyond it"
            rows.append(skipped(name, few))
        else:
            rows.append(Row(name, value, "ms", detail=bound_by(life.lateness, value, share)))
    return rows


def _checkpoint_rows(at: str, completed: Sequence[Mapping[str, Any]]) -> list[Row]:
    if not completed:
        return [skipped(f"checkpoints, {at}", "none completed before the kill")]
    barrier = statistics.median(one["barrier"] for one in completed) * 1000
    durable = statistics.median(one["durable"] for one in completed) * 1000
    n = f"median of {len(completed)}"
    return [
        Row(f"barrier delay, {at}", barrier, "ms", detail=n),
        Row(f"durable delay, {at}", durable, "ms", detail=n),
    ]


def account_rows(cell: Cell, life: Life, made: Sequence[Any]) -> list[Row]:
    """What had to come and did not; what came more than once."""
    found = Counter(identity(cell.query, life))
    again = found.total() - len(found)
    wanted = required(cell.query, made)
    rows = [Row(f"results written again, {cell}", again, detail=f"{len(found):,} different ones")]
    if wanted is None:
        return rows
    lost, alien = len(wanted - found.keys()), len(found.keys() - wanted)
    detail = f"of {len(wanted):,}: {lost:,} are missing, {alien:,} are not among them"
    return [*rows, check(f"every result has come, {cell}", not lost and not alien, detail)]


def identity(query: str, life: Life) -> list[Any]:
    """What tells a result of a query from its others: the id of an auction, or which event has
    caused it, as its index (of q8, both)."""
    times, writes = life.schedule.times(), [*life.written, *life.again]
    numbers = [one for write in writes for one in write.numbers]
    if query == "q3":
        return numbers
    causes = [times.due(one - life.begun) - 1 for write in writes for one in write.intended]
    if query == "cyclic":
        # Paths that are found because of others; a source finds itself in any case.
        return [cause for cause, number in zip(causes, numbers, strict=True) if number == 1]
    return [*zip(causes, numbers, strict=True)] if query == "q8" else causes


def required(query: str, made: Sequence[Any]) -> set[int] | None:
    """What has to come exactly, whatever the order in which subtasks work; None if that depends
    on the clock."""
    match query:
        case "q8":
            return None
        case "q3":
            near = {one.id for one in made if type(one) is Person and one.state in STATES}
            return {one.id for one in made if type(one) is Auction and one.seller in near}
        case "cyclic":
            return {index for index, one in enumerate(made) if one.kind == "add source"}
        case _:
            return set(range(len(made)))


SUITE = Suite("checkmate", {"checkmate": checkmate}, FULL, QUICK)
