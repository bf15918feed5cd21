"""What a checkpoint takes when every queue is full.

The topology of Flink's own benchmark of this: sources → exchange → identity map → exchange → sink,
four subtasks each, so that every exchange has 4 × 4 channels, and the sink awaits 10 ms per record.
The sink is `for_each(concurrency=1)`: it takes one record at a time, as the law of 2.6 has it; a
coroutine as sink would take whole batches and wait for all of one at once. Closed loop: the
sources are limited by the queues alone, and a checkpoint is triggered only when these are full.

The law: an aligned barrier waits for every record before it, so with k exchanges of p channels
with C records each before a sink subtask of μ records per second it takes k·p·C/μ. μ is measured.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import anyio

import streamcp as sc
from benchmarks import outstanding
from benchmarks.harness import (
    Row,
    Run,
    Suite,
    Target,
    at_most,
    fsync_time,
    median_row,
)
from streamcp.checkpoint.statistics import CheckpointStatistics
from streamcp.config import Mode

PARALLELISM = 4
EXCHANGES = 2
PAYLOAD = 100  # bytes, of an object of its own in each record
TIMEOUT = 0.1
ALLOWANCE = 0.002  # seconds, added to delays: what the clock and a loaded machine always add

Record: TypeAlias = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Seconds per record in the sink; how many checkpoints of each kind, at which capacities."""

    service: float
    capacities: tuple[int, ...]
    checkpoints: int
    aligned: Mapping[int, int]
    adaptive: int
    pause: float
    outstanding: outstanding.Sizes


FULL = Sizes(0.01, (10, 100, 1000, 10_000), 30, {10: 10, 100: 6}, 10, 0.3, outstanding.FULL)
QUICK = Sizes(0.01, (10, 100, 1000), 7, {10: 6}, 6, 0.05, outstanding.QUICK)


# ---- the job


@sc.source(splits=lambda: range(PARALLELISM), batches=True)
async def records(split: int, position: int = 0) -> AsyncIterator[tuple[list[Record], int]]:
    while True:
        numbers = range(position, position + 64)
        yield [(number, number.to_bytes(PAYLOAD, "big")) for number in numbers], position + 64
        position += 64


def identity(record: Record) -> Record:
    return record


class SlowService:
    """Takes a while per record, and counts."""

    def __init__(self, seconds: float) -> None:
        self.served = 0
        self._seconds = seconds

    async def take(self, record: Record) -> None:
        await asyncio.sleep(self._seconds)
        self.served += 1


def make_job(capacity: int, service: SlowService, checkpoints: sc.Checkpoints) -> sc.Job:
    job = sc.Job(
        "backpressure",
        checkpoints=checkpoints,
        parallelism=PARALLELISM,
        channel_capacity=capacity,
        restart=sc.Restart.none(),
    )
    spread = job.source(records(), name="records").rebalance().map(identity, name="identity")
    spread.rebalance().for_each(service.take, name="service", concurrency=1)
    return job


async def wait_saturated(running: sc.Running, *, window: float = 0.2) -> float:
    """Return when the sources have waited for room, and the sink for nothing, for 90 % of a moment;
    the result is the share of all channels' room that is taken then. (Not every queue is full at
    the same time: a sender waits as soon as one of its channels is.)"""
    while True:
        before = running.view().tasks
        await asyncio.sleep(window)
        tasks = running.view().tasks
        if not before:
            continue  # the job is only starting
        waited = tasks[0].backpressured - before[0].backpressured
        idle = tasks[-1].idle - before[-1].idle
        if waited >= 0.9 * window and idle <= 0.1 * window:
            return sum(task.queued for task in tasks) / sum(task.capacity for task in tasks)


# ---- measuring


@dataclass(frozen=True, slots=True)
class Taken:
    """A checkpoint, and what the machine did at the same time."""

    statistics: CheckpointStatistics
    plain_write: float
    served_per_second: float
    filled: float

    @property
    def delay(self) -> float:
        """Seconds from the trigger until the last subtask has acted."""
        return self.statistics.barrier_delay

    @property
    def durable(self) -> float:
        """Seconds from the trigger until the completion is durable."""
        assert self.statistics.durable_delay is not None
        return self.statistics.durable_delay


