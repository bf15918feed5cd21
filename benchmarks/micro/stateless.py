"""Steps without state: map – filter – map."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import streamcp as sc
from benchmarks.harness import Row, Run, at_least, ratio, startup
from benchmarks.micro.sizes import Sizes
from benchmarks.micro.work import is_kept, scale, shift


async def bare_stateless(n: int) -> None:
    for value in range(n):
        scaled = scale(value)
        if is_kept(scaled):
            shift(scaled)


async def bare_stateless_chained(n: int) -> None:
    """The fastest way to write it: the loop itself in C."""
    deque(map(shift, filter(is_kept, map(scale, range(n)))), maxlen=0)


async def job_stateless(n: int) -> None:
    job = sc.Job("stateless")
    numbers = job.source(sc.items(range(n)))
    numbers.map(scale).filter(is_kept).map(shift).sink(sc.discard())
    await job.run_async()


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
