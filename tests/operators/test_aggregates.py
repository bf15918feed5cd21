"""Every aggregate equals a plain computation over all records, however they were merged."""

from __future__ import annotations

import math
import pickle
import statistics
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.errors import DefinitionError
from streamcp.operators.aggregates import (
    Aggregate,
    Count,
    First,
    Last,
    Max,
    Mean,
    Min,
    Several,
    Sum,
    Variance,
)
from streamcp.operators.collecting import Distinct, Fold, Records, Reduce, TopN
from streamcp.operators.sketches import ApproximateDistinct, Quantiles

# A record is a timestamp and a number; the parts follow one another in time.
Record = tuple[int, int]
PARTS = st.lists(
    st.lists(st.tuples(st.integers(0, 9), st.integers(-5, 5)), max_size=8), min_size=1, max_size=5
).filter(any)


def number(record: Record) -> int:
    return record[1]


def in_time(parts: list[list[Record]]) -> list[list[Record]]:
    return [[(t + 10 * place, n) for t, n in part] for place, part in enumerate(parts)]


def first_of(records: list[Record]) -> int:
    return number(min(records, key=lambda record: record[0]))


def last_of(records: list[Record]) -> int:
    return number(sorted(records, key=lambda record: record[0])[-1])


def best_three(records: list[Record]) -> list[int]:
    return sorted(map(number, records), reverse=True)[:3]


def numbers_of(records: list[Record]) -> list[int]:
    return [number(record) for record in records]


KINDS: list[tuple[Aggregate[Record, Any], Callable[[list[Record]], Any]]] = [
    (Count(), len),
    (Sum(number), lambda records: sum(map(number, records))),
    (Min(number), lambda records: min(map(number, records))),
    (Max(number), lambda records: max(map(number, records))),
    (First(number), first_of),
    (Last(number), last_of),
    (Distinct(number), lambda records: len(set(map(number, records)))),
    (ApproximateDistinct(number), lambda records: len(set(map(number, records)))),
    (Records(), list),
    (Fold(lambda: 0, lambda value, record: value + number(record), int.__add__),
     lambda records: sum(map(number, records))),
    (Reduce(max), max),
    (Several([Count(), Sum(number)], lambda count, total: (count, total)),
     lambda records: (len(records), sum(map(number, records)))),
]  # fmt: skip


def merged(aggregate: Aggregate[Record, Any], parts: list[list[Record]]) -> Any:
    """Build each part by itself and merge them one after another, through bytes."""
    whole = aggregate.create()
    for part in parts:
        accumulator = aggregate.create()
        for record in part:
            accumulator = aggregate.add(accumulator, record, record[0])
            accumulator = pickle.loads(pickle.dumps(accumulator))
        before = deepcopy((whole, accumulator))
        joined = aggregate.merge(whole, accumulator)
        assert (whole, accumulator) == before, "merging must change neither side"
        whole = joined
    return aggregate.result(whole)


@pytest.mark.parametrize(("aggregate", "plain"), KINDS, ids=lambda kind: type(kind).__name__)
@given(parts=PARTS)
def test_merged_parts_equal_a_plain_computation_over_all_records(
    aggregate: Any, plain: Any, parts: list[list[Record]]
) -> None:
    parts = in_time(parts)
    everything = [record for part in parts for record in part]
    expected = plain(everything)
    assert merged(aggregate, parts) == expected
    assert merged(aggregate, [everything]) == expected


@given(PARTS)
def test_top_records_are_the_largest_and_of_equal_ones_the_first(parts: list[list[Record]]) -> None:
    parts = in_time(parts)
    everything = [record for part in parts for record in part]
    expected = sorted(everything, key=number, reverse=True)[:3]  # sorting is stable
    assert merged(TopN(3, by=number), parts) == expected
    assert merged(TopN(3, by=number), [everything]) == expected


@given(PARTS, st.integers(0, 10**9))
def test_mean_and_variance_are_exact_also_far_from_zero(
    parts: list[list[Record]], distance: int
) -> None:
    shifted = [[(t, n + distance) for t, n in part] for part in parts]
    numbers = [Fraction(n) for part in shifted for _, n in part]
    assert merged(Mean(number), shifted) == pytest.approx(float(statistics.mean(numbers)))
    exact = float(statistics.pvariance(numbers))
    found = merged(Variance(number, population=True), shifted)
    assert found == pytest.approx(exact, rel=1e-6, abs=1e-6)
    if len(numbers) > 1:
        assert merged(Variance(number), shifted) == pytest.approx(
            float(statistics.variance(numbers)), rel=1e-6, abs=1e-6
        )


