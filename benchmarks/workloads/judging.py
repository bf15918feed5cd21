"""Rows of what was taken: delays beside laws and floors, and what must hold whatever the time.

Each sample is a checkpoint; a detail tells how much the medians of the processes differ.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from benchmarks.harness import (
    Row,
    Target,
    at_least,
    at_most,
    bootstrap_interval,
    median_row,
    ratio_of_medians,
)
from benchmarks.workloads.taking import (
    ADAPTIVE,
    ALIGNED,
    SMALL,
    TIMEOUT,
    UNALIGNED,
    Entry,
    completed,
)

ALLOWANCE = 0.002  # seconds, added to delays: what the clock and a loaded machine always add
LIKE_THE_LAW = Target(0.8, 1.2)
MAY_EXCEED = 1.1  # what an adaptive checkpoint may take of an aligned one
UNALIGNED_SHARE = 1.3  # so many unaligned delays may follow a timeout

Key = Callable[[Entry], float]


def barrier(entry: Entry) -> float:
    """Seconds from the trigger until the last subtask has acted; with what the trigger was late."""
    return float(entry["barrier_delay"] + entry["lateness"])


def durable(entry: Entry) -> float:
    """Seconds from the trigger until the completion is durable."""
    return float(entry["durable_delay"])


def delay_row(name: str, entries: Sequence[Entry], *, limit: float | None = None) -> Row:
    """The median barrier delay, in milliseconds; `limit` in seconds."""
    target = None if limit is None else at_most(limit * 1000)
    delays = [1000 * barrier(entry) for entry in entries]
    return median_row(name, delays, "ms", target=target, detail=_spread(entries, barrier))


def durable_row(name: str, entries: Sequence[Entry]) -> Row:
    """The median durable delay beside a plain write and fsync of as many bytes."""
    plain = statistics.median(entry["plain_write"] for entry in entries)
    size = statistics.median(entry["state_bytes"] + entry["in_flight_bytes"] for entry in entries)
    detail = f"{size / 1e6:.3g} MB; plainly written {1000 * plain:.3g} ms"
    return median_row(name, [1000 * durable(entry) for entry in entries], "ms", detail=detail)


def _spread(entries: Sequence[Entry], key: Key) -> str:
    values = sorted(1000 * key(entry) for entry in entries)
    quarter = len(values) // 4
    processes: dict[int, list[float]] = {entry["process"]: [] for entry in entries}
    for entry in entries:
        processes[entry["process"]].append(1000 * key(entry))
    medians = ", ".join(f"{statistics.median(values):.3g}" for values in processes.values())
    return (
        f"n = {len(values)}, middle half {values[quarter]:.3g} to {values[-quarter - 1]:.3g}, "
        f"max {values[-1]:.3g}; medians of the processes {medians}"
    )


# ---- each kind beside its law


def unaligned_rows(entries: Sequence[Entry], setting: str, *, overtaking: float) -> list[Row]:
    """`overtaking`: (k + 1) times the time of a record."""
    taken = completed(entries, UNALIGNED, setting)
    if not taken:
        return []
    limit = overtaking + ALLOWANCE
    return [
        delay_row(f"unaligned barrier delay, {setting}", taken, limit=limit),
        durable_row(f"unaligned durable delay, {setting}", taken),
    ]


def aligned_rows(entries: Sequence[Entry], setting: str, *, queued: bool = False) -> list[Row]:
    """Beside the law for full queues, which is the most that it may take.

    Not all channels of a sender are full at a time, so it may take less; with `queued` also beside
    the same law for what was queued at the trigger. That says something if queues are long (of
    short ones as much is on its way between two of them) and the subtasks have about as much."""
    taken = completed(entries, ALIGNED, setting)
    if not taken:
        return []
    law = statistics.median(entry["law"] for entry in taken)
    filled = statistics.median(entry["filled"] for entry in taken)
    rows = [
        delay_row(f"aligned barrier delay, {setting}", taken),
        median_row(
            f"aligned barrier delay / law of full queues, {setting}",
            [barrier(entry) / entry["law"] for entry in taken],
            "×",
            target=at_most(LIKE_THE_LAW.high),
            detail=f"law {law:.3g} s; queues {filled:.0%} full",
        ),
    ]
    return [*rows, _queued_row(taken, setting)] if queued else rows


def _queued_row(taken: Sequence[Entry], setting: str) -> Row:
    return median_row(
        f"aligned barrier delay / law of what was queued, {setting}",
        [barrier(entry) / (entry["law"] * entry["filled"]) for entry in taken],
        "×",
        target=LIKE_THE_LAW,
    )


def law_row(entries: Sequence[Entry]) -> Row:
    """Whether the law holds, of all settings together: of long delays there are only a few each."""
    taken = completed(entries, ALIGNED)
    return _queued_row(taken, "all settings together")


def adaptive_rows(entries: Sequence[Entry], setting: str, kind: str = ADAPTIVE) -> list[Row]:
    """Never much slower than aligned ones, nor than the timeout and an unaligned one."""
    taken = completed(entries, kind, setting)
    unaligned = completed(entries, UNALIGNED, setting)
    if not taken or not unaligned:
        return []
    typical = statistics.median(map(barrier, unaligned))
    limit = TIMEOUT + UNALIGNED_SHARE * typical + ALLOWANCE
    escalated = sum(entry["escalated_after"] is not None for entry in taken)
    row = delay_row(f"{kind}: barrier delay, {setting}", taken, limit=limit)
    shares = [barrier(entry) / aligned_delay(entries, entry) for entry in taken]
    return [
        replace(row, detail=f"{row.detail}; {escalated} escalated"),
        median_row(
            f"{kind}: barrier delay / aligned, {setting}", shares, "×", target=at_most(MAY_EXCEED)
        ),
    ]


def aligned_delay(entries: Sequence[Entry], entry: Entry) -> float:
    """What an aligned checkpoint takes where `entry` was taken: the median of those that were
    measured, or the law."""
    measured = completed(entries, ALIGNED, entry["setting"])
    return statistics.median(map(barrier, measured)) if measured else float(entry["law"])


def small_rows(entries: Sequence[Entry], setting: str) -> list[Row]:
    """Aligned ones with small queues: the alternative to overtaking."""
    taken = completed(entries, SMALL, setting)
    return [delay_row(f"{SMALL}: barrier delay, {setting}", taken)] if taken else []


def times_faster(
    entries: Sequence[Entry], setting: str, *, of: Key = barrier, least: float | None = None
) -> list[Row]:
    """Aligned by unaligned: by measured ones if there are six, else by the law."""
    unaligned = completed(entries, UNALIGNED, setting)
    aligned = completed(entries, ALIGNED, setting)
    if not unaligned:
        return []
    what = "barrier" if of is barrier else "durable"
    name = f"aligned / unaligned {what} delay, {setting}"
    target = None if least is None else at_least(least)
    if len(aligned) >= 6:
        above, below = [of(one) for one in aligned], [of(one) for one in unaligned]
        return [ratio_of_medians(name, above, below, target=target, detail="both measured")]
    ratios = [aligned_delay(entries, entry) / of(entry) for entry in unaligned]
    by = f"median of {len(aligned)} aligned" if aligned else "aligned by the law"
    return [median_row(name, ratios, "×", target=target, detail=by)]


def setting_rows(entries: Sequence[Entry], setting: str, *, overtaking: float) -> list[Row]:
    """All kinds that were taken in a setting, each beside its law."""
    return [
        *unaligned_rows(entries, setting, overtaking=overtaking),
        *aligned_rows(entries, setting),
        *adaptive_rows(entries, setting),
        *times_faster(entries, setting),
    ]


# ---- how a delay depends on a setting


def slope_row(
    name: str,
    delays: Mapping[float, Sequence[float]],
    seed: int,
    target: Target | None = None,
) -> Row:
    """The slope of log(median delay + 2 ms) over log(setting), by bootstrap over checkpoints."""

    def slope(*drawn: Sequence[float]) -> float:
        return _slope(dict(zip(delays, drawn, strict=True)))

    interval = bootstrap_interval([*delays.values()], slope, seed)
    detail = "0: does not depend on it, 1: proportional to it; drawn again: checkpoints"
    return Row(name, _slope(delays), "", interval, target, detail)


def _slope(delays: Mapping[float, Sequence[float]]) -> float:
    if len(delays) < 2:
        return math.nan
    xs = [math.log(at) for at in delays]
    ys = [math.log(statistics.median(values) + ALLOWANCE) for values in delays.values()]
    return statistics.linear_regression(xs, ys).slope


# ---- what must hold whatever the time


def sanity_rows(entries: Sequence[Entry]) -> list[Row]:
    """Nothing failed, and only an unaligned barrier leaves records behind it."""
    failed = sum(entry["outcome"] != "completed" for entry in entries)
    captured = sum(
        entry["channel_records"]
        for entry in entries
        if entry["outcome"] == "completed"
        and entry["started"] == "aligned"
        and entry["escalated_after"] is None
    )
    of = f"of {len(entries)}"
    return [
        Row("checkpoints that did not complete", failed, target=at_most(0), detail=of),
        Row("records captured of channels by aligned checkpoints", captured, target=at_most(0)),
    ]
