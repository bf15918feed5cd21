"""A keyed count behind an exchange."""

from __future__ import annotations

from collections.abc import Sequence

import streamcp as sc
from benchmarks.harness import Row, Run, at_least, ratio, startup
from benchmarks.micro.sizes import Sizes
from benchmarks.micro.work import is_kept, key_of, scale


async def bare_count(n: int) -> None:
    counts: dict[int, int] = {}
    for value in range(n):
        scaled = scale(value)
        if is_kept(scaled):
            key = key_of(scaled)
            count = counts[key] = counts.get(key, 0) + 1
            _ = (key, count)


async def job_count(n: int) -> None:
    job = sc.Job("count")
    kept = job.source(sc.items(range(n))).map(scale).filter(is_kept)
    kept.key_by(key_of).count(parallelism=4).sink(sc.discard, parallelism=4)
    await job.run_async()


async def exchange(run: Run[Sizes]) -> Sequence[Row]:
    """map – filter – exchange over four channels – keyed count."""
    n, rounds = run.sizes.records * 2, run.sizes.rounds
    name = "exchange and keyed count / bare loop"
    return [
        *await ratio(name, bare_count, job_count, n, rounds, at_least(0.65)),
        await startup(job_count),
    ]