class Bench:
    """A saturated job of one capacity, and the checkpoints taken of it."""

    def __init__(
        self, running: sc.Running, service: SlowService, folder: Path, pause: float
    ) -> None:
        self._running = running
        self._service = service
        self._folder = folder
        self._pause = pause

    async def take(self, mode: Mode) -> Taken:
        """Saturate, take one checkpoint, and write as many bytes plainly."""
        filled = await wait_saturated(self._running)
        self._running.set_mode(mode)
        started, before = time.perf_counter(), self._service.served
        taken = await self._running.checkpoint()
        served = self._service.served - before
        rate = served / (time.perf_counter() - started) / PARALLELISM
        data = os.urandom(taken.state_bytes + taken.in_flight_bytes)
        plain = await anyio.to_thread.run_sync(fsync_time, data, self._folder)
        assert taken.durable_delay is not None
        await asyncio.sleep(max(self._pause, 5 * min(taken.durable_delay, 0.2)))
        return Taken(taken, plain, rate, filled)


class bench:
    """`async with bench(...)`: run the job, and end it at once: to drain it would take minutes."""

    def __init__(self, sizes: Sizes, capacity: int, *, predict: bool) -> None:
        self._folder = tempfile.TemporaryDirectory()
        to = Path(self._folder.name)
        checkpoints = sc.Checkpoints(to=to, predict=predict, alignment_timeout=f"{TIMEOUT}s")
        self._service = SlowService(sizes.service)
        self._starting = make_job(capacity, self._service, checkpoints).start()
        self._pause = sizes.pause

    async def __aenter__(self) -> Bench:
        running = await self._starting.__aenter__()
        return Bench(running, self._service, Path(self._folder.name), self._pause)

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        try:
            await self._starting.__aexit__(_Enough, _Enough(), None)
        except _Enough:
            pass
        finally:
            self._folder.cleanup()


class _Enough(Exception):
    """Ends a job at once."""


# ---- the figures


async def unaligned(run: Run[Sizes]) -> Sequence[Row]:
    """Unaligned checkpoints at each capacity: neither delay nor its spread grows with it."""
    rows: list[Row] = []
    delays: dict[int, list[float]] = {}
    for capacity in run.sizes.capacities:
        run.say(f"unaligned, capacity {capacity:,}")
        async with bench(run.sizes, capacity, predict=False) as job:
            taken = [await job.take("unaligned") for _ in range(run.sizes.checkpoints)]
        delays[capacity] = [one.delay for one in taken]
        rows += _unaligned_rows(capacity, taken)
    rows.append(_slope_row(delays, run.seed))
    return rows


def _unaligned_rows(capacity: int, taken: Sequence[Taken]) -> list[Row]:
    delays = [one.delay * 1000 for one in taken]
    in_flight = statistics.median(one.statistics.in_flight_records for one in taken)
    size = statistics.median(one.statistics.in_flight_bytes for one in taken)
    ratios = [one.durable / one.plain_write for one in taken]
    durable = [one.durable * 1000 for one in taken]
    plain = statistics.median(one.plain_write for one in taken) * 1000
    at = f"capacity {capacity:,}"
    second = sorted(delays)[-2:][0]
    return [
        median_row(
            f"unaligned barrier delay, p50, {at}",
            delays,
            "ms",
            target=at_most(2.0),
            detail=f"{len(delays)} checkpoints, {in_flight:,.0f} records, {size / 1e6:.2f} MB, "
            f"queues {statistics.median(one.filled for one in taken):.0%} full",
        ),
        Row(
            f"unaligned barrier delay, max, {at}",
            max(delays),
            "ms",
            target=at_most(25.0),
            detail=f"second largest {second:.2f} ms",
        ),
        median_row(
            f"unaligned durable delay, {at}",
            durable,
            "ms",
            detail=f"max {max(durable):.1f} ms; the same bytes plainly: {plain:.2f} ms",
        ),
        median_row(f"unaligned durable / plain write and fsync, {at}", ratios, "×"),
    ]


def _slope_row(delays: Mapping[int, Sequence[float]], seed: int) -> Row:
    """The slope of log(median delay + 2 ms) over log(capacity), by bootstrap over checkpoints."""
    chance = random.Random(seed)
    drawn = sorted(
        _slope({c: chance.choices(values, k=len(values)) for c, values in delays.items()})
        for _ in range(2000)
    )
    return Row(
        "slope of log(delay + 2 ms) over log(capacity)",
        _slope(delays),
        "",
        (drawn[50], drawn[-51]),
        at_most(0.1),
        "0: does not depend on the capacity, 1: proportional to it",
    )


