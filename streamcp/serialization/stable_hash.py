"""`stable_hash`: where a key belongs, the same in every process, run and machine.

Agrees with `==`: keys that are equal have one hash. Python's own `hash` does so too, but differs
between processes for texts; it is used here only for numbers, where it depends on nothing but
the value.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import struct
import uuid
from collections.abc import Callable
from types import NoneType
from typing import Any, Final

from xxhash import xxh3_64_intdigest

from streamcp.errors import SerializationError
from streamcp.serialization.registry import qualified_name

_pack_one: Final = struct.Struct("<q").pack
_MASK: Final = (1 << 64) - 1
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 (a naive key has no zone)
# Seeds tell apart keys of different kinds that have the same bytes.
_NUMBER, _TEXT, _BYTES, _TUPLE, _SET, _NONE, _ENUM, _RECORD, _UUID, _TIME, _DATE, _SPAN = range(12)


def stable_hash(key: Any) -> int:
    """Return the hash of `key`, 64 bits, unsigned.

    Keys may be None, numbers, texts, bytes, tuples and frozensets, Enum members, NamedTuples,
    frozen dataclasses, UUIDs, dates, datetimes and timedeltas. A frozen dataclass or Enum goes
    by its qualified name; NamedTuples and mixed-in Enums equal plain values and hash like them.

    Raises SerializationError if keys of this type have no stable hash; names type and remedy.
    """
    method = _METHODS.get(type(key))
    return method(key) if method is not None else _method(type(key))(key)  # type: ignore[arg-type]


def _of_int(key: Any) -> int:
    return xxh3_64_intdigest(_pack_one(hash(key)), _NUMBER)


def _of_number(key: Any) -> int:
    if key != key:  # the hash of not-a-number is that of the object
        return xxh3_64_intdigest(b"nan", _NUMBER)
    return _of_int(key)


def _of_decimal(key: decimal.Decimal) -> int:
    if key.is_nan():  # comparing a signaling one would raise
        return xxh3_64_intdigest(b"nan", _NUMBER)
    return _of_int(key)


def _of_text(key: str) -> int:
    return xxh3_64_intdigest(key.encode("utf-8", "surrogatepass"), _TEXT)


def _of_bytes(key: bytes) -> int:
    return xxh3_64_intdigest(key, _BYTES)


def _of_tuple(key: tuple[Any, ...]) -> int:
    hashes = [stable_hash(part) for part in key]
    return xxh3_64_intdigest(struct.pack(f"<{len(hashes)}Q", *hashes), _TUPLE)


def _of_set(key: frozenset[Any]) -> int:
    """A sum does not depend on the order."""
    total = sum(stable_hash(part) for part in key) & _MASK
    return xxh3_64_intdigest(struct.pack("<QQ", total, len(key)), _SET)


def _of_none(key: None) -> int:
    return xxh3_64_intdigest(b"", _NONE)


def _of_uuid(key: uuid.UUID) -> int:
    return xxh3_64_intdigest(key.bytes, _UUID)


def _of_datetime(key: dt.datetime) -> int:
    """The instant, if there is a zone: equal instants of different zones are equal keys. `fold`
    does not count, since it does not for `==`."""
    plain = key.replace(fold=0)
    offset = plain.utcoffset()
    since = plain.replace(tzinfo=None) - _EPOCH - (offset or dt.timedelta())
    numbers = struct.pack("<qqq?", since.days, since.seconds, since.microseconds, offset is None)
    return xxh3_64_intdigest(numbers, _TIME)


def _of_date(key: dt.date) -> int:
    return xxh3_64_intdigest(_pack_one(key.toordinal()), _DATE)


def _of_span(key: dt.timedelta) -> int:
    numbers = struct.pack("<qqq", key.days, key.seconds, key.microseconds)
    return xxh3_64_intdigest(numbers, _SPAN)


def _of_member(key: enum.Enum) -> int:
    return _named(qualified_name(type(key)), key._name_, _ENUM)


def _named(name: str, content: Any, seed: int) -> int:
    return xxh3_64_intdigest(struct.pack("<QQ", _of_text(name), stable_hash(content)), seed)


_METHODS: Final[dict[type, Callable[[Any], int]]] = {
    int: _of_int,
    str: _of_text,
    bool: _of_int,
    float: _of_number,
    complex: _of_number,
    decimal.Decimal: _of_decimal,
    fractions.Fraction: _of_int,
    bytes: _of_bytes,
    tuple: _of_tuple,
    frozenset: _of_set,
    NoneType: _of_none,
    uuid.UUID: _of_uuid,
    dt.datetime: _of_datetime,
    dt.date: _of_date,
    dt.timedelta: _of_span,
}
_INHERITED: Final = (int, float, str, bytes, tuple)


@functools.lru_cache(maxsize=1024)
def _method(cls: Any) -> Callable[[Any], int]:
    """The way to hash keys of a class that is not among the plain types."""
    for base in _INHERITED:
        if issubclass(cls, base) and cls.__eq__ is base.__eq__:
            return _METHODS[base]
    if issubclass(cls, enum.Enum) and cls.__eq__ is object.__eq__:
        return _of_member
    if cls.__module__ == "numpy" and hasattr(cls, "item"):
        return _of_scalar
    names = _compared_fields(cls)
    if names is None:
        raise SerializationError(
            f"a {cls.__qualname__} cannot be a key: it has no hash that is the same in every "
            f"process; use a text, a number, a tuple or a frozen dataclass of such"
        )
    name = qualified_name(cls)
    return lambda key: _named(name, tuple(getattr(key, field) for field in names), _RECORD)


def _compared_fields(cls: type) -> tuple[str, ...] | None:
    """What the `==` that a frozen dataclass was given looks at; None for any other class."""
    params = getattr(cls, "__dataclass_params__", None)
    if params is None or not params.frozen or not params.eq:
        return None
    code = getattr(cls.__eq__, "__code__", None)
    if code is None or code.co_filename != "<string>":
        return None  # somebody's own idea of being equal
    return tuple(field.name for field in dataclasses.fields(cls) if field.compare)


def _of_scalar(key: Any) -> int:
    """The own numbers and texts of numpy equal Python's; those of less precision only sometimes."""
    plain = key.item()
    if type(plain) not in (int, bool, str, bytes) and type(key).__name__ != "float64":
        raise SerializationError(
            f"a numpy.{type(key).__name__} cannot be a key; convert it by its method item()"
        )
    return stable_hash(plain)
