"""Aggregates whose accumulators hold values or records: they grow with what they are given.

The same rules as in `aggregates`: accumulators are plain values, merging changes neither side, and
a result is never the accumulator itself.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Generic

from typing_extensions import TypeVar

from streamcp.errors import DefinitionError
from streamcp.operators.aggregates import checked
from streamcp.serialization.immutable import is_deeply_immutable

T = TypeVar("T")
V = TypeVar("V")


class TopN(Generic[T]):
    """The `n` records with the largest `by(record)`, largest first; of equal ones the first.

    Raises DefinitionError for `n` below one."""

    __slots__ = ("_by", "_n", "small")

    def __init__(self, n: int, /, *, by: Callable[[T], Any]) -> None:
        if n < 1:
            raise DefinitionError(f"TopN({n}) keeps nothing: write 1 or more")
        self._n = n
        self._by = checked("TopN", by)
        self.small = n <= 16

    def create(self) -> list[Any]:
        """Start with no record; later pairs of score and record, best first."""
        return []

    def add(self, accumulator: list[Any], record: T, timestamp: int, /) -> list[Any]:
        """Put the record into its place, if it is among the best."""
        score = self._by(record)
        place = len(accumulator)
        if place == self._n and not score > accumulator[-1][0]:
            return accumulator
        while place and score > accumulator[place - 1][0]:
            place -= 1
        accumulator.insert(place, (score, record))
        del accumulator[self._n :]
        return accumulator

    def merge(self, left: list[Any], right: list[Any], /) -> list[Any]:
        """Keep the best of both."""
        return sorted(left + right, key=_score, reverse=True)[: self._n]

    def result(self, accumulator: list[Any], /) -> list[T]:
        """Return the records."""
        return [record for _, record in accumulator]


def _score(pair: tuple[Any, Any]) -> Any:
    return pair[0]


class Distinct(Generic[T]):
    """The exact number of different `of(record)`, which must be hashable. Keeps each of them:
    `ApproximateDistinct` needs a few kilobytes however many they are."""

    __slots__ = ("of",)

    def __init__(self, of: Callable[[T], Any], /) -> None:
        self.of = checked("Distinct", of)

    def create(self) -> set[Any]:
        """Start with no value."""
        return set()

    def add(self, accumulator: set[Any], record: T, timestamp: int, /) -> set[Any]:
        """Remember the record's value."""
        accumulator.add(self.of(record))
        return accumulator

    def merge(self, left: set[Any], right: set[Any], /) -> set[Any]:
        """Join both."""
        return left | right

    def result(self, accumulator: set[Any], /) -> int:
        """Return how many they are."""
        return len(accumulator)


class Records(Generic[T]):
    """All records, in the order in which they came; merged parts follow one another in time."""

    __slots__ = ()

    def create(self) -> list[T]:
        """Start with no record."""
        return []

    def add(self, accumulator: list[T], record: T, timestamp: int, /) -> list[T]:
        """Keep the record."""
        accumulator.append(record)
        return accumulator

    def merge(self, left: list[T], right: list[T], /) -> list[T]:
        """Put both together."""
        return left + right

    def result(self, accumulator: list[T], /) -> list[T]:
        """Return a list of their own."""
        return list(accumulator)


class Fold(Generic[T, V]):
    """What `add(value, record)` makes of `start()`, record by record; `merge(left, right)` makes
    one value of two, and changes neither."""

    __slots__ = ("_fold", "create", "merge")

    def __init__(
        self,
        start: Callable[[], V],
        add: Callable[[V, T], V],
        merge: Callable[[V, V], V] | None = None,
    ) -> None:
        self.create = start
        self._fold = add
        self.merge = cannot_merge if merge is None else merge

    def add(self, accumulator: V, record: T, timestamp: int, /) -> V:
        """Call the user's function."""
        return self._fold(accumulator, record)

    def result(self, accumulator: V, /) -> V:
        """Return the value; one that can be changed in place as a copy."""
        return accumulator if is_deeply_immutable(accumulator) else copy.deepcopy(accumulator)


def cannot_merge(left: Any, right: Any) -> Any:
    """Stand where an aggregate has nothing to merge with.

    Raises DefinitionError: windows that would call it are refused when they are described."""
    raise DefinitionError("this fold cannot be merged: give it merge=...")


class Reduce(Generic[T]):
    """What `fn(value, record)` makes of the first record, record by record. `fn` returns a new
    value, and also makes one of two values."""

    __slots__ = ("_fn",)

    def __init__(self, fn: Callable[[T, T], T]) -> None:
        self._fn = fn

    def create(self) -> tuple[T, ...]:
        """Start without a value."""
        return ()

    def add(self, accumulator: tuple[T, ...], record: T, timestamp: int, /) -> tuple[T, ...]:
        """Call the user's function, but for the first record."""
        return (self._fn(accumulator[0], record),) if accumulator else (record,)

    def merge(self, left: tuple[T, ...], right: tuple[T, ...], /) -> tuple[T, ...]:
        """Call the user's function with both values."""
        return (self._fn(left[0], right[0]),) if left and right else left or right

    def result(self, accumulator: tuple[T, ...], /) -> T:
        """Return the value, of at least one record."""
        return accumulator[0]
