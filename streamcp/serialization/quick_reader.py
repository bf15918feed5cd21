"""Reads bytes that hold nothing but plain values, flat instances and columns, in C (rule P37).

The careful reader is a loop over opcodes. Most of what a large snapshot holds needs less care: this
one looks at the bytes with one regular expression, which lets only opcodes pass that put plain
values, tuples and lists together, or call `make`. Then an unpickler may have them: the one thing
that it can call makes a `_Made`, which has no methods of its own, so there is no object whose code
could run. What comes out is looked at again, and only then instances are made. Whatever does not
fit (sets and dictionaries, long texts, deeper nesting, damage) is left to the careful reader.
"""

from __future__ import annotations

import functools
import io
import itertools
import os
import pickle
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

UNREAD: Final = object()
"""The quick reader has not read it: the careful one is to."""

_PLAIN: Final = frozenset({type(None), bool, int, float, str, bytes})
_DEPTH: Final = 4  # a list of rows, a row, an instance in it, a tuple in that
_PROTOCOL: Final = b"\x80\x05"
_CALL: Final = b"h\x00"  # puts `make` on the stack
# Gives `make` its place in an unpickler's memo. The end makes a tuple of all above the mark: what
# nobody can know in advance, and one value, if nothing is open or left over.
_FIRST: Final = os.urandom(16)
_PRELUDE: Final = _PROTOCOL + b"cm\nmake\n\x940(C\x10" + _FIRST
_END: Final = b"t."


class _Made(tuple[Any, ...]):
    """What is to become an instance: the number of its class, and the values of its fields."""

    __slots__ = ()


_CONTAINERS: Final = frozenset({list, tuple, _Made})


class _Unusual(Exception):
    """Not a value that is read here."""


@functools.cache
def _pattern() -> re.Pattern[bytes]:
    """Which opcodes may pass, each with its argument; compiled at the first use, which takes some
    milliseconds. No alternative can be left once it has matched, so it takes linear time."""
    sized = b"|".join(b"%s.{%d}" % (re.escape(bytes([n])), n) for n in range(256))
    tokens = (
        rb"[\x94\x4e\x88\x89\x29\x5d\x28\x74\x65\x61\x52\x85\x86\x87]",  # without an argument
        rb"[\x4b\x68].",  # BININT1, BINGET
        rb"\x4d..",  # BININT2
        rb"[\x4a\x6a].{4}",  # BININT, LONG_BINGET
        rb"[\x47\x95].{8}",  # BINFLOAT, FRAME
        rb"[\x8c\x43\x8a](?:" + sized + rb")",  # SHORT_BINUNICODE, SHORT_BINBYTES, LONG1
    )
    return re.compile(rb"\x80\x05(?:" + rb"|".join(tokens) + rb")*+\.", re.DOTALL)


class _Unpickler(pickle.Unpickler):
    """For bytes of which the pattern says that they name nothing."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for `make`; asked once, by the prelude."""
        return _made


def _made(*values: Any) -> _Made:
    return _Made(values)


def read_quickly(data: bytes, make: Callable[[int, Sequence[Any]], Any]) -> Any:
    """Return the value in `data`, or UNREAD; instances are made by `make`, whose errors are passed
    on."""
    if _pattern().fullmatch(data) is None:
        return UNREAD
    try:
        framed = _PRELUDE + data[len(_PROTOCOL) : -1] + _END
        first, value = _Unpickler(io.BytesIO(framed)).load()
        if first != _FIRST:
            return UNREAD
        _check([value])
    except Exception:  # damaged: the careful reader says how
        return UNREAD
    return _Finishing(make).finish(value) if _CALL in data else value


def _check(values: list[Any]) -> None:
    """Raise unless everything in `values` is of a kind that is read here, level by level; what is
    shared is looked at once."""
    for _ in range(_DEPTH + 1):
        inner = set(map(type, values)) - _PLAIN
        if not inner:
            return
        if not inner <= _CONTAINERS:
            raise _Unusual
        below = {id(one): one for one in values if type(one) not in _PLAIN}
        values = list(itertools.chain.from_iterable(below.values()))
    raise _Unusual


class _Finishing:
    """Makes the instances in a value that was checked. What is shared stays shared."""

    def __init__(self, make: Callable[[int, Sequence[Any]], Any]) -> None:
        self._make = make
        self._finished: dict[int, Any] = {}

    def finish(self, value: Any) -> Any:
        """Return the value with instances where something was to become one."""
        if type(value) in _PLAIN:
            return value
        known = self._finished.get(id(value), UNREAD)
        if known is UNREAD:
            known = self._finished[id(value)] = self._container(value)
        return known

    def _container(self, value: Any) -> Any:
        cls, plain, finish = type(value), _PLAIN, self.finish
        if cls is not _Made and plain.issuperset(map(type, value)):
            return value
        parts = [one if type(one) in plain else finish(one) for one in value]
        if cls is list:
            return parts
        return tuple(parts) if cls is tuple else self._make(parts[0], parts[1:])
