"""What `journal=True` costs: journaled calls beside the same ones without.

Jobs of both kinds have checkpoints, and none but the final one is taken. An answer is timed from
the return of its function until the next step has it: with a journal it has become durable.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import streamcp as sc
from benchmarks.harness import Row, Run, Suite, at_least, median_row
from benchmarks.harness.ratios import Work, ratio
from benchmarks.micro.work import CONCURRENCY, pause, scale_at_once


@dataclass(frozen=True, slots=True)
class Sizes:
    """Calls per window, windows per figure, and answers that are timed."""

    calls: int
    rounds: int
    answers: int


FULL = Sizes(10_000, 31, 4000)
QUICK = Sizes(3_000, 7, 1000)

Call = Callable[[int], Coroutine[Any, Any, int]]


async def run_calls(
    n: int,
    call: Call,
    then: Callable[[int], object] = bool,
    *,
    journal: bool,
    concurrency: int = CONCURRENCY,
    ordered: bool = True,
) -> None:
    """Make n calls; `then` is told of each answer."""
    with tempfile.TemporaryDirectory() as folder:
        job = sc.Job("calls", checkpoints=sc.Checkpoints(to=folder, every=None))
        numbers = job.source(sc.items(range(n)), name="numbers")
        answers = numbers.map(
            call, name="call", concurrency=concurrency, ordered=ordered, journal=journal
        )
        answers.for_each(then)
        await job.run_async()


async def calls(run: Run[Sizes]) -> Sequence[Row]:
    """Calls that take 5 ms, 100 at once; and ones that take no time, where every µs shows."""
    n, rounds = run.sizes.calls, run.sizes.rounds
    slow, fast = _works(pause), _works(scale_at_once)
    share = "journaled calls of 5 ms / without"
    cost = "cost of a journaled call of no time / without"
    return [
        *await ratio(share, *slow, n, rounds, at_least(0.5)),
        *await ratio(cost, *fast, n, rounds, None, of_cost=True),
    ]


def _works(call: Call) -> tuple[Work, Work]:
    return (
        lambda n: run_calls(n, call, journal=False),
        lambda n: run_calls(n, call, journal=True),
    )


async def answers(run: Run[Sizes]) -> Sequence[Row]:
    """How long an answer waits until it counts."""
    return [
        median_row(
            "answer until it counts, without a journal", await _waits(run, journal=False), "ms"
        ),
        median_row("answer until it is durable and counts", await _waits(run, journal=True), "ms"),
    ]


async def _waits(run: Run[Sizes], *, journal: bool) -> list[float]:
    returned: dict[int, float] = {}
    waits: list[float] = []

    async def call(number: int) -> int:
        await asyncio.sleep(0.02 + number % 7 / 1000)
        returned[number] = perf_counter()
        return number

    def then(number: int) -> None:
        waits.append((perf_counter() - returned.pop(number)) * 1000)

    await run_calls(run.sizes.answers, call, then, journal=journal, concurrency=20, ordered=False)
    return waits


SUITE = Suite("journal", {"calls": calls, "answers": answers}, FULL, QUICK)
