"""Aggregates that estimate, in a few kilobytes however many the records are. The one file that
imports datasketches (extra `sketches`).

An accumulator is a list: the sketch as bytes, and the values that are not in it yet. So it can be
in a snapshot, few values cost next to nothing, and the bytes are unpacked once per many records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic

from typing_extensions import TypeVar

from streamcp.errors import DefinitionError, MissingExtra
from streamcp.operators.aggregates import checked
from streamcp.serialization.stable_hash import stable_hash

try:
    from datasketches import hll_sketch, hll_union, kll_doubles_sketch
except ImportError as error:
    raise MissingExtra(
        'ApproximateDistinct and Quantiles need datasketches; pip install "streamcp[sketches]"'
    ) from error

T = TypeVar("T")

_MANY = 256  # values; unpacking and packing a sketch costs about as much as adding so many
_LG_REGISTERS = 12


class _Sketched(Generic[T]):
    """Keeps values until they are many, then puts them into the sketch."""

    __slots__ = ("of",)

    def __init__(self, of: Callable[[T], Any], /) -> None:
        self.of = checked(type(self).__name__, of)

    def create(self) -> list[Any]:
        """Start with no sketch and no value."""
        return [b"", []]

    def add(self, accumulator: list[Any], record: T, timestamp: int, /) -> list[Any]:
        """Keep the record's value, and pack when they are many."""
        values = accumulator[1]
        values.append(self._value(record))
        if len(values) >= _MANY:
            accumulator[0], accumulator[1] = self._packed([accumulator[0]], values), []
        return accumulator

    def merge(self, left: list[Any], right: list[Any], /) -> list[Any]:
        """Join both sketches, and keep the values of both."""
        values = left[1] + right[1]
        packed = [accumulator[0] for accumulator in (left, right) if accumulator[0]]
        if len(packed) < 2 and len(values) < _MANY:
            return [packed[0] if packed else b"", values]
        return [self._packed(packed, values), []]

    def _value(self, record: T) -> Any:
        return self.of(record)

    def _packed(self, sketches: Iterable[bytes], values: list[Any]) -> bytes:
        raise NotImplementedError


class ApproximateDistinct(_Sketched[T]):
    """About how many different `of(record)` there are: HyperLogLog, with an error of two per cent
    in most cases, in 2 KiB. Values are equal as keys are: 1, 1.0 and True are one."""

    __slots__ = ()

    def result(self, accumulator: list[Any], /) -> int:
        """Return the estimate."""
        estimate: float = self._sketch([accumulator[0]], accumulator[1]).get_estimate()
        return round(estimate)

    def _value(self, record: T) -> int:
        value = self.of(record)
        # The sketch takes signed numbers. Python's hash, and so ours, is the same for -1 and -2.
        return stable_hash(value) - 2**63 + (1 if value == -1 else 0)

    def _packed(self, sketches: Iterable[bytes], values: list[Any]) -> bytes:
        return bytes(self._sketch(sketches, values).serialize_compact())

    def _sketch(self, sketches: Iterable[bytes], values: list[int]) -> Any:
        union = hll_union(_LG_REGISTERS)
        for sketch in sketches:
            if sketch:
                union.update(hll_sketch.deserialize(sketch))
        for value in values:
            union.update(value)
        return union.get_result()


class Quantiles(_Sketched[T]):
    """The quantiles of `of(record)` at `ranks` between 0 and 1: `Quantiles(of, 0.5, 0.99)`, as a
    tuple. Each is a value whose rank is wrong by 1.4 per cent at most, in nearly all cases (KLL);
    of few records it is exact. Estimates of the same records may differ within that.

    Raises DefinitionError without ranks, and for one that is not between 0 and 1."""

    __slots__ = ("_ranks",)

    def __init__(self, of: Callable[[T], float], /, *ranks: float) -> None:
        super().__init__(of)
        if not ranks or not all(0 <= rank <= 1 for rank in ranks):
            raise DefinitionError(
                f"Quantiles(..., {', '.join(map(repr, ranks))}): write ranks between 0 and 1, e.g. "
                "Quantiles(lambda record: record.latency, 0.5, 0.99)"
            )
        self._ranks = list(ranks)

    def result(self, accumulator: list[Any], /) -> tuple[float, ...]:
        """Return one value per rank."""
        sketch = self._sketch([accumulator[0]], accumulator[1])
        return tuple(sketch.get_quantiles(self._ranks, True))

    def _packed(self, sketches: Iterable[bytes], values: list[Any]) -> bytes:
        return bytes(self._sketch(sketches, values).serialize())

    def _sketch(self, sketches: Iterable[bytes], values: list[float]) -> Any:
        merged = kll_doubles_sketch()
        for sketch in sketches:
            if sketch:
                merged.merge(kll_doubles_sketch.deserialize(sketch))
        for value in values:
            merged.update(value)
        return merged
