"""Counters and histograms: small, fast, exact in count and maximum.

Not shared between threads: each belongs to one event loop.
"""

from __future__ import annotations

import math

# Values below 2,048 units have a bucket each; above, each power of two has 1,024 buckets, every one
# narrower than 0.1 % of its values: three significant digits.
_STEP_BITS = 11
_STEPS = 1 << _STEP_BITS


class Counter:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1) -> None:
        """Grow by `amount` (0 or more)."""
        self.value += amount

    def __repr__(self) -> str:
        """Show the value."""
        return f"Counter({self.value})"


class Histogram:
    """How values are distributed, every one counted, in log-linear buckets.

    `unit` is the smallest difference that is told apart (0.000001 for seconds: a microsecond);
    beyond 2,048 units a value is known to three significant digits. The memory grows with the
    number of different buckets, not of values.
    """

    __slots__ = ("_buckets", "_unit", "count", "max", "total")

    def __init__(self, unit: float = 1e-6) -> None:
        """Begin empty: `count` and `total` are 0, `max` is 0.0."""
        self._unit = unit
        self._buckets: dict[int, int] = {}
        self.count = 0
        self.total = 0.0
        self.max = 0.0

    def record(self, value: float) -> None:
        """Count one value. A negative one (a clock that jumped) counts as 0."""
        if value < 0:
            value = 0.0
        units = int(value / self._unit + 0.5)
        shift = units.bit_length() - _STEP_BITS
        index = units if shift <= 0 else shift * _STEPS + (units >> shift)
        self._buckets[index] = self._buckets.get(index, 0) + 1
        self.count += 1
        self.total += value
        if value > self.max:
            self.max = value

    def percentile(self, share: float) -> float | None:
        """Nearest rank: the value that at least `share` (0 to 1) of all do not exceed, rounded up
        to its bucket but never above the maximum. None if nothing was recorded."""
        rank = max(math.ceil(share * self.count), 1)
        seen = 0
        for index in sorted(self._buckets):
            seen += self._buckets[index]
            if seen >= rank:
                return min(_upper(index) * self._unit, self.max)
        return None

    @property
    def mean(self) -> float | None:
        """The arithmetic mean; None if nothing was recorded."""
        return self.total / self.count if self.count else None

    def __repr__(self) -> str:
        """Show how many values and the largest."""
        return f"Histogram(count={self.count}, max={self.max:g})"


def _upper(index: int) -> int:
    """The largest number of units that belongs to a bucket."""
    shift, step = divmod(index, _STEPS)
    # A shifted step has its highest bit set, so it is never below half of _STEPS: no index of a
    # shifted bucket is that of an unshifted one.
    return ((step + 1) << shift) - 1
