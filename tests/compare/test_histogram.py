"""Every duration is counted, to three digits; a percentile is told only with enough beyond it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.compare.histogram import Histogram, bucket_of

MICROSECONDS = st.integers(0, 3_600_000_000)


def counts_of(values: list[int]) -> Histogram:
    made = Histogram()
    for value in values:
        made.add(value / 1e6)
    return made


@pytest.mark.parametrize(
    ("value", "bucket"),
    [(0, 0), (-5, 0), (999, 999), (1000, 1000), (1009, 1000), (12_345, 12_300), (99_999, 99_900)],
)
def test_bucket_keeps_three_digits(value: int, bucket: int) -> None:
    assert bucket_of(value) == bucket


@given(values=st.lists(MICROSECONDS, min_size=1, max_size=300), share=st.floats(0, 1))
def test_percentile_is_off_by_less_than_a_hundredth(values: list[int], share: float) -> None:
    counts = counts_of(values)
    exact = sorted(values)[max(math.ceil(share * len(values) - 1e-9) - 1, 0)]

    told = counts.value_at(share)

    assert counts.count == len(values)
    assert told is not None
    assert exact / 1e6 < told <= exact * 1.01 / 1e6 + 1.0001e-6


@given(values=st.lists(MICROSECONDS, max_size=300), parts=st.integers(1, 5))
def test_counts_of_parts_add_up_to_those_of_the_whole(values: list[int], parts: int) -> None:
    halves = [counts_of(values[part::parts]) for part in range(parts)]
    stored = [Histogram.from_plain(one.as_plain()) for one in halves]

    assert Histogram.sum(stored).as_plain() == counts_of(values).as_plain()


def test_percentile_with_fewer_than_a_hundred_beyond_is_not_told() -> None:
    counts = counts_of([1000] * 999)
    assert counts.percentile(0.9) is None

    counts.add(0.001)

    assert counts.percentile(0.9) == pytest.approx(0.00101)
    assert counts.percentile(0.99) is None
    assert counts.value_at(0.99) == pytest.approx(0.00101)


def test_curve_ends_where_fewer_than_a_hundred_lie_beyond() -> None:
    counts = counts_of([*range(100, 200)] * 10)

    shares = [share for share, _ in counts.curve()]

    assert shares == pytest.approx([n / 100 for n in range(1, 91)])


def test_empty_counts_tell_nothing() -> None:
    counts = Histogram()

    assert (counts.count, counts.maximum, counts.percentile(0.5)) == (0, None, None)
    assert counts.value_at(0.5) is None
    assert counts.curve() == []
