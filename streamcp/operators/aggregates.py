"""What a window makes of its records: one value, built up record by record.

An aggregate is asked for accumulators and never keeps one: they live in the state, so they are
plain values that a snapshot can hold. Knows nothing of windows; those that are built on a sketch
are in `sketches`, those that keep records in `collecting`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol

from typing_extensions import TypeVar

from streamcp.errors import DefinitionError

T = TypeVar("T")
N = TypeVar("N", int, float)
C = TypeVar("C")
T_contra = TypeVar("T_contra", contravariant=True)
V_co = TypeVar("V_co", covariant=True)


class Aggregate(Protocol[T_contra, V_co]):
    """One value of many records. An own one is an object with these four methods.

    An accumulator is a value that a snapshot can hold: numbers, texts, lists, dicts, data classes.
    An aggregate whose accumulators stay small however many records there are may say so by an
    attribute `small = True`: sliding windows then keep sums of their parts.
    """

    def create(self) -> Any:
        """Make the accumulator of no record."""
        ...

    def add(self, accumulator: Any, record: T_contra, timestamp: int, /) -> Any:
        """Return the accumulator with one record more; it may be the same object, changed."""
        ...

    def merge(self, left: Any, right: Any, /) -> Any:
        """Return the accumulator of both, and change neither: the records of `left` come first."""
        ...

    def result(self, accumulator: Any, /) -> V_co:
        """Return the value; it must not be the accumulator itself if that is changed in place."""
        ...


class Count:
    """The number of records."""

    __slots__ = ()
    small = True

    def create(self) -> int:
        """Start at zero."""
        return 0

    def add(self, accumulator: int, record: object, timestamp: int, /) -> int:
        """Count one more."""
        return accumulator + 1

    def merge(self, left: int, right: int, /) -> int:
        """Add up."""
        return left + right

    def result(self, accumulator: int, /) -> int:
        """Return the number."""
        return accumulator


class Sum(Generic[T, N]):
    """The sum of `of(record)`."""

    __slots__ = ("of",)
    small = True

    def __init__(self, of: Callable[[T], N], /) -> None:
        self.of = checked("Sum", of)

    def create(self) -> Any:
        """Start at zero."""
        return 0

    def add(self, accumulator: Any, record: T, timestamp: int, /) -> Any:
        """Add the record's number."""
        return accumulator + self.of(record)

    def merge(self, left: Any, right: Any, /) -> Any:
        """Add up."""
        return left + right

    def result(self, accumulator: Any, /) -> N:
        """Return the sum."""
        return accumulator  # type: ignore[no-any-return]


class _Kept(Generic[T, C]):
    """`of(record)` of one of the records; accumulators are (), or a tuple that ends with the value,
    since any value may be one."""

    __slots__ = ("of",)
    small = True

    def __init__(self, of: Callable[[T], C], /) -> None:
        self.of = checked(type(self).__name__, of)

    def create(self) -> tuple[Any, ...]:
        """Start without a value."""
        return ()

    def result(self, accumulator: tuple[Any, ...], /) -> C:
        """Return the value, of at least one record."""
        return accumulator[-1]  # type: ignore[no-any-return]


class Min(_Kept[T, C]):
    """The smallest `of(record)`; of equal ones the first."""

    __slots__ = ()

    def add(self, accumulator: tuple[Any, ...], record: T, timestamp: int, /) -> tuple[Any, ...]:
        """Keep the smaller one."""
        value: Any = self.of(record)
        return (value,) if not accumulator or value < accumulator[0] else accumulator

    def merge(self, left: tuple[Any, ...], right: tuple[Any, ...], /) -> tuple[Any, ...]:
        """Keep the smaller one."""
        return right if not left or (right and right[0] < left[0]) else left


class Max(_Kept[T, C]):
    """The largest `of(record)`; of equal ones the first."""

    __slots__ = ()

    def add(self, accumulator: tuple[Any, ...], record: T, timestamp: int, /) -> tuple[Any, ...]:
        """Keep the larger one."""
        value: Any = self.of(record)
        return (value,) if not accumulator or value > accumulator[0] else accumulator

    def merge(self, left: tuple[Any, ...], right: tuple[Any, ...], /) -> tuple[Any, ...]:
        """Keep the larger one."""
        return right if not left or (right and right[0] > left[0]) else left


class Mean(Generic[T]):
    """The arithmetic mean of `of(record)`, without the rounding of a large sum."""

    __slots__ = ("of",)
    small = True

    def __init__(self, of: Callable[[T], float], /) -> None:
        self.of = checked("Mean", of)

    def create(self) -> list[Any]:
        """Start with no record: count and mean."""
        return [0, 0.0]

    def add(self, accumulator: list[Any], record: T, timestamp: int, /) -> list[Any]:
        """Move the mean towards the record's number."""
        accumulator[0] += 1
        accumulator[1] += (self.of(record) - accumulator[1]) / accumulator[0]
        return accumulator

    def merge(self, left: list[Any], right: list[Any], /) -> list[Any]:
        """Weigh both means by their counts."""
        count = left[0] + right[0]
        return [count, left[1] + (right[1] - left[1]) * (right[0] / count)] if count else [0, 0.0]

    def result(self, accumulator: list[Any], /) -> float:
        """Return the mean."""
        return float(accumulator[1])


