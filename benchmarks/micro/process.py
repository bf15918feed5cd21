"""A keyed function with state, and with state that expires."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import streamcp as sc
from benchmarks.harness import Row, Run, at_least, at_most, ratio, startup
from benchmarks.micro.sizes import Sizes
from benchmarks.micro.work import Totals, key_of, update


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
