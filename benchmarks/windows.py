"""Windows: what they cost beside a bare loop, and what sliding ones cost beside tumbling ones.

Each window of a figure is one whole job, as in `micro`. Fifty keys, ten milliseconds of event time
per record: a window of a minute holds 120 records of each key, a session a hundred.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamcp as sc
from benchmarks.harness import Row, Run, Suite, at_least, at_most
from benchmarks.harness.ratios import Work, ratio

KEYS = 50
FIRST = 1_704_067_200_000
STEP = 10  # milliseconds of event time per record
MINUTE = 60_000
BATCH = 512  # records after which the bare loops look for what is over
GAP = 3_000
PAUSE = 600_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """Records per window, and windows per figure."""

    records: int
    rounds: int


FULL = Sizes(500_000, 31)
QUICK = Sizes(100_000, 7)


def key_of(value: int) -> int:
    return value % KEYS


def time_of(value: int) -> int:
    return FIRST + value * STEP


def time_in_sessions(value: int) -> int:
    """Bursts of a hundred records per key, with pauses between them."""
    return FIRST + value * STEP + value // (100 * KEYS) * PAUSE


# ---- the bare loops


async def bare_tumbling(n: int) -> None:
    counts: dict[tuple[int, int], int] = {}
    for first in range(0, n, BATCH):
        newest = 0
        for value in range(first, min(first + BATCH, n)):
            time = time_of(value)
            if time > newest:
                newest = time
            window = (key_of(value), time - time % MINUTE)
            counts[window] = counts.get(window, 0) + 1
        for window in [window for window in counts if window[1] + MINUTE <= newest]:
            _ = (window, counts.pop(window))


async def bare_sessions(n: int) -> None:
    sessions: dict[int, list[int]] = {}  # key to start, end and count
    for first in range(0, n, BATCH):
        newest = 0
        for value in range(first, min(first + BATCH, n)):
            time, key = time_in_sessions(value), key_of(value)
            if time > newest:
                newest = time
            session = sessions.get(key)
            if session is not None and time < session[1]:
                session[1] = time + GAP
                session[2] += 1
            else:
                if session is not None:
                    _ = (key, *session)
                sessions[key] = [time, time + GAP, 1]
        for key in [key for key, session in sessions.items() if session[1] <= newest]:
            _ = (key, *sessions.pop(key))


# ---- the jobs


async def job(n: int, windows: sc.Windows, times: sc.Watermarks[int] | None = None) -> None:
    described = sc.Job("windows")
    numbers = described.source(
        sc.items(range(n)), watermarks=sc.Watermarks(time_of) if times is None else times
    )
    numbers.key_by(key_of).window(windows).count().sink(sc.discard())
    await described.run_async()


def job_of(windows: sc.Windows) -> Work:
    return lambda n: job(n, windows)


async def job_sessions(n: int) -> None:
    await job(n, sc.Session("3s"), sc.Watermarks(time_in_sessions))


# ---- the figures


async def tumbling(run: Run[Sizes]) -> Sequence[Row]:
    """Tumbling windows of a minute, counted per key."""
    n, rounds = run.sizes.records, run.sizes.rounds
    name = "tumbling count per key / bare loop"
    windows = job_of(sc.Tumbling("1m"))
    return await ratio(name, bare_tumbling, windows, n, rounds, at_least(0.5))


async def sliding(run: Run[Sizes]) -> Sequence[Row]:
    """Sliding windows with a step of a minute, beside tumbling ones of a minute."""
    n, rounds = run.sizes.records, run.sizes.rounds
    floor = job_of(sc.Tumbling("1m"))
    return [
        row
        for size, panes in (("10m", 10), ("1h", 60))
        for row in await ratio(
            f"cost of sliding windows, {panes} at a time / of tumbling ones",
            floor,
            job_of(sc.Sliding(size, every="1m")),
            n,
            rounds,
            at_most(2.0),
            of_cost=True,
        )
    ]


async def sessions(run: Run[Sizes]) -> Sequence[Row]:
    """Sessions of a hundred records, counted per key."""
    n, rounds = run.sizes.records, run.sizes.rounds
    name = "session count per key / bare loop"
    return await ratio(name, bare_sessions, job_sessions, n, rounds, at_least(0.2))


SUITE = Suite(
    "windows", {"tumbling": tumbling, "sliding": sliding, "sessions": sessions}, FULL, QUICK
)
