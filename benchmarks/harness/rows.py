"""Figures: a value, its interval, its target, and how it stands to it.

A target is judged by the 95 % interval of the median, never by the median alone: missed if the
interval lies wholly on the wrong side, met if wholly on the right side, else undecided. The
interval is the exact one of order statistics: no assumption about how the noise is distributed,
and none at all from fewer than six values. What has no such interval (a slope, a ratio of two
medians, a percentile) gets one by bootstrap.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

Verdict = Literal["met", "missed", "undecided", "skipped", ""]
Interval = tuple[float, float]
T = TypeVar("T")

_DRAWS = 2000  # of a bootstrap: its ends are then stable to a few per cent of their distance


@dataclass(frozen=True, slots=True)
class Target:
    """The values that are right: from `low` to `high`, both included."""

    low: float = -math.inf
    high: float = math.inf

    def __str__(self) -> str:
        if self.low == self.high:
            return f"= {self.low:g}"
        if math.isinf(self.low):
            return f"≤ {self.high:g}"
        if math.isinf(self.high):
            return f"≥ {self.low:g}"
        return f"{self.low:g} … {self.high:g}"


RIGHT = Target(1.0, 1.0)  # of what is right (1) or wrong (0)


def at_least(low: float) -> Target:
    """More is better."""
    return Target(low=low)


def at_most(high: float) -> Target:
    """Less is better."""
    return Target(high=high)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. Without an `interval` the value is exact (a count, a maximum)."""

    name: str
    value: float
    unit: str = ""
    interval: Interval | None = None
    target: Target | None = None
    detail: str = ""
    samples: tuple[float, ...] = ()
    skipped: bool = False

    @property
    def verdict(self) -> Verdict:
        """How the figure stands to its target."""
        if self.skipped:
            return "skipped"
        if self.target is None:
            return ""
        low, high = self.interval or (self.value, self.value)
        if self.target.low <= low and high <= self.target.high:
            return "met"
        if high < self.target.low or low > self.target.high:
            return "missed"
        return "undecided"

    def as_dict(self) -> dict[str, Any]:
        """Give the figure as JSON values; what is not finite is null."""
        target = self.target
        return {
            "name": self.name,
            "value": _finite(self.value),
            "unit": self.unit,
            "interval": [_finite(end) for end in self.interval] if self.interval else None,
            "target": [_finite(target.low), _finite(target.high)] if target else None,
            "verdict": self.verdict,
            "detail": self.detail,
            "samples": list(self.samples),
        }

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Row:
        """Read what `as_dict` gave."""
        interval, target = row["interval"], row["target"]
        return cls(
            row["name"],
            _number(row["value"], math.nan),
            row["unit"],
            _ends(interval) if interval else None,
            Target(*_ends(target)) if target else None,
            row["detail"],
            tuple(row["samples"]),
            row["verdict"] == "skipped",
        )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _ends(ends: Sequence[float | None]) -> Interval:
    low, high = ends
    return _number(low, -math.inf), _number(high, math.inf)


def median_row(
    name: str,
    samples: Sequence[float],
    unit: str = "",
    *,
    target: Target | None = None,
    detail: str = "",
) -> Row:
    """The median of `samples`, with its interval."""
    middle, interval = statistics.median(samples), median_interval(samples)
    return Row(name, middle, unit, interval, target, detail, tuple(samples))


def check(name: str, passed: bool, detail: str = "") -> Row:
    """Something that is right or wrong: 1 or 0."""
    return Row(name, float(passed), "", None, RIGHT, detail)


def skipped(name: str, reason: str) -> Row:
    """Something that this machine cannot show, and why."""
    return Row(name, math.nan, detail=reason, skipped=True)


def median_interval(samples: Sequence[float]) -> Interval:
    """The exact 95 % interval of the median by order statistics; unbounded below six samples."""
    ordered, n = sorted(samples), len(samples)
    outside, rank = 0.0, 0
    while True:
        outside += math.comb(n, rank) / 2**n
        if 2 * outside > 0.05:
            break
        rank += 1
    if rank == 0:
        return (-math.inf, math.inf)
    return ordered[rank - 1], ordered[n - rank]


def bootstrap_interval(
    groups: Sequence[Sequence[T]], statistic: Callable[..., float], seed: int
) -> Interval:
    """The 95 % interval of `statistic(*groups)`, by drawing each group again from its own values.

    Say what is drawn: from the checkpoints of one process the interval does not tell how processes
    differ."""
    chance = random.Random(seed)
    drawn = sorted(
        statistic(*(chance.choices(group, k=len(group)) for group in groups)) for _ in range(_DRAWS)
    )
    cut = _DRAWS // 40
    return drawn[cut], drawn[-cut - 1]


def ratio_of_medians(
    name: str,
    above: Sequence[float],
    below: Sequence[float],
    *,
    target: Target | None = None,
    detail: str = "",
    seed: int = 0,
) -> Row:
    """The median of `above` by that of `below`, which were not measured in pairs."""

    def ratio(above: Sequence[float], below: Sequence[float]) -> float:
        return statistics.median(above) / statistics.median(below)

    interval = bootstrap_interval([above, below], ratio, seed)
    if min(len(above), len(below)) < 6:
        interval = (-math.inf, math.inf)
    return Row(name, ratio(above, below), "×", interval, target, detail)
