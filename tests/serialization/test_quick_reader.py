"""What is read quickly is what the careful reader reads; what is unusual is left to that one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.errors import SerializationError
from streamcp.serialization.deserializer import Deserializer, GenericRecord
from streamcp.serialization.quick_reader import UNREAD, read_quickly
from streamcp.serialization.reader import read_value
from streamcp.serialization.registry import TypeRegistry
from streamcp.serialization.serializer import Serializer


@dataclass
class Point:
    x: Any = 0
    y: Any = 0

    def extend(self, values: Any) -> None:
        raise AssertionError("code of a class was run")

    append = __call__ = extend


@dataclass
class Undeclared:
    x: int = 0


plain: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
)
points = st.builds(Point, plain, plain)
values = st.recursive(
    plain | points,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.builds(Point, inner, inner)
        | st.dictionaries(st.text(), inner)
    ),
)


def serializer() -> Serializer:
    registry = TypeRegistry()
    registry.declare(Point, step="step")
    return Serializer(registry)


def reader(of: Serializer) -> Deserializer:
    return Deserializer(of.classes(), of._registry)


@given(values)
def test_reads_what_the_careful_reader_reads(value: Any) -> None:
    writer = serializer()
    data = writer.dumps(value, step="step")
    make = reader(writer).make

    quick = read_quickly(data, make)

    assert reader(writer).loads(data) == read_value(data, make) == value
    assert quick is UNREAD or quick == value


@given(st.lists(points | plain | st.tuples(plain, points, st.just(()))))
def test_lists_of_records_are_read_quickly(value: list[Any]) -> None:
    writer = serializer()
    data = writer.dumps(value, step="step")

    quick = read_quickly(data, reader(writer).make)

    if all(len(text) < 64 for text in _texts(value)):
        assert quick == value
        assert [type(one) for one in quick] == [type(one) for one in value]


def _texts(value: Any) -> list[Any]:
    if isinstance(value, Point):
        return _texts([value.x, value.y])
    if isinstance(value, list | tuple):
        return [text for one in value for text in _texts(one)]
    return [value] if isinstance(value, str | bytes) else []


@given(st.binary(max_size=60).map(lambda rest: b"\x80\x05" + rest + b"."))
def test_whatever_the_bytes_are_they_give_what_the_careful_reader_gives(data: bytes) -> None:
    reading = reader(_with_a_point())
    try:
        careful = read_value(data, reading.make)
    except SerializationError:
        with pytest.raises(SerializationError):
            reading.loads(data)
    else:
        assert repr(reading.loads(data)) == repr(careful)


def _with_a_point() -> Serializer:
    writer = serializer()
    writer.dumps(Point(), step="step")
    return writer


# A point: make(0, 1, 2), as the pickler writes it.
POINT = b"h\x00(K\x00K\x01K\x02tR"


@pytest.mark.parametrize(
    ("what", "data"),
    [
        ("appends to an instance", POINT + b"(K\x01e"),
        ("appends one value to an instance", POINT + b"K\x01a"),
        ("calls an instance", POINT + b")R"),
        ("calls a text", b"\x8c\x01a\x94)R"),
        ("leaves make as a value", b"]h\x00a"),
        ("leaves make as a field", b"h\x00(K\x00h\x00K\x02tR"),
        ("makes of no class", b"h\x00)R"),
        ("makes of a class that is a text", b"h\x00(\x8c\x01a\x94K\x01tR"),
        ("makes of a class that there is not", b"h\x00(K\x09K\x01tR"),
        ("has too few fields", b"h\x00(K\x00K\x01tR"),
        ("names something", b"cos\nsystem\n"),
        ("holds a list that holds itself", b"]\x94h\x01a"),
        ("has a longer text than there is", b"\x8c\x7fabc\x94"),
        ("closes what was not opened", b"K\x01e"),
        ("has two values", b"K\x01K\x02"),
    ],
)
def test_hostile_bytes_run_nothing_and_are_read_as_before(what: str, data: bytes) -> None:
    data = b"\x80\x05" + data + b"."
    reading = reader(_with_a_point())
    try:
        careful = read_value(data, reading.make)
    except SerializationError:
        with pytest.raises(SerializationError):
            reading.loads(data)
    else:
        assert repr(reading.loads(data)) == repr(careful)


def test_what_is_shared_stays_shared() -> None:
    writer = serializer()
    point, shared = Point(1, 2), [1, 2]
    data = writer.dumps([point, (point, shared), shared], step="step")

    first, (second, listed), last = read_quickly(data, reader(writer).make)

    assert first is second
    assert listed is last


def test_a_few_bytes_that_stand_for_much_are_not_looked_at_again_and_again() -> None:
    inner = [0] * 1000
    data = serializer().dumps([[inner] * 10_000] * 10_000, step="step")

    assert len(read_quickly(data, reader(serializer()).make)) == 10_000


@given(st.lists(st.tuples(plain, points), min_size=1))
def test_columns_come_back_as_rows(rows: list[tuple[Any, Point]]) -> None:
    writer = serializer()
    data = writer.dumps_rows([k for k, _ in rows], [v for _, v in rows], ((),), step="step")

    expected = [(key, value, ()) for key, value in rows]

    assert writer.loads(data) == expected
    assert read_value(data, reader(writer).make) == expected


@given(st.lists(st.tuples(plain, values), min_size=1))
def test_columns_of_any_values_come_back_as_rows(rows: list[tuple[Any, Any]]) -> None:
    writer = serializer()
    data = writer.dumps_rows([k for k, _ in rows], [v for _, v in rows], ((),), step="step")

    assert writer.loads(data) == [(key, value, ()) for key, value in rows]


def test_columns_are_read_without_the_classes() -> None:
    writer = serializer()
    data = writer.dumps_rows(["a"], [Point(1, 2)], ((),), step="step")

    [(key, value, rest)] = Deserializer(writer.classes(), None).loads(data)

    assert (key, rest) == ("a", ())
    assert isinstance(value, GenericRecord)
    assert value.fields == {"x": 1, "y": 2}


def test_a_value_that_cannot_be_written_is_told_with_its_step() -> None:
    with pytest.raises(SerializationError, match=r"step 'here': its state .*Undeclared"):
        serializer().dumps_rows([1], [Undeclared()], step="here")


def test_fields_that_were_taken_come_back_as_instances() -> None:
    writer = serializer()
    assert writer.taken(Point(1, 2)) is None  # its class has no number yet
    writer.dumps(Point(), step="step")
    point = Point(1, "a")

    number, fields = writer.taken(point) or (-1, ())
    point.x = 2

    others = writer.taken(Point(3, 4)) or (-1, ())
    taken = [*fields, *others[1]]
    assert writer.loads(writer.dumps_taken(["k", "l"], number, taken, step="step")) == [
        ("k", Point(1, "a")),
        ("l", Point(3, 4)),
    ]
    assert writer.taken(Point([], 1)) is None


@pytest.mark.parametrize(
    "columns",
    [
        b"",
        b"K\x01",
        b"(K\x01ttK\x01",
        b"](K\x01e](K\x01K\x02e",
        b"](K\x01eK\x02",
        b"](K\x01e](K\x01K\x02e\x86",
    ],
)
def test_columns_that_do_not_fit_are_refused(columns: bytes) -> None:
    writer = serializer()
    writer.dumps_rows([1], [1], step="step")
    data = b"\x80\x05h\x00(K\x00" + columns + b"tR."
    with pytest.raises(SerializationError):
        writer.loads(data)
