"""The digest of a value's content: the same in every process, run and attempt.

Two values have one digest if a snapshot would hold the same for both: type by type, field by
field, whatever objects they share, and in whatever order their sets and dictionaries are. Classes
go by name (rule P37), so a class that gets another field gives its instances another digest.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final

from xxhash import xxh3_128_digest

from streamcp.serialization.shapes import Shape

ShapeOf = Callable[[type], Shape]
"""How instances of a class are taken apart; raises UnwritableError if a snapshot cannot hold
them."""


def digest(value: Any, shape_of: ShapeOf) -> bytes:
    """Return 16 bytes. Raises what `shape_of` raises, and RecursionError for a value that
    contains itself."""
    return xxh3_128_digest(_encoded(value, shape_of))


def _encoded(value: Any, shape_of: ShapeOf) -> bytes:
    """The content as bytes from which it could be told: with its kind, and its length where that
    is not fixed."""
    cls = type(value)
    plain = _PLAIN.get(cls)
    if plain is not None:
        return plain(value)
    if cls is list or cls is tuple:
        return _sequence(b"l" if cls is list else b"t", value, shape_of)
    if cls is dict:
        pairs = (_encoded(k, shape_of) + _encoded(v, shape_of) for k, v in value.items())
        return _joined(b"d", sorted(pairs))
    if cls is set or cls is frozenset:
        return _joined(
            b"e" if cls is set else b"z", sorted(_encoded(one, shape_of) for one in value)
        )
    shape = shape_of(cls)
    return _sequence(_text(b"o", shape.name), shape.take(value), shape_of)


def _sequence(kind: bytes, values: Iterable[Any], shape_of: ShapeOf) -> bytes:
    return _joined(kind, [_encoded(one, shape_of) for one in values])


def _joined(kind: bytes, parts: list[bytes]) -> bytes:
    return kind + struct.pack("<Q", len(parts)) + b"".join(parts)


def _sized(kind: bytes, data: bytes) -> bytes:
    return kind + struct.pack("<Q", len(data)) + data


def _text(kind: bytes, text: str) -> bytes:
    return _sized(kind, text.encode("utf-8", "surrogatepass"))


_PLAIN: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): lambda _: b"n",
    bool: lambda value: b"y" if value else b"x",
    int: lambda value: _sized(b"i", _whole(value)),
    float: lambda value: b"f" + struct.pack("<d", value),
    str: lambda value: _text(b"s", value),
    bytes: lambda value: _sized(b"b", value),
    bytearray: lambda value: _sized(b"a", bytes(value)),
}


def _whole(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
