"""Floor and subject side by side, as a share of speed or of cost per record."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Sequence

from benchmarks.harness.rows import Row, Target, median_row
from benchmarks.harness.timing import Seconds, paired, timed

Work = Callable[[int], Awaitable[object]]
"""Does something with so many records."""


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
