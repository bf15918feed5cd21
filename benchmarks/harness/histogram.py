"""Latencies as a histogram, in the buckets of `streamcp compare`: three significant digits.

Made after the run, of an array of all values: recording one costs the job no more than an append.
Several are asked at once without being merged, as a bootstrap needs it. The buckets are published,
so that whoever doubts a percentile can count again.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from streamcp.compare.histogram import ENOUGH_BEYOND, bucket_of, end_of

UNIT = 1000  # nanoseconds: no reading of the clock tells more of a batch
SHARES = (0.5, 0.9, 0.99, 0.999)


class Histogram:
    """How many values (nanoseconds) lie in which bucket; `buckets` are pairs of the lowest
    microsecond of a bucket and the count, in order."""

    def __init__(
        self, values: Iterable[int] = (), buckets: Iterable[Sequence[int]] | None = None
    ) -> None:
        if buckets is None:
            buckets = _bucketed(Counter(value // UNIT for value in values)).items()
        ordered = sorted((lowest, count) for lowest, count in buckets)
        self.buckets: Sequence[tuple[int, int]] = ordered
        self._lowest = [lowest for lowest, _ in ordered]
        self._upto = list(accumulate((count for _, count in ordered), initial=0))

    @property
    def count(self) -> int:
        """How many values there are."""
        return self._upto[-1]

    @property
    def lowest(self) -> Sequence[int]:
        """The lowest microsecond of each bucket, in order."""
        return self._lowest

    def upto(self, lowest: int) -> int:
        """How many values lie in the bucket that begins there, or in lower ones."""
        return self._upto[bisect_right(self._lowest, lowest)]

    def quantile(self, share: float) -> float:
        """The value in milliseconds that at least `share` of the values do not exceed: the highest
        one of its bucket. NaN where there are fewer than 100 values beyond it."""
        return quantile([self], share)

    @property
    def maximum(self) -> float:
        """The largest value in milliseconds: the highest one of its bucket; NaN if there is none.
        It is one value, whatever the number of values."""
        return _highest(self._lowest[-1]) if self._lowest else math.nan

    def shown(self) -> dict[str, float | None]:
        """The percentiles that may be shown, and the maximum, in milliseconds, by name."""
        found = {f"p{100 * share:g}": self.quantile(share) for share in SHARES}
        found["max"] = self.maximum
        return {name: None if math.isnan(value) else value for name, value in found.items()}


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """All values together."""
    total = Counter[int]()
    for one in histograms:
        total.update(dict(one.buckets))
    return Histogram(buckets=total.items())


def quantile(histograms: Sequence[Histogram], share: float) -> float:
    """The same of all values together, without merging: for a bootstrap, which asks often."""
    count = sum(one.count for one in histograms)
    rank = math.ceil(share * count)
    if count - rank < ENOUGH_BEYOND:
        return math.nan
    places = sorted({lowest for one in set(histograms) for lowest in one.lowest})
    found = bisect_left(places, rank, key=lambda at: sum(one.upto(at) for one in histograms))
    return _highest(places[found])


def _bucketed(microseconds: Mapping[int, int]) -> Counter[int]:
    found = Counter[int]()
    for value, count in microseconds.items():
        found[bucket_of(value)] += count
    return found


def _highest(lowest: int) -> float:
    """The end of a bucket, in milliseconds."""
    return end_of(lowest) * 1000
