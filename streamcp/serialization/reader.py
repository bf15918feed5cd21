"""Reads the bytes of a value without being able to do anything else (rule P37).

The bytes are what CPython's pickler writes (protocol 5), but they are not given to an unpickler:
any of those can be made to call methods of objects that it has just read, or to allocate without
bound. This loop knows the opcodes that plain values need. None of them looks up a name. One of
them calls something: REDUCE, and that is `make` or an error. Everything else, and everything
that does not fit the data's length, is refused.

Holds no class and no number; knows nothing of registries.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, TypeAlias

from streamcp.errors import SerializationError
from streamcp.serialization.immutable import LEAF_TYPES


class Maker:
    """Stands for `make` in the bytes: entry 0 of the memo, never written by name."""

    __slots__ = ()

    def __call__(self, number: int, *values: Any) -> NoReturn:
        """Refuse: pickle insists on something callable, but nothing ever calls it."""
        raise NotImplementedError


MAKE: Final = Maker()
Make: TypeAlias = Callable[[int, Sequence[Any]], Any]
"""Class number and values of the fields to an instance."""
_Load: TypeAlias = Callable[[bytes, int], tuple[Any, int]]

_DEPTH: Final = 2000  # hashing tuples deeper than this could overflow the stack of C
_KEY_PARTS: Final = 100_000  # parts of keys to hash, in excess of ten for every byte

_PROTOCOL: Final = b"\x80\x05"
_MEMOIZE, _GET, _LONG_GET, _MARK, _FRAME, _STOP = 0x94, 0x68, 0x6A, 0x28, 0x95, 0x2E


def read_value(data: bytes, make: Make) -> Any:
    """Return the value in `data`; instances are made by `make`.

    Raises SerializationError if `data` is damaged, or not written by a `Serializer`. Nothing
    was executed except `make`, and the hash of keys and set members.
    """
    try:
        return _Reader(data, make).read()
    except SerializationError:
        raise
    except Exception as error:  # damaged data may make anything fail, also a class's own hash
        text = f"{type(error).__name__}: {error}"
        raise SerializationError(
            f"{len(data)} bytes of a snapshot cannot be read ({text}); restore from another "
            f"checkpoint, or read it with the program that wrote it"
        ) from error


class _Reader:
    """The state of one reading: the stack, the stacks below each mark, and the memo.

    `nested` tells depth and number of parts of what can be hashed, by id; small flat tuples are
    left out. `requests` counts the times that MAKE was put on the stack and not yet called.
    """

    __slots__ = ("data", "key_parts", "make", "memo", "nested", "requests")

    def __init__(self, data: bytes, make: Make) -> None:
        self.data = data
        self.make = make
        self.memo: list[Any] = [MAKE]
        self.nested: dict[int, tuple[int, int]] = {}
        self.key_parts = _KEY_PARTS + 10 * len(data)
        self.requests = 0

    def read(self) -> Any:
        data, memo, size = self.data, self.memo, len(self.data)
        _require(data[:2] == _PROTOCOL, "does not begin like a value")
        outer: list[list[Any]] = []
        stack: list[Any] = []
        pos = 2
        loads, actions, closings, recall = _LOADS, _ACTIONS, _CLOSINGS, self.recall
        memoize, get, mark, stop = _MEMOIZE, _GET, _MARK, _STOP  # locals: this is the hot loop
        while (op := data[pos]) != stop:
            pos += 1
            if op == memoize:
                memo.append(stack[-1])
            elif op in loads:
                value, pos = loads[op](data, pos)
                stack.append(value)
            elif op == get:
                stack.append(recall(data[pos]))
                pos += 1
            elif op == mark:
                outer.append(stack)
                stack = []
            elif op in actions:
                actions[op](self, stack)
            elif op in closings:
                parts, stack = stack, outer.pop()
                closings[op](self, stack, parts)
            elif op == _LONG_GET:
                stack.append(recall(int.from_bytes(data[pos : pos + 4], "little")))
                pos += 4
            else:
                _require(op == _FRAME, f"byte {op:#x} means nothing here")
                pos = self.frame(pos)
        _require(pos + 1 == size, "something follows the value")
        _require(len(stack) == 1 and not outer and self.requests == 0, "parts are missing")
        return stack[0]

    def recall(self, index: int) -> Any:
        value = self.memo[index]
        if value is MAKE:
            self.requests += 1
        return value

    def frame(self, pos: int) -> int:
        length = int.from_bytes(self.data[pos : pos + 8], "little")
        _require(pos + 8 + length <= len(self.data), "a frame is cut off")
        return pos + 8

    def note(self, value: Any, parts: Sequence[Any]) -> Any:
        """Remember how deep and large a hashable container is."""
        depth, size = 0, len(parts) + 1
        if not LEAF_TYPES.issuperset(map(type, parts)):
            for part in parts:
                below, count = self.nested.get(id(part), (0, 0))
                depth, size = max(depth, below), size + count
            _require(depth < _DEPTH, "it is nested too deeply")
        elif size < 10:
            return value
        self.nested[id(value)] = depth + 1, size
        return value

    def hashing(self, keys: Sequence[Any]) -> None:
        """Bound the time for hashing: a few bytes can describe a key of endless size."""
        if LEAF_TYPES.issuperset(map(type, keys)):
            return
        self.key_parts -= sum(self.nested.get(id(key), (0, 0))[1] for key in keys)
        _require(self.key_parts >= 0, "its keys are too large")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _constant(value: Any) -> _Load:
    return lambda data, pos: (value, pos)


def _fixed(form: str) -> _Load:
    layout = struct.Struct(form)
    unpack, size = layout.unpack_from, layout.size
    return lambda data, pos: (unpack(data, pos)[0], pos + size)


def _sized(width: int, build: Callable[[bytes], Any]) -> _Load:
    """Content behind its length; nothing is allocated before the length is known to be true."""

    def load(data: bytes, pos: int) -> tuple[Any, int]:
        start = pos + width
        end = start + int.from_bytes(data[pos:start], "little")
        _require(end <= len(data), "a length exceeds the data")
        return build(data[start:end]), end

    return load


def _short_text(data: bytes, pos: int) -> tuple[str, int]:
    """The most frequent one, therefore written out."""
    start = pos + 1
    end = start + data[pos]
    if end > len(data):
        raise ValueError("a text is cut off")
    return str(data[start:end], "utf-8", "surrogatepass"), end


def _text(data: bytes) -> str:
    return str(data, "utf-8", "surrogatepass")


def _integer(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


_LOADS: Final[dict[int, _Load]] = {
    0x4E: _constant(None),
    0x88: _constant(True),
    0x89: _constant(False),
    0x29: _constant(()),
    0x5D: lambda data, pos: ([], pos),
    0x7D: lambda data, pos: ({}, pos),
    0x8F: lambda data, pos: (set(), pos),
    0x8C: _short_text,
    0x4B: lambda data, pos: (data[pos], pos + 1),
    0x4A: _fixed("<i"),
    0x4D: _fixed("<H"),
    0x47: _fixed(">d"),
    0x8A: _sized(1, _integer),
    0x8B: _sized(4, _integer),
    0x58: _sized(4, _text),
    0x8D: _sized(8, _text),
    0x43: _sized(1, bytes),
    0x42: _sized(4, bytes),
    0x8E: _sized(8, bytes),
    0x96: _sized(8, bytearray),
}
"""Opcodes that put one value on the stack: NONE, NEWTRUE, NEWFALSE, EMPTY_TUPLE, EMPTY_LIST,
EMPTY_DICT, EMPTY_SET, BININT, BININT2, BINFLOAT, LONG1, LONG4, BINUNICODE, BINUNICODE8,
BININT1, SHORT_BINUNICODE, SHORT_BINBYTES, BINBYTES, BINBYTES8, BYTEARRAY8."""


def _short_tuple(count: int) -> Callable[[_Reader, list[Any]], None]:
    def act(reader: _Reader, stack: list[Any]) -> None:
        _require(len(stack) >= count, "a tuple is cut off")
        parts = tuple(stack[-count:])
        stack[-count:] = [reader.note(parts, parts)]

    return act


def _append(reader: _Reader, stack: list[Any]) -> None:
    value = stack.pop()
    _extend_list(reader, stack, [value])


def _set_item(reader: _Reader, stack: list[Any]) -> None:
    value, key = stack.pop(), stack.pop()
    _fill_dict(reader, stack, [key, value])


def _reduce(reader: _Reader, stack: list[Any]) -> None:
    arguments, function = stack.pop(), stack.pop()
    if function is not MAKE or type(arguments) is not tuple:
        raise ValueError("something else than make is called")
    reader.requests -= 1
    value = reader.make(arguments[0], arguments[1:])
    nested = reader.nested.get(id(arguments))
    if nested is not None:
        reader.nested[id(value)] = nested
    stack.append(value)


_ACTIONS: Final[dict[int, Callable[[_Reader, list[Any]], None]]] = {
    0x85: _short_tuple(1),
    0x86: _short_tuple(2),
    0x87: _short_tuple(3),
    0x61: _append,
    0x73: _set_item,
    0x52: _reduce,
    0x30: lambda reader, stack: stack.pop(),
}
"""Opcodes on the topmost values: TUPLE1, TUPLE2, TUPLE3, APPEND, SETITEM, REDUCE, POP."""


def _close_tuple(reader: _Reader, stack: list[Any], parts: list[Any]) -> None:
    stack.append(reader.note(tuple(parts), parts))


def _close_frozenset(reader: _Reader, stack: list[Any], parts: list[Any]) -> None:
    reader.hashing(parts)
    stack.append(reader.note(frozenset(parts), parts))


def _extend_list(reader: _Reader, stack: list[Any], parts: list[Any]) -> None:
    target = stack[-1]
    _require(type(target) is list, "something is appended to what is no list")
    target.extend(parts)


def _fill_set(reader: _Reader, stack: list[Any], parts: list[Any]) -> None:
    target = stack[-1]
    _require(type(target) is set, "something is added to what is no set")
    reader.hashing(parts)
    target.update(parts)


def _fill_dict(reader: _Reader, stack: list[Any], parts: list[Any]) -> None:
    target, keys = stack[-1], parts[::2]
    _require(type(target) is dict, "an entry is set in what is no dict")
    reader.hashing(keys)
    target.update(zip(keys, parts[1::2], strict=True))


_CLOSINGS: Final[dict[int, Callable[[_Reader, list[Any], list[Any]], None]]] = {
    0x74: _close_tuple,
    0x91: _close_frozenset,
    0x65: _extend_list,
    0x90: _fill_set,
    0x75: _fill_dict,
    0x31: lambda reader, stack, parts: None,
}
"""Opcodes on all values above the last mark: TUPLE, FROZENSET, APPENDS, ADDITEMS, SETITEMS,
POP_MARK."""
