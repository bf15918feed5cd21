"""Types of the standard library and numpy that a snapshot may always hold (rule P37).

Each is written as plain values and read back by its own constructor with checked arguments.
numpy is not imported for writing, since whoever has an array has imported it. A class of
this table is the same in every job; nothing here depends on a registry.
"""

from __future__ import annotations

import datetime as dt
import decimal
import fractions
import math
import pathlib
import re
import sys
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any, Final

from streamcp.elements import ListTimestamp
from streamcp.serialization.columns import COLUMN_SHAPES
from streamcp.serialization.shapes import Shape
from streamcp.serialization.taking import UnwritableError

_DTYPE: Final = re.compile(r"[<>|=]?[biufcmMSU]\d+(\[\w+\])?")
_FACTORIES: Final[dict[str, Any]] = {
    factory.__name__: factory
    for factory in (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)
}


def builtin_shape(cls: type) -> Shape | None:
    """The shape of a type of the standard library or of numpy; None for any other class."""
    found = _BY_CLASS.get(cls)
    if found is None and (numpy := sys.modules.get("numpy")) is not None:
        if cls is numpy.ndarray:
            return BUILTIN_SHAPES["numpy.ndarray"]
        if issubclass(cls, numpy.generic) and cls.__module__ == "numpy":
            return BUILTIN_SHAPES["numpy.generic"]
    return found


def _shape(
    cls: type, name: str, take: Callable[[Any], Any], make: Callable[..., Any], *types: Any
) -> Shape:
    """`types` are those of the values, exactly, since constructors do much more for arguments of
    other types; `object` leaves it to the constructor."""

    def make_from(values: Sequence[Any]) -> Any:
        for value, expected in zip(values, types, strict=True):
            if type(value) not in expected and object not in expected:
                raise ValueError(f"a {type(value).__qualname__} in a {name}")
        return make(*values)

    types = tuple(each if isinstance(each, tuple) else (each,) for each in types)
    return Shape(cls, name, "builtin", (), take, make_from)


def _take_datetime(value: Any) -> tuple[Any, ...]:
    clock = (value.hour, value.minute, value.second, value.microsecond)
    return (value.year, value.month, value.day, *clock, value.tzinfo, value.fold)


def _make_datetime(year: int, *rest: Any) -> dt.datetime:
    *others, fold = rest
    return dt.datetime(year, *others, fold=fold)  # noqa: DTZ001 (the zone is among the others)


def _take_time(value: Any) -> tuple[Any, ...]:
    return (value.hour, value.minute, value.second, value.microsecond, value.tzinfo, value.fold)


def _make_time(hour: int, minute: int, second: int, micro: int, tzinfo: Any, fold: int) -> Any:
    return dt.time(hour, minute, second, micro, tzinfo, fold=fold)


def _take_zone(value: zoneinfo.ZoneInfo) -> tuple[Any, ...]:
    if value.key is None:
        raise UnwritableError("a ZoneInfo without a key; make it by ZoneInfo(name)")
    return (value.key,)


def _take_defaultdict(value: Any) -> tuple[Any, ...]:
    factory = value.default_factory
    if factory is None:
        return None, dict(value)
    name: str = getattr(factory, "__name__", "")
    if _FACTORIES.get(name) is not factory:
        raise UnwritableError(
            f"a defaultdict with the factory {factory!r}; use a plain dict, or one of the "
            f"factories {', '.join(_FACTORIES)}"
        )
    return name, dict(value)


def _make_defaultdict(factory: str | None, content: dict[Any, Any]) -> Any:
    return defaultdict(None if factory is None else _FACTORIES[factory], content)


def _take_array(value: Any) -> tuple[Any, ...]:
    kind = value.dtype.str
    if not _DTYPE.fullmatch(kind):
        raise UnwritableError(
            f"a numpy array of dtype {value.dtype}; use numbers, texts or dates, one array for "
            f"each field"
        )
    return kind, value.shape, value.tobytes()


def _make_array(kind: str, shape: tuple[int, ...], data: bytes) -> Any:
    import numpy

    if type(shape) is not tuple or not _DTYPE.fullmatch(kind):
        raise ValueError(f"not an array: dtype {kind!r}, shape {shape!r}")
    dtype = numpy.dtype(kind)
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"{len(data)} bytes are not an array of {shape!r} {kind}")
    if not data:
        return numpy.zeros(shape if 0 in shape else (0,), dtype)
    return numpy.frombuffer(bytearray(data), dtype).reshape(shape)


