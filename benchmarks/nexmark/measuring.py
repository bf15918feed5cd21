"""How fast the queries are beside the loops written by hand, and whether both answer as SQL does.

The events are made before, once for all queries; making them is a figure of its own. Floor and
subject take turns in one process, as in `micro`. Each window of a figure is a whole job.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import streamcp as sc
from benchmarks.harness import Benchmark, Row, Run, Suite, check, median_row, paired, timed
from benchmarks.harness.ratios import ratio_rows, startup
from benchmarks.nexmark.answers import Answers, difference
from benchmarks.nexmark.generator import Auctioneering, events
from benchmarks.nexmark.jobs import job, results, results_in_virtual_time, shared_out
from benchmarks.nexmark.model import Event
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.query import Query, its_own_time


@dataclass(frozen=True, slots=True)
class Sizes:
    """Events per window, windows per figure, and what the jobs are run with."""

    events: int
    rounds: int
    parallelism: int = 1
    checkpoints: str | None = None  # a duration between two


FULL = Sizes(500_000, 15)
QUICK = Sizes(50_000, 7)


@lru_cache(maxsize=1)
def made(count: int, seed: int) -> list[Event]:
    """The events of a run; the collector never looks at them again."""
    found = events(count, Auctioneering(seed))
    gc.collect()
    gc.freeze()
    return found


@lru_cache(maxsize=1)
def answers(count: int, seed: int) -> Answers:
    """SQL over the same events."""
    return Answers(made(count, seed))


async def generator(run: Run[Sizes]) -> Sequence[Row]:
    """How fast events are made: no query waits for it."""
    rates = []
    for number in range(run.sizes.rounds):
        started = time.perf_counter()
        events(run.sizes.events // 10, Auctioneering(number))
        rates.append(run.sizes.events // 10 / (time.perf_counter() - started))
    return [median_row("events made", rates, "/s")]


async def measure(query: Query[Any], run: Run[Sizes]) -> Sequence[Row]:
    """One query: are the results right, and how long do they take?"""
    name, count, found = query.name, run.sizes.events, made(run.sizes.events, run.seed)
    run.say("compared with SQL")
    rows = await compared(query, run)
    run.say("measured")
    checkpoints: list[int] = []

    async def loop() -> None:
        deque(query.by_hand(found), maxlen=0)

    async def subject() -> None:
        checkpoints.append(await run_discarding(query, found, run.sizes))

    async def first(n: int) -> None:
        await run_discarding(query, found[:n], run.sizes)

    pairs = await paired(lambda: timed(loop), lambda: timed(subject), run.sizes.rounds)
    taken = f"{statistics.median(checkpoints):g} checkpoints" if run.sizes.checkpoints else ""
    loops, jobs = ([count / one.clock for one in ones] for ones in zip(*pairs, strict=True))
    return [
        *rows,
        median_row(f"{name}: job", jobs, "/s", detail=taken),
        median_row(f"{name}: loop", loops, "/s"),
        *ratio_rows(f"{name}: job / loop", pairs, count),
        await startup(first),
    ]


async def run_discarding(query: Query[Any], found: Sequence[Event], sizes: Sizes) -> int:
    """Run a query's whole job, drop what it emits, and return how many checkpoints were taken."""
    source, p = shared_out(found, sizes.parallelism), sizes.parallelism
    if sizes.checkpoints is None:
        result = await job(query, source, sc.discard, parallelism=p).run_async()
        return result.completed_checkpoints
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = sc.Checkpoints(to=folder, every=sizes.checkpoints)
        taking = job(query, source, sc.discard, parallelism=p, checkpoints=checkpoints)
        return (await taking.run_async()).completed_checkpoints


async def compared(query: Query[Any], run: Run[Sizes]) -> list[Row]:
    """Compare all results of the job and of the loop with those of SQL."""
    sizes = run.sizes
    found = made(sizes.events, run.seed)
    expected = answers(sizes.events, run.seed).ask(query.sql)
    if query.by_clock is not None:
        by_hand = [*query.by_clock(found, its_own_time)]
        of_job = await asyncio.to_thread(results_in_virtual_time, query, found, sizes.parallelism)
    else:
        by_hand = [*query.by_hand(found)]
        of_job = await results(query, found, sizes.parallelism)
    return [
        check(f"{query.name}: {name} as SQL says", not problem, problem or detail)
        for name, rows in (("results of the job", of_job), ("results of the loop", by_hand))
        for problem in [difference(query, rows, expected)]
        for detail in [f"{expected.total():,} rows"]
    ]


def _benchmark(query: Query[Any]) -> Benchmark[Sizes]:
    async def measured(run: Run[Sizes]) -> Sequence[Row]:
        return await measure(query, run)

    measured.__doc__ = sys.modules[query.stream.__module__].__doc__  # opens with the question
    return measured


def _benchmarks() -> dict[str, Benchmark[Sizes]]:
    queries = {name: _benchmark(query) for name, query in QUERIES.items()}
    return {"generator": generator, **queries}


def _add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("nexmark")
    group.add_argument("--events", type=int, metavar="N", help="events per window")
    group.add_argument("--parallelism", type=int, metavar="P", help="of every step")
    group.add_argument("--checkpoints", metavar="EVERY", help='take one so often, e.g. "1s"')


def _resize(sizes: Sizes, options: argparse.Namespace) -> Sizes:
    return replace(
        sizes,
        events=options.events or sizes.events,
        parallelism=options.parallelism or sizes.parallelism,
        checkpoints=options.checkpoints or sizes.checkpoints,
    )


SUITE = Suite(
    "nexmark",
    _benchmarks(),
    FULL,
    QUICK,
    add_options=_add_options,
    resize=_resize,
    checks_always=True,
)