def _slope(delays: Mapping[int, Sequence[float]]) -> float:
    if len(delays) < 2:
        return math.nan
    xs = [math.log(capacity) for capacity in delays]
    ys = [math.log(statistics.median(values) + ALLOWANCE) for values in delays.values()]
    return statistics.linear_regression(xs, ys).slope


async def aligned(run: Run[Sizes]) -> Sequence[Row]:
    """Aligned checkpoints beside the law k·p·C/μ; larger capacities by the law alone."""
    rows: list[Row] = []
    for capacity in run.sizes.capacities:
        count = run.sizes.aligned.get(capacity, 0)
        if not count:
            rate = 1 / run.sizes.service
            law = EXCHANGES * PARALLELISM * capacity / rate
            rows.append(Row(f"aligned barrier delay by the law, capacity {capacity:,}", law, "s"))
            continue
        run.say(f"aligned, capacity {capacity:,}")
        async with bench(run.sizes, capacity, predict=False) as job:
            taken = [await job.take("aligned") for _ in range(count)]
        rows += _aligned_rows(capacity, taken)
    return rows


def _aligned_rows(capacity: int, taken: Sequence[Taken]) -> list[Row]:
    ratios, laws = [], []
    for one in taken:
        law = EXCHANGES * PARALLELISM * capacity / one.served_per_second
        laws.append(law)
        ratios.append(one.delay / law)
    rate = statistics.median(one.served_per_second for one in taken)
    at = f"capacity {capacity:,}"
    return [
        median_row(
            f"aligned barrier delay / law, {at}",
            ratios,
            "×",
            target=Target(0.8, 1.2),
            detail=f"law {statistics.median(laws):.3f} s at μ = {rate:.1f}/s; "
            f"queues {statistics.median(one.filled for one in taken):.0%} full, n = {len(taken)}",
        ),
        median_row(f"aligned barrier delay, {at}", [one.delay for one in taken], "s"),
    ]


async def adaptive(run: Run[Sizes]) -> Sequence[Row]:
    """Adaptive checkpoints beside unaligned ones: at most the timeout, and not even that."""
    rows: list[Row] = []
    for capacity in run.sizes.capacities:
        law = EXCHANGES * PARALLELISM * capacity * run.sizes.service
        if law < 2 * TIMEOUT:
            continue  # it would not escalate at all
        run.say(f"adaptive, capacity {capacity:,}")
        async with bench(run.sizes, capacity, predict=False) as job:
            pairs = [
                (await job.take("unaligned"), await job.take("adaptive"))
                for _ in range(run.sizes.adaptive)
            ]
        async with bench(run.sizes, capacity, predict=True) as job:
            predicted = [await job.take("adaptive") for _ in range(run.sizes.adaptive)]
        rows += _adaptive_rows(capacity, pairs, predicted)
    return rows


def _adaptive_rows(
    capacity: int, pairs: Sequence[tuple[Taken, Taken]], predicted: Sequence[Taken]
) -> list[Row]:
    at = f"capacity {capacity:,}"
    typical = statistics.median(one.delay for one, _ in pairs)
    limit = TIMEOUT + 1.3 * typical + ALLOWANCE
    escalated = sum(one.statistics.escalated_after is not None for _, one in pairs)
    paid = sum(one.statistics.escalated_after is not None for one in predicted)
    delays = [one.delay * 1000 for _, one in pairs]
    return [
        median_row(
            f"adaptive without prediction, barrier delay, {at}",
            delays,
            "ms",
            target=at_most(limit * 1000),
            detail=f"max {max(delays):.1f} ms; {escalated} of {len(pairs)} escalated",
        ),
        median_row(
            f"adaptive with prediction, barrier delay, {at}",
            [one.delay * 1000 for one in predicted],
            "ms",
        ),
        Row(
            f"adaptive with prediction, timeouts paid, {at}",
            paid,
            target=at_most(0),
            detail=f"of {len(predicted)}",
        ),
    ]


async def calls(run: Run[Sizes]) -> Sequence[Row]:
    """500 outstanding calls of 2 s: how fast they are durable, and which are made again."""
    return await outstanding.measure(run.sizes.outstanding, run.say, run.seed)


SUITE = Suite(
    "backpressure",
    {"unaligned": unaligned, "aligned": aligned, "adaptive": adaptive, "outstanding": calls},
    FULL,
    QUICK,
)
