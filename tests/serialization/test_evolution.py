"""A class that has changed since: what can be read is read, and the rest is refused by name."""

from __future__ import annotations

import logging
import re
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, NewType, Protocol

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamcp as sc
from streamcp.errors import SerializationError
from streamcp.serialization.deserializer import Deserializer
from streamcp.serialization.field_types import field_types
from streamcp.serialization.registry import TypeRegistry
from streamcp.serialization.serializer import Serializer
from tests.serialization import versions

version = partial(versions.version, "Visits")


def read_as(now: Any, value: Any) -> Any:
    """Write with the class of `value`, and read with `now`."""
    before, after = TypeRegistry(), TypeRegistry()
    before.declare(type(value), step="s")
    after.declare(now, step="s")
    serializer = Serializer(before)
    data = serializer.dumps(value, step="s")
    return Deserializer(serializer.classes(), after).loads(data)


def test_field_that_is_gone_is_dropped_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    before, now = version(("count", int), ("last", str)), version(("count", int))
    registry, after = TypeRegistry(), TypeRegistry()
    registry.declare(before, step="s")
    after.declare(now, step="s")
    serializer = Serializer(registry)
    frames = [serializer.dumps(before(n, "x"), step="s") for n in range(3)]
    reader = Deserializer(serializer.classes(), after)
    with caplog.at_level(logging.WARNING):
        assert [reader.loads(frame) for frame in frames] == [now(n) for n in range(3)]
    assert [record.getMessage() for record in caplog.records] == [
        "shop.Visits has no field last any more: what the snapshot holds of it is dropped"
    ]


def test_field_that_is_gone_beside_a_new_one_may_have_been_renamed_and_the_log_says_how(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = version(("total", int, 0))
    with caplog.at_level(logging.WARNING):
        assert read_as(now, version(("sum", int))(5)) == now(0)
    assert 'total: Annotated[..., sc.renamed_from("sum")]' in caplog.text


def test_renamed_field_is_found_under_any_of_its_names(caplog: pytest.LogCaptureFixture) -> None:
    now = version(("total", Annotated[int, sc.renamed_from("sum", "amount")], 0))
    for old in ("total", "sum", "amount"):
        assert read_as(now, version((old, int))(5)) == now(5)
    assert not caplog.records


def renamed(name: str, *former: str) -> Any:
    return (name, Annotated[int, sc.renamed_from(*former)], 0)


@pytest.mark.parametrize(
    ("now", "field"),
    [
        (version(renamed("x", "y"), renamed("y", "x")), "x is renamed_from('y')"),  # swapped
        (version(renamed("y", "x"), renamed("z", "y")), "z is renamed_from('y')"),  # shifted
        (version(("x", int, 0), renamed("y", "x")), "y is renamed_from('x')"),  # used again
    ],
)
def test_name_of_another_field_is_no_earlier_name(now: Any, field: str) -> None:
    """Each of them would read what the other one was, from one of the two versions."""
    with pytest.raises(SerializationError, match=re.escape(field) + ".*may mean either; call"):
        read_as(now, version(("x", int), ("y", int))(1, 2))

    job = sc.Job("shop", types=[now])
    job.source(sc.items([1])).sink(sc.discard())
    with pytest.raises(SerializationError, match=re.escape(field)):
        job.run()


def test_snapshot_with_both_names_of_a_field_is_refused() -> None:
    before = version(("x", int), ("y", int))(1, 2)
    with pytest.raises(SerializationError, match=r"y and x of shop\.Visits.*be y now; remove the"):
        read_as(version(renamed("y", "x")), before)
    with pytest.raises(SerializationError, match=r"x and y of shop\.Visits.*be z now; keep in"):
        read_as(version(renamed("z", "x", "y")), before)


class PairBefore(NamedTuple):
    old: int
    other: str


class PairNow(NamedTuple):
    other: str
    new: Annotated[int, sc.renamed_from("old")] = 0


class StructBefore(msgspec.Struct):
    old: int


class StructNow(msgspec.Struct):
    new: Annotated[int, sc.renamed_from("old")] = 0


class ModelBefore(pydantic.BaseModel):
    old: int


class ModelNow(pydantic.BaseModel):
    new: Annotated[int, sc.renamed_from("old")] = 0


@pytest.mark.parametrize(
    ("value", "now", "expected"),
    [
        (PairBefore(1, "x"), PairNow, PairNow("x", 1)),
        (StructBefore(1), StructNow, StructNow(1)),
        (ModelBefore(old=1), ModelNow, 1),
    ],
)
def test_fields_of_every_kind_of_class_can_be_renamed(value: Any, now: Any, expected: Any) -> None:
    name = type(value).__qualname__
    registry = TypeRegistry()
    registry.declare(type(value), step="s")
    serializer = Serializer(registry)
    data = serializer.dumps(value, step="s")
    table = [entry | {"name": f"{__name__}.{now.__qualname__}"} for entry in serializer.classes()]
    after = TypeRegistry()
    after.declare(now, step="s")
    back = Deserializer(table, after).loads(data)
    assert (back.new if now is ModelNow else back) == expected, name


def test_int_becomes_float_and_stays_what_it_is_where_both_may_be() -> None:
    for kind in (float, float | None):
        back = read_as(version(("total", kind)), version(("total", int))(5))
        assert (back.total, type(back.total)) == (5.0, float)
    back = read_as(version(("total", float | int)), version(("total", int))(5))
    assert type(back.total) is int


Name = NewType("Name", str)


class Closing(Protocol):
    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("was", "now", "value"),
    [
        (int, int | None, 5),
        (int | None, int, 5),
        (str, Name, "x"),
        (Name, Literal["x"], "x"),
        (list[int], list[float], [1]),
        (bool, int, True),
        (int, Any, 5),
        (int, object, 5),
        (int, "Unknown", 5),
        (Closing, int, 5),
    ],
)
def test_value_that_fits_the_new_type_is_read(was: Any, now: Any, value: Any) -> None:
    back = read_as(version(("field", now)), version(("field", was))(value))
    assert back.field == value


