"""Durations counted in buckets of three significant digits, every one of them.

A bucket is as wide as its values' third digit: up to 999 µs a microsecond, then 10 µs, and so on
without an end. So a percentile is off by less than one percent, whatever the size, and counts of
several runs can be added. (HdrHistogram does the same in powers of two. Its Python package brings a
compiled extension and a second dependency for what are thirty lines here.)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

# A percentile with fewer values beyond it says more of chance than of the job.
ENOUGH_BEYOND = 100


class Histogram:
    """Counts of durations. `buckets` has their least values in microseconds."""

    def __init__(self, buckets: Mapping[int, int] | None = None) -> None:
        self.buckets: Counter[int] = Counter(buckets or {})

    @classmethod
    def from_plain(cls, plain: Mapping[str, int]) -> Histogram:
        """Read what `as_plain` gave."""
        return cls({int(bucket): count for bucket, count in plain.items()})

    def as_plain(self) -> dict[str, int]:
        """Give the counts as JSON values, in order."""
        return {str(bucket): self.buckets[bucket] for bucket in sorted(self.buckets)}

    def add(self, seconds: float, count: int = 1) -> None:
        """Count a duration so many times; a negative one as zero."""
        self.buckets[bucket_of(round(seconds * 1e6))] += count

    @classmethod
    def sum(cls, parts: Iterable[Histogram]) -> Histogram:
        """Add the counts of several."""
        whole = cls()
        for part in parts:
            whole.buckets.update(part.buckets)
        return whole

    @property
    def count(self) -> int:
        """How many durations there are."""
        return self.buckets.total()

    @property
    def maximum(self) -> float | None:
        """The upper end of the highest bucket, in seconds."""
        return end_of(max(self.buckets)) if self.buckets else None

    def percentile(self, share: float) -> float | None:
        """The duration that `share` (0 to 1) of all do not exceed, in seconds: the upper end of its
        bucket. None unless a hundred lie beyond it (half of all, for the median)."""
        return self.value_at(share) if self.tells(share) else None

    def tells(self, share: float) -> bool:
        """Say whether there are enough values for a percentile."""
        beyond = math.floor(self.count * (1 - share) + 1e-9)
        return beyond >= ENOUGH_BEYOND

    def value_at(self, share: float) -> float | None:
        """As `percentile`, however few there are; for figures that show how many there are."""
        needed = max(math.ceil(share * self.count - 1e-9), 1)
        return next((value for upto, value in self._steps() if upto >= needed), None)

    def curve(self) -> list[tuple[float, float]]:
        """The share of all up to each bucket, and its upper end in seconds; as far as percentiles
        tell something."""
        count = self.count
        points = [(upto / count, value) for upto, value in self._steps()]
        return [(share, value) for share, value in points if self.tells(share)]

    def _steps(self) -> Iterator[tuple[int, float]]:
        upto = 0
        for bucket in sorted(self.buckets):
            upto += self.buckets[bucket]
            yield upto, end_of(bucket)


def bucket_of(microseconds: int) -> int:
    """The least value of the bucket that a value is in."""
    value = max(microseconds, 0)
    width = _width(value)
    return value // width * width


def _width(value: int) -> int:
    digits = len(str(value))
    return int("1" + "0" * max(digits - 3, 0))


def end_of(bucket: int) -> float:
    """In seconds. Every value of the bucket is below."""
    return (bucket + _width(bucket)) / 1e6
