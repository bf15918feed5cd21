"""Floors and ratios: what the engine costs beside a bare loop that does the same work.

Each window is one whole job: the start-up is in it, and shown beside the figures; windows are long
enough that it hardly counts. Floor and subject take turns in one process and event loop. The bare
loops call the same functions on the same records and do the same keyed work with a plain dict.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import streamcp as sc
from benchmarks.harness import (
    Row,
    Run,
    Seconds,
    Suite,
    Target,
    at_least,
    at_most,
    median_row,
    paired,
    timed,
)
from streamcp.config import Mode

KEYS = 1000
CONCURRENCY = 100
SLEEP = 0.005


@dataclass(frozen=True, slots=True)
class Sizes:
    """Records per window, windows per figure, and seconds per window with checkpoints."""

    records: int
    calls: int
    rounds: int
    checkpoint_rounds: int
    checkpoint_seconds: float


FULL = Sizes(500_000, 20_000, 61, 12, 3.0)
QUICK = Sizes(100_000, 5_000, 7, 2, 1.5)


# ---- the functions: the same objects are called by the job and by the bare loop


def scale(value: int) -> int:
    return value * 3 + 1


def is_kept(value: int) -> bool:
    return value % 4 != 0


def shift(value: int) -> int:
    return value - 7


def key_of(value: int) -> int:
    return value % KEYS


@dataclass
class Totals:
    """The state of a keyed step."""

    count: int = 0
    total: int = 0


def update(value: int, state: Totals, context: sc.KeyContext[int]) -> tuple[int]:
    state.count += 1
    state.total += value
    return (state.total,)


async def pause(value: int) -> int:
    await asyncio.sleep(SLEEP)
    return value


async def scale_at_once(value: int) -> int:
    return value * 3 + 1


# ---- the bare loops


async def bare_stateless(n: int) -> None:
    for value in range(n):
        scaled = scale(value)
        if is_kept(scaled):
            shift(scaled)


async def bare_stateless_chained(n: int) -> None:
    """The fastest way to write it: the loop itself in C."""
    deque(map(shift, filter(is_kept, map(scale, range(n)))), maxlen=0)


async def bare_count(n: int) -> None:
    counts: dict[int, int] = {}
    for value in range(n):
        scaled = scale(value)
        if is_kept(scaled):
            key = key_of(scaled)
            count = counts[key] = counts.get(key, 0) + 1
            _ = (key, count)


async def bare_process(n: int) -> None:
    states: dict[int, Totals] = {}
    no_context = cast("sc.KeyContext[int]", None)  # `update` does not look at it
    for value in range(n):
        key = key_of(value)
        state = states.get(key)
        if state is None:
            state = states[key] = Totals()
        for _ in update(value, state, no_context):
            pass


async def bare_pool(n: int) -> None:
    values = iter(range(n))

    async def worker() -> None:
        for value in values:
            await pause(value)

    async with asyncio.TaskGroup() as group:
        for _ in range(CONCURRENCY):
            group.create_task(worker())


# ---- the jobs


async def job_stateless(n: int) -> None:
    job = sc.Job("stateless")
    numbers = job.source(sc.items(range(n)))
    numbers.map(scale).filter(is_kept).map(shift).sink(sc.discard())
    await job.run_async()


async def job_count(n: int) -> None:
    job = sc.Job("count")
    kept = job.source(sc.items(range(n))).map(scale).filter(is_kept)
    kept.key_by(key_of).count(parallelism=4).sink(sc.discard, parallelism=4)
    await job.run_async()


async def job_process(n: int, parallelism: int = 1) -> None:
    job = sc.Job("process")
    keyed = job.source(sc.items(range(n))).key_by(key_of)
    sums = keyed.process(update, state=Totals, parallelism=parallelism)
    sums.sink(sc.discard, parallelism=parallelism)
    await job.run_async()


async def job_process_with_ttl(n: int) -> None:
    job = sc.Job("expiring")
    keyed = job.source(sc.items(range(n))).key_by(key_of)
    keyed.process(update, state=Totals, ttl="7d").sink(sc.discard())
    await job.run_async()


async def job_calls(n: int, *, ordered: bool) -> None:
    job = sc.Job("calls")
    numbers = job.source(sc.items(range(n)))
    numbers.map(pause, concurrency=CONCURRENCY, ordered=ordered).sink(sc.discard())
    await job.run_async()


async def job_plain_map(n: int) -> None:
    job = sc.Job("plain")
    job.source(sc.items(range(n))).map(scale).sink(sc.discard())
    await job.run_async()


async def job_coroutine_map(n: int, *, ordered: bool = True) -> None:
    job = sc.Job("coroutine")
    job.source(sc.items(range(n))).map(scale_at_once, ordered=ordered).sink(sc.discard())
    await job.run_async()


# ---- the figures

Work = Callable[[int], Awaitable[object]]


async def ratio(
    name: str,
    floor: Work,
    subject: Work,
    n: int,
    rounds: int,
    target: Target | None,
    *,
    of_cost: bool = False,
) -> list[Row]:
    """How fast `subject` is, as a share of `floor`; `of_cost`: how much longer it takes.

    The clock is judged. The processor's time tells what other processes have to do with it."""
    pairs = await paired(lambda: timed(lambda: floor(n)), lambda: timed(lambda: subject(n)), rounds)
    return ratio_rows(name, pairs, n, target, of_cost=of_cost)