def test_variance_of_a_single_record_is_unknown_and_of_the_whole_zero() -> None:
    assert math.isnan(merged(Variance(number), [[(0, 7)]]))
    assert merged(Variance(number, population=True), [[(0, 7)]]) == 0.0


def test_many_different_values_are_estimated_within_some_per_cent() -> None:
    parts = [[(0, n) for n in range(start, start + 4_000)] for start in (0, 2_000, 9_000)]
    aggregate = ApproximateDistinct(number)
    accumulators = []
    for part in parts:
        accumulator = aggregate.create()
        for record in part:
            accumulator = aggregate.add(accumulator, record, 0)
        accumulators.append(accumulator)
    whole = aggregate.merge(aggregate.merge(accumulators[0], accumulators[1]), accumulators[2])
    assert aggregate.result(whole) == pytest.approx(10_000, rel=0.06)
    assert len(pickle.dumps(whole)) < 5_000


def test_equal_keys_of_different_types_are_one_value() -> None:
    aggregate: ApproximateDistinct[Any] = ApproximateDistinct(lambda record: record)
    accumulator = aggregate.create()
    for value in (1, 1.0, True, "1", ("a", 2), ("a", 2.0)):
        accumulator = aggregate.add(accumulator, value, 0)
    assert aggregate.result(accumulator) == 3


def test_quantiles_of_few_records_are_exact() -> None:
    parts = [[(0, n) for n in range(0, 50)], [(0, n) for n in range(50, 100)]]
    assert merged(Quantiles(number, 0, 0.5, 0.99, 1), parts) == (0, 49, 98, 99)


def test_quantiles_of_many_records_have_nearly_the_right_rank() -> None:
    aggregate: Quantiles[int] = Quantiles(lambda record: record, 0.1, 0.5, 0.9)
    accumulators = [aggregate.create(), aggregate.create()]
    for value in range(20_000):
        place = value % 2
        accumulators[place] = aggregate.add(accumulators[place], (value * 7919) % 20_000, 0)
    found = aggregate.result(aggregate.merge(*accumulators))
    assert found == pytest.approx((2_000, 10_000, 18_000), abs=20_000 * 0.04)


def test_result_that_could_be_changed_is_a_copy() -> None:
    fold: Fold[str, list[str]] = Fold(list, lambda value, record: [*value, record])
    for aggregate in (fold, Records[str]()):
        accumulator = aggregate.add(aggregate.create(), "a", 0)
        result = aggregate.result(accumulator)
        assert result == accumulator
        assert result is not accumulator


@dataclass
class Words:
    counts: Counter[str] = field(default_factory=Counter)


def test_fold_over_an_object_that_is_changed_in_place_keeps_results_apart() -> None:
    def add(words: Words, record: str) -> Words:
        words.counts[record] += 1
        return words

    fold = Fold(Words, add)
    accumulator = fold.add(fold.create(), "a", 0)
    before = fold.result(accumulator)
    fold.add(accumulator, "a", 0)
    assert before.counts == {"a": 1}


@pytest.mark.parametrize(
    "make", [Sum, Min, Max, Mean, Variance, First, Last, Distinct, ApproximateDistinct, Quantiles]
)
def test_name_of_a_field_instead_of_a_function_is_refused(make: Any) -> None:
    with pytest.raises(DefinitionError, match=rf"{make.__name__}\('eur'\): write a function"):
        make("eur")


def test_top_without_a_function_or_number_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"TopN\('eur'\): write a function"):
        TopN(3, by="eur")  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="TopN\\(0\\) keeps nothing"):
        TopN(0, by=number)


@pytest.mark.parametrize("ranks", [(), (1.5,), (0.5, -0.1)])
def test_rank_that_is_none_is_refused(ranks: tuple[float, ...]) -> None:
    with pytest.raises(DefinitionError, match="write ranks between 0 and 1"):
        Quantiles(number, *ranks)


def test_only_aggregates_whose_accumulators_stay_small_say_so() -> None:
    assert Several([Count(), Sum(number)], lambda *all: all).small
    assert not Several([Count(), Distinct(number)], lambda *all: all).small
    growing: list[Any] = [Records(), Reduce(max)]
    assert not any(getattr(kind, "small", False) for kind in growing)
