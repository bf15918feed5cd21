"""W8: the sink is ten times slower for a while; adaptive checkpoints switch over, and back.

Load 0.8 of the service, open loop. What piles up outside in the slow seconds takes longer to work
off: the window ends when the backlog is what it was before. What a source or the service has in
hand counts as in flight, also with aligned checkpoints: these are the measure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from benchmarks.harness import Row, Run, Suite, at_most, check, skipped
from benchmarks.harness.recorder import backlog
from benchmarks.workloads.load import CAPACITY, EVERY, SERVICE, is_unaligned
from benchmarks.workloads.running import Load, run_open

SHARE = 0.8
UNALIGNED, ALIGNED = "0", "none"
TIMEOUTS = (ALIGNED, "1s", "100ms", "10ms", UNALIGNED)
START = EDGE = 0.5  # seconds
IN_HAND = 1000  # bytes: some records more or less in the hands of sources and service
SLOW_TO_TELL = ("100ms", "1s")  # timeouts that a busy machine does not reach by itself


@dataclass(frozen=True, slots=True)
class Sizes:
    """Seconds of a run, and from when to when the sink is slow."""

    seconds: int
    slow: tuple[float, float]
    timeouts: Sequence[str] = TIMEOUTS


FULL = Sizes(16, (3.0, 5.0))
QUICK = Sizes(6, (1.5, 2.0), (ALIGNED, "100ms"))


async def transient(run: Run[Sizes]) -> Sequence[Row]:
    """Do adaptive checkpoints switch over when the sink is slow for a while, and back?"""
    rows, kept = list[Row](), list[dict[str, Any]]()
    limit = math.inf
    for timeout in run.sizes.timeouts:
        run.say(f"timeout {timeout}")
        spec = _load(run, timeout)
        ran = await run_open(spec)
        window = slow_window(backlog(ran.slices, spec.schedule.times()), run.sizes.slow)
        inside, outside = _parted(ran.checkpoints, window)
        if timeout == ALIGNED:
            limit = most_in_flight(outside) + IN_HAND
        rows += _rows(timeout, inside, outside, limit)
        if timeout in SLOW_TO_TELL:
            rows += _switches(f"timeout {timeout}", inside, outside, window)
        kept.append({"timeout": timeout, "window": window, **ran.as_json()})
    run.keep("runs", kept)
    return rows


def _load(run: Run[Sizes], timeout: str) -> Load:
    modes = {UNALIGNED: "unaligned", ALIGNED: "aligned"}
    return Load(
        round(SHARE * SERVICE),
        run.sizes.seconds,
        0.0,
        modes.get(timeout, "adaptive"),
        every=EVERY,
        timeout="100ms" if timeout in modes else timeout,
        seed=run.seed,
        capacity=CAPACITY,
        service=SERVICE,
        slow=run.sizes.slow,
        drain=False,
    )


def slow_window(
    waiting: Sequence[Sequence[float]], slow: tuple[float, float]
) -> tuple[float, float]:
    """From when the sink is slow until the backlog is what it was at most before; infinity if it
    never is."""
    before = max((records for at, records in waiting if 1 <= at <= slow[0]), default=0.0)
    after = (at for at, records in waiting if at > slow[1] and records <= before)
    return slow[0], next(after, math.inf)


Checkpoints: TypeAlias = Sequence[Mapping[str, Any]]


def _parted(
    checkpoints: Checkpoints, window: tuple[float, float]
) -> tuple[Checkpoints, Checkpoints]:
    """Those of the window, and the others; not those of the start, nor of the window's edge."""
    done = [one for one in checkpoints if one["outcome"] == "completed"]
    inside = [one for one in done if window[0] <= one["at"] < window[1]]
    before = [one for one in done if START <= one["at"] < window[0] - EDGE]
    return inside, before + [one for one in done if one["at"] >= window[1]]


def most_in_flight(checkpoints: Checkpoints) -> float:
    """The most bytes in flight of all."""
    return max((one["in_flight_bytes"] for one in checkpoints), default=math.nan)


def _rows(timeout: str, inside: Checkpoints, outside: Checkpoints, limit: float) -> list[Row]:
    at = f"timeout {timeout}"
    rows = [
        _longest(f"barrier delay, slow, longest, {at}", inside),
        _longest(f"barrier delay, not slow, longest, {at}", outside),
    ]
    if not outside:
        return rows
    return [
        *rows,
        Row(
            f"in-flight bytes, not slow, most, {at}",
            most_in_flight(outside),
            target=at_most(limit) if timeout in SLOW_TO_TELL and limit > 0 else None,
            detail=f"slow: {most_in_flight(inside):,}; limit: aligned ones and 1 kB",
        ),
    ]


def _longest(name: str, checkpoints: Checkpoints) -> Row:
    if not checkpoints:
        return skipped(name, "there was none")
    longest = max(one["barrier_ms"] for one in checkpoints)
    switched = sum(is_unaligned(one) for one in checkpoints)
    return Row(
        name, longest, "ms", detail=f"{len(checkpoints)} checkpoints, {switched} not aligned"
    )


def _switches(
    at: str, inside: Checkpoints, outside: Checkpoints, window: tuple[float, float]
) -> list[Row]:
    over = [one["at"] - window[0] for one in inside if is_unaligned(one)]
    after = f"{min(over, default=math.nan):.1f} s after the sink became slow"
    rows = [check(f"switches over, {at}", bool(over), after)]
    name, back = f"switches back, {at}", [one for one in outside if one["at"] >= window[1]]
    if not back:
        return [*rows, skipped(name, "the backlog was not worked off until the end")]
    aligned = sum(not is_unaligned(one) for one in back)
    detail = f"{aligned} of {len(back)} behind the {window[1] - window[0]:.1f} s are aligned"
    return [*rows, check(name, aligned > 0, detail)]


SUITE = Suite("transient", {"transient": transient}, FULL, QUICK)