def ratio_rows(
    name: str,
    pairs: Sequence[tuple[Seconds, Seconds]],
    n: int,
    target: Target | None = None,
    *,
    of_cost: bool = False,
) -> list[Row]:
    """The ratios of floor and subject over `n` records, by the clock and of processor time."""

    def row(name: str, figure: Callable[[Seconds], float], target: Target | None) -> Row:
        both = [(figure(a), figure(b)) for a, b in pairs]
        ratios = [b / a if of_cost else a / b for a, b in both]
        floor_ns, subject_ns = (statistics.median(x) / n * 1e9 for x in zip(*both, strict=True))
        detail = f"{floor_ns:,.0f} ns → {subject_ns:,.0f} ns per record, {n:,} records"
        return median_row(name, ratios, "×", target=target, detail=detail)

    return [
        row(name, lambda seconds: seconds.clock, target),
        row(f"{name}, of processor time", lambda seconds: seconds.processor, None),
    ]


async def startup(job: Work) -> Row:
    """How long a job of one record takes: it is part of every window."""
    times = [(await timed(lambda: job(1))).clock * 1000 for _ in range(10)]
    return median_row("start-up and end, in each window", times, "ms")


async def stateless(run: Run[Sizes]) -> Sequence[Row]:
    """map – filter – map."""
    n, rounds = run.sizes.records * 2, run.sizes.rounds
    name = "map–filter–map / bare loop"
    return [
        *await ratio(name, bare_stateless, job_stateless, n, rounds, at_least(0.85)),
        *await ratio(
            "map–filter–map / chain of iterators",
            bare_stateless_chained,
            job_stateless,
            n,
            max(rounds // 2, 1),
            None,
        ),
        await startup(job_stateless),
    ]


async def exchange(run: Run[Sizes]) -> Sequence[Row]:
    """map – filter – exchange over four channels – keyed count."""
    n, rounds = run.sizes.records * 2, run.sizes.rounds
    name = "exchange and keyed count / bare loop"
    return [
        *await ratio(name, bare_count, job_count, n, rounds, at_least(0.65)),
        await startup(job_count),
    ]


async def process(run: Run[Sizes]) -> Sequence[Row]:
    """Keyed process with a dataclass as state."""
    n, rounds = run.sizes.records, run.sizes.rounds
    return [
        *await ratio(
            "keyed process / bare loop", bare_process, job_process, n, rounds, at_least(0.5)
        ),
        *await ratio(
            "the same behind an exchange over 4 channels",
            bare_process,
            lambda n: job_process(n, 4),
            n,
            max(rounds // 2, 1),
            None,
        ),
        await startup(job_process),
    ]


async def expiry(run: Run[Sizes]) -> Sequence[Row]:
    """Keyed process with a ttl, beside one without."""
    n, rounds = run.sizes.records, run.sizes.rounds
    name = "cost of a keyed process with ttl / of one without"
    return await ratio(
        name, job_process, job_process_with_ttl, n, rounds, at_most(1.1), of_cost=True
    )


async def calls(run: Run[Sizes]) -> Sequence[Row]:
    """map with a coroutine that sleeps 5 ms, 100 at once."""
    n, rounds = run.sizes.calls, run.sizes.rounds
    return [
        *await ratio(
            "async map, ordered / bare pool",
            bare_pool,
            lambda n: job_calls(n, ordered=True),
            n,
            rounds,
            at_least(0.95),
        ),
        *await ratio(
            "async map, unordered / bare pool",
            bare_pool,
            lambda n: job_calls(n, ordered=False),
            n,
            max(rounds // 2, 1),
            None,
        ),
    ]


async def coroutine(run: Run[Sizes]) -> Sequence[Row]:
    """map with a coroutine that never suspends, beside a plain map."""
    n, rounds = run.sizes.records, run.sizes.rounds
    name = "cost of a coroutine map / of a plain one"
    return [
        *await ratio(name, job_plain_map, job_coroutine_map, n, rounds, at_most(8.0), of_cost=True),
        *await ratio(
            f"{name}, unordered",
            job_plain_map,
            lambda n: job_coroutine_map(n, ordered=False),
            n,
            max(rounds // 2, 1),
            None,
            of_cost=True,
        ),
    ]


# ---- checkpoints: one endless job; windows with and without checkpoints take turns in it


class Counted:
    """A sink that counts."""

    def __init__(self) -> None:
        self.records = 0

    async def write(self, records: Sequence[object], /) -> None:
        self.records += len(records)


@sc.source(batches=True)
async def endless(position: int = 0) -> AsyncIterator[tuple[list[int], int]]:
    while True:
        yield list(range(position, position + 1024)), position + 1024
        position += 1024


async def checkpoints(run: Run[Sizes]) -> Sequence[Row]:
    """A checkpoint every second, nothing slow downstream, in each mode."""
    rows: list[Row] = []
    modes: Iterable[Mode] = ("adaptive", "unaligned", "aligned")
    for mode in modes:
        run.say(mode)
        with tempfile.TemporaryDirectory() as folder:
            rows += await _checkpoints(run.sizes, mode, folder)
    return rows


async def _checkpoints(sizes: Sizes, mode: Mode, folder: str) -> list[Row]:
    counted = Counted()
    job = sc.Job("checkpoints", checkpoints=sc.Checkpoints(to=folder, mode=mode))
    numbers = job.source(endless(), name="numbers").map(scale).filter(is_kept)
    totals = numbers.key_by(key_of).process(update, state=Totals, parallelism=4, name="totals")
    totals.sink(lambda: counted, parallelism=4, name="sink")

    async with job.start() as running:

        async def window(every: str | None) -> Seconds:
            """Seconds per million records."""
            running.set_interval(every)
            before = counted.records
            took = await timed(lambda: asyncio.sleep(sizes.checkpoint_seconds))
            millions = (counted.records - before) / 1e6
            return Seconds(took.clock / millions, took.processor / millions)

        pairs = await paired(lambda: window(None), lambda: window("1s"), sizes.checkpoint_rounds)
        # What a checkpoint costs is less than the machine drifts: ten times as many show it.
        often = await paired(lambda: window(None), lambda: window("100ms"), sizes.checkpoint_rounds)
        taken = running.view().checkpoints
    completed = [one for one in taken if one.outcome == "completed"]
    rate = 1e6 / statistics.median(without.clock for without, _ in pairs)
    name = f"throughput lost to a checkpoint every second, {mode}"
    return [
        median_row(
            name,
            [(1 - without.clock / with_.clock) * 100 for without, with_ in pairs],
            "%",
            target=at_most(2.0),
            detail=f"{rate:,.0f} records/s without; {len(completed)} of {len(taken)} completed",
        ),
        median_row(
            f"{name}, of processor time",
            [(1 - without.processor / with_.processor) * 100 for without, with_ in pairs],
            "%",
        ),
        median_row(
            f"{name}: a tenth of what ten a second cost",
            [(1 - without.clock / with_.clock) * 10 for without, with_ in often],
            "%",
            target=at_most(2.0),
        ),
    ]


SUITE = Suite(
    "micro",
    {
        "stateless": stateless,
        "exchange": exchange,
        "process": process,
        "expiry": expiry,
        "calls": calls,
        "coroutine": coroutine,
        "checkpoints": checkpoints,
    },
    FULL,
    QUICK,
)
