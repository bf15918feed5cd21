"""Counters and histograms."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.observability.metrics import Counter, Histogram

SECONDS = st.floats(0, 3600)


def test_counter_adds_up() -> None:
    counter = Counter()
    counter.add()
    counter.add(41)
    assert counter.value == 42
    assert repr(counter) == "Counter(42)"


def test_empty_histogram_has_no_percentile_and_no_mean() -> None:
    histogram = Histogram()
    assert (histogram.percentile(0.5), histogram.mean) == (None, None)
    assert (histogram.count, histogram.max) == (0, 0.0)


def test_small_values_are_told_apart_by_the_unit() -> None:
    histogram = Histogram(unit=1.0)
    for value in (1, 2, 3, 2047):
        histogram.record(value)
    assert [histogram.percentile(share) for share in (0.25, 0.5, 0.75, 1.0)] == [1, 2, 3, 2047]


def test_negative_value_counts_as_zero() -> None:
    histogram = Histogram()
    histogram.record(-1.0)
    assert (histogram.count, histogram.total, histogram.percentile(1.0)) == (1, 0.0, 0.0)


def test_repr_tells_count_and_maximum() -> None:
    histogram = Histogram()
    histogram.record(0.25)
    assert repr(histogram) == "Histogram(count=1, max=0.25)"


@given(st.lists(SECONDS, min_size=1, max_size=200))
def test_count_mean_and_maximum_are_exact(values: list[float]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    assert (histogram.count, histogram.max) == (len(values), max(values))
    assert histogram.mean == pytest.approx(sum(values) / len(values))
    assert histogram.percentile(1.0) == pytest.approx(max(values), rel=1e-3, abs=1e-6)


@given(st.lists(SECONDS, min_size=1, max_size=200), st.floats(0, 1))
def test_percentile_is_the_nearest_rank_to_three_digits(values: list[float], share: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    exact = sorted(values)[max(math.ceil(share * len(values)), 1) - 1]
    assert histogram.percentile(share) == pytest.approx(exact, rel=1e-3, abs=1e-6)


@given(st.integers(0, 10**12))
def test_single_value_is_never_reported_above_itself(units: int) -> None:
    histogram = Histogram(unit=1.0)
    histogram.record(units)
    assert histogram.percentile(0.5) == units
