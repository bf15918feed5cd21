"""Writes values with classes by number, and makes private copies (rule P37).

A value that could not be read back is refused here, when it is written, naming step, class and
remedy. One serializer belongs to one process and attempt; its class table only grows.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from streamcp.errors import SerializationError
from streamcp.serialization.builtin_types import builtin_shape
from streamcp.serialization.columns import Columns, Instances
from streamcp.serialization.deserializer import Deserializer
from streamcp.serialization.digest import digest
from streamcp.serialization.evolution import types_of
from streamcp.serialization.reader import MAKE
from streamcp.serialization.registry import TypeRegistry, advice
from streamcp.serialization.shapes import Make, Shape
from streamcp.serialization.taking import Take, UnwritableError

_ATOMS: Final = frozenset({type(None), bool, int, float, str, bytes})
NOT_FLAT: Final = object()
PLAIN: Final = -1
"""Stands for the number of a class where values are kept that are no instances of one."""
_STATE: Final = "its state"
_MEMO: Final = {id(MAKE): (0, MAKE)}
_PROTOCOL: Final = b"\x80\x05"
_PRELUDE: Final = _PROTOCOL + b"cm\nmake\n\x940"  # gives `make` its place in an unpickler's memo


class Serializer:
    """Turns values into bytes and back. Not for use by several threads at a time."""

    def __init__(self, registry: TypeRegistry) -> None:
        """Write the classes that `registry` has when an instance is first met."""
        self._registry = registry
        self._table: list[dict[str, Any]] = []
        self._numbers: dict[str, int] = {}
        self._makers: list[Make] = []
        self._writers: dict[type, tuple[tuple[int], Take]] = {}
        self._idle: _Pickler | None = None

    def dumps(self, value: Any, *, step: str) -> bytes:
        """Return `value` as bytes. Objects shared within `value` stay shared.

        Raises SerializationError if `value` holds something that could not be read back: an
        instance of a class that is not declared, of a class without a codec that is no data
        class, or data classes that contain each other in a circle; names `step`.
        """
        return self._dumps(value, step, None)

    def _dumps(self, value: Any, step: str, told: str | None) -> bytes:
        """`told` is what the value is called in messages, if not by its class."""
        pickler, self._idle = self._idle or _Pickler(self), None  # taking may come back here
        try:
            data = pickler.dumps(value)
        except SerializationError:
            raise
        except Exception as error:  # reading a field may run anything of the user's
            told = told or f"a {type(value).__qualname__}"
            if isinstance(error, RecursionError):
                raise SerializationError(
                    f"step {step!r}: {told} contains itself or is nested too deeply; refer to the "
                    f"other object by a key"
                ) from None
            raise SerializationError(f"step {step!r}: {told} cannot be written: {error}") from error
        self._idle = pickler
        return data

    def dumps_rows(
        self, keys: list[Any], values: list[Any], others: Sequence[Any] = (), *, step: str
    ) -> bytes:
        """Return rows of a key, a value and what `others` are in every row, as bytes: column by
        column. Read back they are a list of tuples.

        Raises SerializationError as `dumps` does."""
        column: Any = values
        classes = set(map(type, values))
        if len(classes) == 1:
            shape = self._registry.shape(cls := classes.pop())
            if shape is not None and shape.fields:
                (number,), _ = self._writers.get(cls) or self.writer(cls)
                column = Instances(number, partial(shape.columns, values))
        return self._dumps_columns(keys, column, others, step)

    def dumps_taken(
        self,
        keys: list[Any],
        number: int,
        taken: list[Any],
        others: Sequence[Any] = (),
        *,
        step: str,
    ) -> bytes:
        """The same of what `taken` has told of values of one number, one after the other."""
        if number == PLAIN:
            return self.dumps_rows(keys, taken, others, step=step)
        width = len(taken) // len(keys)
        column = Instances(number, lambda: [taken[n::width] for n in range(width)])
        return self._dumps_columns(keys, column, others, step)

    def _dumps_columns(
        self, keys: list[Any], column: Any, others: Sequence[Any], step: str
    ) -> bytes:
        return self._dumps(Columns(keys, column, *[(one,) for one in others]), step, _STATE)

    def taken(self, value: Any) -> tuple[int, tuple[Any, ...]] | None:
        """What keeps `value` as it is now, if that is cheap: the number of its class with the
        values of its fields, if these are plain values; PLAIN with a private copy of a flat value;
        else None."""
        known = self._writers.get(type(value))
        if known is None:
            copy = self.flat_copy(value)
            return None if copy is NOT_FLAT else (PLAIN, (copy,))
        (number,), take = known
        try:
            values = take(value)
        except Exception:  # writing it fails as well, and then says why
            return None
        for one in values:
            if type(one) not in _ATOMS:
                return None
        return (number, values) if values else None

    def loads(self, data: bytes) -> Any:
        """Return the value in `data`, which this serializer wrote.

        Raises SerializationError if `data` is damaged or foreign.
        """
        return Deserializer(self._table, self._registry).loads(data)

    def copy(self, value: Any, *, step: str) -> Any:
        """Return a private copy of `value`, equal to what a restore would give.

        Raises SerializationError as `dumps` does.
        """
        flat = self.flat_copy(value)
        if flat is not NOT_FLAT:
            return flat
        data = _PRELUDE + self.dumps(value, step=step)[len(_PROTOCOL) :]
        return _Unpickler(io.BytesIO(data), self._make).load()

    def _make(self, number: int, *values: Any) -> Any:
        return self._makers[number](values)

    def with_fields(self, value: Any, fields: Mapping[str, Any], *, step: str) -> Any:
        """Return an instance like `value` in which some fields are others; nothing else is copied.

        Raises SerializationError for an instance that a snapshot cannot hold."""
        try:
            shape = self._shape(type(value))
            taken = zip(shape.fields, shape.take(value), strict=True)
            return shape.make([fields.get(name, one) for name, one in taken])
        except Exception as error:  # reading a field may run anything of the user's
            raise SerializationError(
                f"step {step!r}: a {type(value).__qualname__} cannot be written: {error}"
            ) from error

    def flat_copy(self, value: Any) -> Any:
        """A private copy without going through bytes, if `value` holds nothing but plain values;
        else NOT_FLAT. Half the time of `dumps`."""
        cls = type(value)
        if cls in _ATOMS:
            return value
        if cls is tuple:
            return value if _ATOMS.issuperset(map(type, value)) else NOT_FLAT
        if cls is list or cls is set:
            return value.copy() if _ATOMS.issuperset(map(type, value)) else NOT_FLAT
        if cls is dict:
            is_flat = _ATOMS.issuperset(map(type, value.values())) and _ATOMS.issuperset(
                map(type, value)
            )
            return value.copy() if is_flat else NOT_FLAT
        known = self._writers.get(cls)
        return NOT_FLAT if known is None else self._flat_instance(value, known)

    def _flat_instance(self, value: Any, known: tuple[tuple[int], Take]) -> Any:
        (number,), take = known
        try:
            values = take(value)
        except Exception:  # writing it fails as well, and then says why
            return NOT_FLAT
        if not _ATOMS.issuperset(map(type, values)):
            return NOT_FLAT
        return self._makers[number](values)

    def digest(self, value: Any, *, step: str) -> bytes:
        """Return 16 bytes that tell the content of `value`, the same ones in every attempt.

        Raises SerializationError as `dumps` does."""
        try:
            return digest(value, self._shape)
        except Exception as error:  # reading a field may run anything of the user's
            raise SerializationError(
                f"step {step!r}: the content of a {type(value).__qualname__} cannot be told: "
                f"{error}"
            ) from error

    def classes(self) -> tuple[dict[str, Any], ...]:
        """The class table, as plain JSON values; the number of a class is its index."""
        return tuple(self._table)

    def writer(self, cls: type) -> tuple[tuple[int], Take]:
        """Class number and field values of instances of `cls`, which gets a number if need be.

        Raises UnwritableError if a snapshot cannot hold instances of `cls`.
        """
        shape = self._shape(cls)
        number = self._numbers.get(shape.name)
        if number is None:
            number = self._enter(shape)
        self._writers[cls] = (number,), shape.take
        return self._writers[cls]

    def _shape(self, cls: type) -> Shape:
        shape = self._registry.shape(cls) or builtin_shape(cls)
        if shape is None:
            raise UnwritableError(advice(cls))
        return shape

    def _enter(self, shape: Shape) -> int:
        number = self._numbers[shape.name] = len(self._table)
        entry = {"name": shape.name, "kind": shape.kind, "fields": list(shape.fields)}
        self._table.append(entry | types_of(shape))
        self._makers.append(shape.make)
        return number


class _Pickler(pickle.Pickler):
    """Asked for everything but plain values, before pickle would look at it: so neither a class,
    a function nor `__reduce__` of anything gets into the bytes."""

    def __init__(self, serializer: Serializer) -> None:
        self._buffer = io.BytesIO()
        super().__init__(self._buffer, 5)
        self.memo = _MEMO
        self._writers = serializer._writers
        self._writer = serializer.writer

    def dumps(self, value: Any) -> bytes:
        """Return a value as bytes. If that raises, this is not for use any more."""
        self.dump(value)
        data = self._buffer.getvalue()
        self._buffer.seek(0)
        self._buffer.truncate()
        self.memo = _MEMO  # which forgets what was written
        return data

    def reducer_override(self, obj: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Write `obj` as (make, class number, field values)."""
        number, take = self._writers.get(type(obj)) or self._writer(type(obj))
        return MAKE, number + take(obj)


class _Unpickler(pickle.Unpickler):
    """For bytes that this very serializer has just made, and for nothing else.

    It remembers everything that it has read, `make` as well: were that a method of its own, each
    copy would be part of a circle, and live until the garbage is collected."""

    def __init__(self, buffer: io.BytesIO, make: Callable[..., Any]) -> None:
        super().__init__(buffer)
        self._make = make

    def find_class(self, module: str, name: str) -> Any:
        """Return `make`, whatever is asked for."""
        return self._make
