"""The checkpoints that a run took, and the rows that are made of them."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import Row, at_least, median_row, ratio_of_medians, skipped


@dataclass(frozen=True)
class Taken:
    """The checkpoints of one configuration: seconds and captured bytes of the complete ones, and
    the age of what had not ended; `records`: how many were captured, where an engine tells."""

    name: str
    seconds: tuple[float, ...]
    sizes: tuple[float, ...]
    records: tuple[int, ...]
    failed: int
    unfinished: tuple[float, ...]

    @classmethod
    def of(cls, name: str, extra: Mapping[str, Any]) -> Taken:
        """Read what an engine told."""
        taken = extra["checkpoints"]
        return cls(
            name,
            tuple(one["seconds"] for one in taken),
            tuple(one["bytes"] for one in taken),
            tuple(one["records"] for one in taken if "records" in one),
            extra["failed"],
            tuple(extra["unfinished"]),
        )

    def and_also(self, other: Taken) -> Taken:
        """Both together: the same configuration in another process."""
        return Taken(
            self.name,
            self.seconds + other.seconds,
            self.sizes + other.sizes,
            self.records + other.records,
            self.failed + other.failed,
            self.unfinished + other.unfinished,
        )

    @property
    def longest(self) -> float:
        """The longest of all, also if it had not ended."""
        return max((*self.seconds, *self.unfinished), default=0.0)

    @property
    def told(self) -> str:
        """How many there were, and what was in flight."""
        parts = [f"{len(self.seconds)} completed"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self.unfinished:
            parts.append(f"one not after {max(self.unfinished):.1f} s")
        if self.sizes:
            parts.append(f"{statistics.median(self.sizes) / 1e6:.2f} MB in flight")
        if self.records:
            parts.append(f"{statistics.median(self.records):,.0f} records")
        return ", ".join(parts)


def rows_of(taken: Taken) -> list[Row]:
    """Median and maximum of one configuration, in milliseconds."""
    if not taken.seconds:
        return [skipped(f"{taken.name}, p50", f"no checkpoint ended: {taken.told}")]
    milliseconds = [seconds * 1000 for seconds in taken.seconds]
    return [
        median_row(f"{taken.name}, p50", milliseconds, "ms", detail=taken.told),
        Row(f"{taken.name}, max", max(milliseconds), "ms"),
    ]


@dataclass(frozen=True)
class Goals:
    """How many times longer the checkpoints of a peer must take at least, if anything is asked."""

    p50: float | None = None
    longest: float | None = None


def compared(ours: Taken, peer: Taken, goals: Goals, seed: int) -> list[Row]:
    """How many times longer the peer's checkpoints take. Where none of the peer's ended, the age of
    the one under way is what can be said."""
    name = f"{peer.name} / {ours.name}"
    if not ours.seconds:
        return [skipped(name, f"no checkpoint of streamcp ended: {ours.told}")]
    target = None if goals.longest is None else at_least(goals.longest)
    rows = [Row(f"{name}, max", peer.longest / ours.longest, "×", target=target)]
    if peer.seconds:
        target = None if goals.p50 is None else at_least(goals.p50)
        row = ratio_of_medians(f"{name}, p50", peer.seconds, ours.seconds, target=target, seed=seed)
        faster = "the peer is faster" if row.value < 1 else ""
        rows.insert(0, dataclasses.replace(row, detail=faster))
    elif goals.p50 is not None:
        target = at_least(goals.p50)
        lower = peer.longest / statistics.median(ours.seconds)
        detail = "none of the peer's ended: so many times at least"
        row = Row(f"{name}, p50", lower, "×", (lower, math.inf), target, detail)
        rows.insert(0, row)
    return rows
