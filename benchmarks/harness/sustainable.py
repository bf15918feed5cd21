"""The maximum sustainable throughput: the highest rate at which nothing piles up."""

from __future__ import annotations

import math
import statistics
from collections.abc import Awaitable, Callable, Sequence

GROWTH = 0.01  # of the load: what the backlog may grow by, records per record
TREND = 1.5  # between the first and the second half
SLACK = 1.0  # milliseconds, in which a p99 may trend

Probe = Callable[[int], Awaitable[bool]]


def is_sustained(backlog: Sequence[Sequence[float]], p99s: Sequence[float], rate: float) -> bool:
    """Tell from the backlog over time (seconds, records) and the p99s over time (milliseconds)
    whether the load of `rate` records per second was sustained."""
    return growth(backlog, rate) <= GROWTH and not _trends(p99s)


def growth(backlog: Sequence[Sequence[float]], rate: float) -> float:
    """By how much the backlog grows, as a share of the load; NaN if it was seen only once."""
    if len(backlog) < 2:
        return math.nan
    times, records = zip(*backlog, strict=True)
    return statistics.linear_regression(times, records).slope / rate


def _trends(p99s: Sequence[float]) -> bool:
    half = len(p99s) // 2
    before, after = statistics.median(p99s[:half]), statistics.median(p99s[half:])
    return after > TREND * before + SLACK


async def highest_sustained(
    passes: Probe, low: int, high: int, *, precision: float = 0.05, confirmations: int = 2
) -> int:
    """Bisect between rates until they are within `precision`; the last one that has passed must
    pass as often again as there are confirmations, or a lower one.

    `high` is never tried: it is a rate that cannot be reached."""
    while not await passes(low):
        low, high = low // 2, low
        if low == 0:
            raise RuntimeError("no rate is sustained, not even one record per second")
    while high > low * (1 + precision) and high - low > 1:
        middle = (low + high) // 2
        if await passes(middle):
            low = middle
        else:
            high = middle
    while not await _all_pass(passes, low, confirmations):
        low = min(round(low / (1 + precision)), low - 1)
    return low


async def _all_pass(passes: Probe, rate: int, times: int) -> bool:
    return all([await passes(rate) for _ in range(times)])