def _take_scalar(value: Any) -> tuple[Any, ...]:
    if isinstance(value, str):
        return "U", value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return "S", bytes(value)
    kind, _, data = _take_array(value)
    return kind, data


def _make_scalar(kind: str, data: bytes) -> Any:
    import numpy

    if kind == "U":
        return numpy.str_(data.decode("utf-8", "surrogatepass"))
    return numpy.bytes_(data) if kind == "S" else _make_array(kind, (1,), data)[0]


def _take_timezone(value: dt.timezone) -> tuple[Any, ...]:
    offset, *name = value.__getinitargs__()  # type: ignore[attr-defined]
    return offset, name[0] if name else None


def _make_timezone(offset: dt.timedelta, name: str | None) -> dt.timezone:
    return dt.timezone(offset) if name is None else dt.timezone(offset, name)


def _make_list_timestamp(each: tuple[int, ...]) -> ListTimestamp:
    if not all(type(one) in (int, ListTimestamp) for one in each):
        raise ValueError(f"no timestamps: {each!r}")
    return ListTimestamp(each)


def _text_shape(cls: type, name: str) -> Shape:
    return _shape(cls, name, lambda value: (str(value),), cls, str)


_STANDARD: Final = (
    _shape(complex, "builtins.complex", lambda v: (v.real, v.imag), complex, float, float),
    _shape(range, "builtins.range", lambda v: (v.start, v.stop, v.step), range, int, int, int),
    _shape(dt.date, "datetime.date", lambda v: (v.year, v.month, v.day), dt.date, int, int, int),
    _shape(dt.time, "datetime.time", _take_time, _make_time, *[int] * 4, object, int),
    _shape(
        dt.datetime, "datetime.datetime", _take_datetime, _make_datetime, *[int] * 7, object, int
    ),
    _shape(
        dt.timedelta,
        "datetime.timedelta",
        lambda v: (v.days, v.seconds, v.microseconds),
        dt.timedelta,
        *[int] * 3,
    ),
    _shape(
        dt.timezone, "datetime.timezone", _take_timezone, _make_timezone, object, (str, NoneType)
    ),
    _shape(zoneinfo.ZoneInfo, "zoneinfo.ZoneInfo", _take_zone, zoneinfo.ZoneInfo, str),
    _text_shape(decimal.Decimal, "decimal.Decimal"),
    _shape(
        fractions.Fraction,
        "fractions.Fraction",
        lambda v: (v.numerator, v.denominator),
        fractions.Fraction,
        int,
        int,
    ),
    _shape(uuid.UUID, "uuid.UUID", lambda v: (v.bytes,), lambda b: uuid.UUID(bytes=b), bytes),
    _text_shape(type(pathlib.Path()), "pathlib.Path"),
    _text_shape(pathlib.PurePosixPath, "pathlib.PurePosixPath"),
    _text_shape(pathlib.PureWindowsPath, "pathlib.PureWindowsPath"),
    _shape(deque, "collections.deque", lambda v: (list(v), v.maxlen), deque, list, (int, NoneType)),
    _shape(OrderedDict, "collections.OrderedDict", lambda v: (dict(v),), OrderedDict, dict),
    _shape(Counter, "collections.Counter", lambda v: (dict(v),), Counter, dict),
    _shape(
        defaultdict,
        "collections.defaultdict",
        _take_defaultdict,
        _make_defaultdict,
        (str, NoneType),
        dict,
    ),
)
_OWN: Final = (
    _shape(
        ListTimestamp,
        "streamcp.elements.ListTimestamp",
        lambda value: (value.each,),
        _make_list_timestamp,
        tuple,
    ),
)
_BY_CLASS: Final[dict[type, Shape]] = {
    shape.cls: shape for shape in (*_STANDARD, *_OWN, *COLUMN_SHAPES)
}

BUILTIN_SHAPES: Final[dict[str, Shape]] = {
    **{shape.name: shape for shape in (*_STANDARD, *_OWN, *COLUMN_SHAPES)},
    "numpy.ndarray": _shape(object, "numpy.ndarray", _take_array, _make_array, str, tuple, bytes),
    "numpy.generic": _shape(object, "numpy.generic", _take_scalar, _make_scalar, str, bytes),
}
"""Name in a class table to shape."""
