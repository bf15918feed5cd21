"""Coroutines: calls that take time, and ones that take none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import streamcp as sc
from benchmarks.harness import Row, Run, at_least, at_most, ratio
from benchmarks.micro.sizes import Sizes
from benchmarks.micro.work import CONCURRENCY, pause, scale, scale_at_once


async def bare_pool(n: int) -> None:
    values = iter(range(n))

    async def worker() -> None:
        for value in values:
            await pause(value)

    async with asyncio.TaskGroup() as group:
        for _ in range(CONCURRENCY):
            group.create_task(worker())


async def job_calls(n: int, *, ordered: bool) -> None:
    job = sc.Job("calls")
    numbers = job.source(sc.items(range(n)))
    numbers.map(pause, concurrency=CONCURRENCY, ordered=ordered).sink(sc.discard())
    await job.run_async()


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


async def job_plain_map(n: int) -> None:
    job = sc.Job("plain")
    job.source(sc.items(range(n))).map(scale).sink(sc.discard())
    await job.run_async()


async def job_coroutine_map(n: int, *, ordered: bool = True) -> None:
    job = sc.Job("coroutine")
    job.source(sc.items(range(n))).map(scale_at_once, ordered=ordered).sink(sc.discard())
    await job.run_async()


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
