from __future__ import annotations

import collections
import datetime as dt
import pathlib
import subprocess
import sys
import uuid
import zoneinfo
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcp.elements import ListTimestamp
from streamcp.errors import SerializationError
from streamcp.serialization.deserializer import Deserializer
from streamcp.serialization.registry import TypeRegistry
from streamcp.serialization.serializer import Serializer


def round_trips(value: Any) -> tuple[Any, Any, Any]:
    serializer = Serializer(TypeRegistry())
    data = serializer.dumps([value], step="s")
    own, foreign = serializer.loads(data), Deserializer(serializer.classes(), None).loads(data)
    return own[0], foreign[0], serializer.copy([value], step="s")[0]


VALUES = [
    complex(1, -0.5), range(1, 10, 2), dt.date(2024, 2, 29), dt.time(1, 2, 3, 4, dt.UTC, fold=1),
    dt.datetime(2024, 1, 1, 5), dt.datetime(2024, 1, 1, tzinfo=dt.UTC),  # noqa: DTZ001
    dt.datetime(2024, 10, 27, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"), fold=1),
    dt.timedelta(-1, 5, 7), dt.timezone(dt.timedelta(hours=2)),
    dt.timezone(dt.timedelta(hours=2), "named"), zoneinfo.ZoneInfo("Asia/Tokyo"),
    Decimal("1.500"), Decimal("-Infinity"), Fraction(-3, 7), uuid.UUID(int=2**100),
    pathlib.Path("a/b"), pathlib.PurePosixPath("/x"), pathlib.PureWindowsPath("c:\\x"),
    collections.deque([1, [2]], maxlen=3), collections.deque(),
    collections.OrderedDict([("b", 1), ("a", [2])]), collections.Counter("hello"),
    collections.defaultdict(list, {"a": [1]}), collections.defaultdict(None, {1: 2}),
    collections.defaultdict(int), np.float64(1.5), np.int8(-3), np.bool_(True), np.str_("text"),
    np.str_(""), np.bytes_(b""), np.complex128(1j), np.datetime64("2024-01-01T05", "h"),
    np.timedelta64(5, "ms"), ListTimestamp((3, 5, 4)),
    ListTimestamp((ListTimestamp((3, 5)), ListTimestamp((4,)))),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_of_a_builtin_type_comes_back_equal_and_of_its_type(value: Any) -> None:
    for back in round_trips(value):
        assert type(back) is type(value)
        assert back == value
        assert repr(back) == repr(value)


@settings(max_examples=150, deadline=None)
@given(
    st.decimals()
    | st.fractions()
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.uuids()
    | st.complex_numbers()
    | st.datetimes(timezones=st.none() | st.timezones())
)
def test_any_value_of_a_builtin_type_comes_back_the_same(value: Any) -> None:
    for back in round_trips(value):
        assert type(back) is type(value)
        assert repr(back) == repr(value)


ARRAYS = [
    np.arange(6).reshape(2, 3), np.arange(6).reshape(2, 3).T, np.array(5.0), np.array([]),
    np.zeros((0, 3), np.int8), np.array(["a", "bcd"]), np.array([b"x"]), np.array([1 + 2j]),
    np.array([True, False]), np.array(["2024-01-01"], "M8[D]"), np.arange(3, dtype=">i4"),
    np.array([1.5], np.float16),
]  # fmt: skip


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
def test_an_array_comes_back_equal_and_writable(array: Any) -> None:
    for back in round_trips(array):
        assert (back.dtype, back.shape) == (array.dtype, array.shape)
        assert np.array_equal(back, array)
        assert back.flags.writeable
        assert not np.shares_memory(back, array)


@pytest.mark.parametrize(
    "array", [np.array([object()]), np.zeros(2, [("a", "i4")]), np.ma.array([1]), np.void(b"a")]
)
def test_an_array_that_could_not_be_read_back_is_refused(array: Any) -> None:
    with pytest.raises(SerializationError, match=r"'s'"):
        Serializer(TypeRegistry()).dumps(array, step="s")


def test_a_default_factory_of_the_user_is_refused() -> None:
    with pytest.raises(SerializationError, match=r"'s'.*defaultdict with the factory.*plain dict"):
        Serializer(TypeRegistry()).dumps(collections.defaultdict(lambda: 1), step="s")


class OwnZone(dt.tzinfo):
    def utcoffset(self, when: dt.datetime | None) -> dt.timedelta:
        return dt.timedelta()

    def dst(self, when: dt.datetime | None) -> None:
        return None

    def tzname(self, when: dt.datetime | None) -> None:
        return None


def test_a_time_zone_class_of_the_user_is_refused_by_name() -> None:
    with pytest.raises(SerializationError, match=r"'s'.*OwnZone"):
        Serializer(TypeRegistry()).dumps(dt.datetime(2024, 1, 1, tzinfo=OwnZone()), step="s")


def test_a_list_timestamp_keeps_that_of_each_record() -> None:
    serializer = Serializer(TypeRegistry())
    read = serializer.loads(serializer.dumps(ListTimestamp((3, 5, 4)), step="s"))
    assert (read, read.each) == (5, (3, 5, 4))


HOSTILE: list[tuple[str, tuple[Any, ...]]] = [
    ("collections.deque", (range(10**15), None)),
    ("collections.Counter", (range(10**15),)),
    ("collections.OrderedDict", ([("a", 1)],)),
    ("collections.defaultdict", ("print", {})),
    ("collections.defaultdict", ("list", [])),
    ("fractions.Fraction", ("1e999999999", 1)),
    ("fractions.Fraction", (1, 0)),
    ("decimal.Decimal", ((0, (1,), 5),)),
    ("decimal.Decimal", ("no number",)),
    ("uuid.UUID", (b"short",)),
    ("zoneinfo.ZoneInfo", ("../../etc/passwd",)),
    ("datetime.datetime", (1, 1, 1, 0, 0, 0, 0, "zone", 0)),
    ("datetime.date", (0, 0, 0)),
    ("datetime.timezone", (5, None)),
    ("builtins.range", (1, 2, 0)),
    ("builtins.range", (1, 2)),
    ("numpy.ndarray", ("|O", (1,), b"12345678")),
    ("numpy.ndarray", ("<i8", (2,), b"12345678")),
    ("numpy.ndarray", ("<i8", (-1, -1), b"12345678")),
    ("numpy.ndarray", ("<i8", (1 << 40, 0, 1 << 40), b"")),
    ("numpy.ndarray", ("<i8", ("a",), b"12345678")),
    ("numpy.ndarray", ("<i8,<i8", (1,), b"1234567812345678")),
    ("numpy.generic", ("<i8", b"1234")),
    ("streamcp.elements.ListTimestamp", ((),)),
    ("streamcp.elements.ListTimestamp", (("1",),)),
    ("os.system", ("true",)),
]


@pytest.mark.parametrize(("name", "values"), HOSTILE)
@pytest.mark.parametrize("registry", [None, TypeRegistry()])
def test_hostile_arguments_of_a_builtin_type_are_refused(
    name: str, values: tuple[Any, ...], registry: TypeRegistry | None
) -> None:
    serializer = Serializer(TypeRegistry())
    arguments = serializer.dumps(values, step="s")
    classes = [*serializer.classes(), {"name": name, "kind": "builtin", "fields": []}]
    reader = Deserializer(classes, registry)
    assert reader.loads(arguments) == values
    with pytest.raises((SerializationError, ValueError, TypeError, ArithmeticError, KeyError)):
        reader.make(len(classes) - 1, values)


def test_numpy_is_not_imported_for_data_without_arrays() -> None:
    program = (
        "import sys\n"
        "from streamcp.serialization.registry import TypeRegistry\n"
        "from streamcp.serialization.serializer import Serializer\n"
        "serializer = Serializer(TypeRegistry())\n"
        "print(serializer.loads(serializer.dumps([1j], step='s')))\n"
        "assert not {'numpy', 'pydantic', 'attrs', 'attr', 'msgspec'} & sys.modules.keys()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[1j]\n"