@pytest.mark.parametrize(
    ("was", "now", "value", "said"),
    [
        (int, str, 5, r"shop\.Visits\.field was int and is str now, which 5 is not"),
        (float, int, 2.5, r"was float and is int now, which 2\.5 is not"),
        (int | None, int, None, r"was NoneType \| int and is int now"),
        (list[int], dict[int, int], [1], r"was list and is dict now"),
    ],
)
def test_value_that_does_not_fit_is_refused_with_class_field_and_remedy(
    was: Any, now: Any, value: Any, said: str
) -> None:
    with pytest.raises(SerializationError, match=rf"{said}.*of the old type again"):
        read_as(version(("field", now)), version(("field", was))(value))


def test_new_field_without_a_default_is_refused_and_the_remedies_are_named() -> None:
    with pytest.raises(SerializationError, match=r"new field 'b' without a default.*renamed_from"):
        read_as(version(("a", int), ("b", int)), version(("a", int))(1))


def test_table_that_tells_no_types_is_read_as_before() -> None:
    before, now = version(("count", int)), version(("count", str))
    registry, after = TypeRegistry(), TypeRegistry()
    registry.declare(before, step="s")
    after.declare(now, step="s")
    serializer = Serializer(registry)
    data = serializer.dumps(before(5), step="s")
    table = [{k: v for k, v in entry.items() if k != "types"} for entry in serializer.classes()]
    assert Deserializer(table, after).loads(data) == now(5)


class Color(Enum):
    RED = 1


def test_table_tells_types_by_their_names() -> None:
    kinds = (int, int | None, list[int], Color, Any, "Nothing", Annotated[str, "x"])
    cls = version(*((f"f{n}", kind) for n, kind in enumerate(kinds)))
    found = [one.text for one in field_types(cls, tuple(f"f{n}" for n in range(len(kinds))))]
    color = f"{__name__}.Color"
    assert found == ["int", "NoneType | int", "list", color, "?", "?", "str"]


def test_rename_in_an_annotation_that_cannot_be_resolved_is_refused() -> None:
    cls = version(("total", "Annotated[Unknown, sc.renamed_from('sum')]", 0))
    with pytest.raises(SerializationError, match=r"Visits\.total.*in a module"):
        read_as(cls, version(("sum", int))(5))


NAMES = st.lists(st.sampled_from("abcde"), unique=True, max_size=5)


@given(NAMES, NAMES, st.dictionaries(st.sampled_from("abcde"), st.sampled_from("vwxyz")))
def test_each_field_has_its_old_value_or_its_default(
    was: list[str], now: list[str], renamed: dict[str, str]
) -> None:
    new_names = [renamed.get(name, name) for name in now]
    if len(set(new_names)) < len(new_names):
        return
    before = version(*((name, int) for name in was))
    after = version(
        *(
            (new, Annotated[int, sc.renamed_from(old)] if new != old else int, -1)
            for old, new in zip(now, new_names, strict=True)
        )
    )
    back = read_as(after, before(*range(len(was))))
    for old, new in zip(now, new_names, strict=True):
        assert getattr(back, new) == (was.index(old) if old in was else -1)