class Variance(Generic[T]):
    """The variance of `of(record)`, by Welford's and Chan's formulas: exact also far from zero.

    That of a sample (divided by n - 1, NaN of a single record), or with `population=True` of the
    whole (divided by n)."""

    __slots__ = ("_without", "of")
    small = True

    def __init__(self, of: Callable[[T], float], /, *, population: bool = False) -> None:
        self.of = checked("Variance", of)
        self._without = 0 if population else 1

    def create(self) -> list[Any]:
        """Start with no record: count, mean, and sum of squared distances from it."""
        return [0, 0.0, 0.0]

    def add(self, accumulator: list[Any], record: T, timestamp: int, /) -> list[Any]:
        """Move the mean, and add the distance from the old and the new one."""
        value = self.of(record)
        accumulator[0] += 1
        distance = value - accumulator[1]
        accumulator[1] += distance / accumulator[0]
        accumulator[2] += distance * (value - accumulator[1])
        return accumulator

    def merge(self, left: list[Any], right: list[Any], /) -> list[Any]:
        """Add the distances, and that between the means."""
        count = left[0] + right[0]
        if not count:
            return [0, 0.0, 0.0]
        distance, share = right[1] - left[1], right[0] / count
        squares = left[2] + right[2] + distance * distance * left[0] * share
        return [count, left[1] + distance * share, squares]

    def result(self, accumulator: list[Any], /) -> float:
        """Return the variance."""
        divisor = accumulator[0] - self._without
        return float(accumulator[2] / divisor) if divisor > 0 else math.nan


class First(_Kept[T, C]):
    """`of(record)` of the record with the smallest timestamp; of equal ones the first to come."""

    __slots__ = ()

    def add(self, accumulator: tuple[Any, ...], record: T, timestamp: int, /) -> tuple[Any, ...]:
        """Keep the earlier one."""
        if not accumulator or timestamp < accumulator[0]:
            return timestamp, self.of(record)
        return accumulator

    def merge(self, left: tuple[Any, ...], right: tuple[Any, ...], /) -> tuple[Any, ...]:
        """Keep the earlier one."""
        return right if not left or (right and right[0] < left[0]) else left


class Last(_Kept[T, C]):
    """`of(record)` of the record with the largest timestamp; of equal ones the last to come."""

    __slots__ = ()

    def add(self, accumulator: tuple[Any, ...], record: T, timestamp: int, /) -> tuple[Any, ...]:
        """Keep the later one."""
        if not accumulator or timestamp >= accumulator[0]:
            return timestamp, self.of(record)
        return accumulator

    def merge(self, left: tuple[Any, ...], right: tuple[Any, ...], /) -> tuple[Any, ...]:
        """Keep the later one."""
        return right if not left or (right and right[0] >= left[0]) else left


class Several:
    """Several aggregates at once; `into` makes one value of theirs, in their order."""

    __slots__ = ("_adds", "_aggregates", "_into", "small")

    def __init__(self, aggregates: Sequence[Aggregate[Any, Any]], into: Callable[..., Any]) -> None:
        self._aggregates = tuple(aggregates)
        self._adds = tuple(enumerate(aggregate.add for aggregate in aggregates))
        self._into = into
        self.small = all(getattr(aggregate, "small", False) for aggregate in aggregates)

    def create(self) -> list[Any]:
        """Make one accumulator of each."""
        return [aggregate.create() for aggregate in self._aggregates]

    def add(self, accumulator: list[Any], record: Any, timestamp: int, /) -> list[Any]:
        """Add the record to each."""
        for place, add in self._adds:
            accumulator[place] = add(accumulator[place], record, timestamp)
        return accumulator

    def merge(self, left: list[Any], right: list[Any], /) -> list[Any]:
        """Merge each with its like."""
        return [
            aggregate.merge(one, other)
            for aggregate, one, other in zip(self._aggregates, left, right, strict=True)
        ]

    def result(self, accumulator: list[Any], /) -> Any:
        """Make one value of all."""
        pairs = zip(self._aggregates, accumulator, strict=True)
        return self._into(*(aggregate.result(one) for aggregate, one in pairs))


def checked(aggregate: str, function: Any) -> Any:
    """Return the function that an aggregate was given.

    Raises DefinitionError for what cannot be called: a field's name, for example."""
    if not callable(function):
        raise DefinitionError(
            f"{aggregate}({function!r}): write a function of the record, e.g. "
            f"{aggregate}(lambda record: record.amount)"
        )
    return function
