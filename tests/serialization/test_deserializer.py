"""Reading with the class table of another program: classes that are missing or have changed."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import attrs
import msgspec
import pydantic
import pytest

from streamcp.errors import SerializationError
from streamcp.serialization.deserializer import Deserializer, GenericRecord
from streamcp.serialization.registry import TypeRegistry, codec, qualified_name
from streamcp.serialization.serializer import Serializer


def written(cls: type, value: Any, name: str = "") -> tuple[tuple[dict[str, Any], ...], bytes]:
    registry = TypeRegistry()
    registry.declare(cls, step="s")
    serializer = Serializer(registry)
    data = serializer.dumps(value, step="s")
    return serializer.classes(), data


def read_as(now: type, table: tuple[dict[str, Any], ...], data: bytes) -> Any:
    """Read the only class of the table as if it were `now`."""
    registry = TypeRegistry()
    registry.declare(now, step="s")
    renamed = [{**entry, "name": qualified_name(now)} for entry in table]
    return Deserializer(renamed, registry).loads(data)


@dataclasses.dataclass
class Before:
    a: int
    b: str


@dataclasses.dataclass
class More:
    b: str
    c: list[int] = dataclasses.field(default_factory=list)
    a: int = 0
    d: str = "d"


@dataclasses.dataclass
class Less:
    a: int


@dataclasses.dataclass
class MoreWithoutDefault:
    a: int
    b: str
    c: int


class TupleNow(NamedTuple):
    a: int
    b: str


class TupleMore(NamedTuple):
    a: int
    b: str
    c: int = 5


@attrs.define
class AttrsBefore:
    a: int


@attrs.define
class AttrsMore:
    a: int
    b: list[int] = attrs.Factory(list)
    c: int = 3


@attrs.define
class AttrsSelf:
    a: int
    b: int = attrs.Factory(lambda self: self.a, takes_self=True)


@attrs.define
class AttrsMandatory:
    a: int
    b: int


class StructBefore(msgspec.Struct):
    a: int


class StructMore(msgspec.Struct, kw_only=True):
    b: list[int] = []
    a: int
    c: int = 3


class StructMandatory(msgspec.Struct):
    a: int
    b: int


class ModelBefore(pydantic.BaseModel):
    a: int


class ModelMore(pydantic.BaseModel):
    a: int
    b: list[int] = pydantic.Field(default_factory=list)
    c: int = 3


class ModelMandatory(pydantic.BaseModel):
    a: int
    b: int


def test_fields_that_are_new_get_their_defaults() -> None:
    back = read_as(More, *written(Before, [Before(1, "x"), Before(2, "y")]))
    assert back == [More("x", [], 1, "d"), More("y", [], 2, "d")]
    assert back[0].c is not back[1].c


@pytest.mark.parametrize(
    ("value", "now", "expected"),
    [
        (TupleNow(1, "x"), TupleMore, TupleMore(1, "x", 5)),
        (AttrsBefore(1), AttrsMore, AttrsMore(1, [], 3)),
        (StructBefore(1), StructMore, StructMore(a=1, b=[], c=3)),
        (ModelBefore(a=1), ModelMore, ModelMore(a=1)),
    ],
)
def test_new_fields_of_every_kind_of_class_get_their_defaults(
    value: Any, now: type, expected: Any
) -> None:
    assert read_as(now, *written(type(value), value)) == expected


@pytest.mark.parametrize(
    ("value", "now", "field"),
    [
        (Before(1, "x"), MoreWithoutDefault, "c"),
        (AttrsBefore(1), AttrsSelf, "b"),
        (AttrsBefore(1), AttrsMandatory, "b"),
        (StructBefore(1), StructMandatory, "b"),
        (ModelBefore(a=1), ModelMandatory, "b"),
    ],
)
def test_a_new_field_without_a_default_is_named(value: Any, now: type, field: str) -> None:
    with pytest.raises(SerializationError, match=f"{now.__name__} has a new field '{field}'"):
        read_as(now, *written(type(value), value))


def test_a_class_of_another_kind_is_refused() -> None:
    with pytest.raises(SerializationError, match=r"written as dataclass and is namedtuple now"):
        read_as(TupleNow, *written(Before, Before(1, "x")))


def test_a_class_that_is_missing_is_named_with_the_remedy() -> None:
    table, data = written(Before, Before(1, "x"))
    with pytest.raises(SerializationError, match=rf"{__name__}\.Before.*Job\(types="):
        Deserializer(table, TypeRegistry()).loads(data)


def test_a_missing_class_of_which_there_is_no_instance_does_not_matter() -> None:
    table, _ = written(Before, Before(1, "x"))
    data = Serializer(TypeRegistry()).dumps([1, "a"], step="s")
    assert Deserializer(table, TypeRegistry()).loads(data) == [1, "a"]


def test_a_builtin_type_of_a_newer_version_is_named() -> None:
    table = [{"name": "future.Type", "kind": "builtin", "fields": []}]
    with pytest.raises(SerializationError, match=r"future\.Type.*this version of streamcp"):
        Deserializer(table, None).make(0, ())


def test_without_a_registry_instances_become_generic_records() -> None:
    table, data = written(Before, {"key": [Before(1, "x")]})
    back = Deserializer(table, None).loads(data)
    (record,) = back["key"]
    assert isinstance(record, GenericRecord)
    assert repr(back) == "{'key': [Before(a=1, b='x')]}"
    assert record.name == f"{__name__}.Before"
    assert record.fields == {"a": 1, "b": "x"}


def test_generic_records_can_be_keys() -> None:
    table, data = written(TupleNow, {TupleNow(1, "x"): 1, TupleNow(2, "x"): 2})
    back = Deserializer(table, None).loads(data)
    name = f"{__name__}.TupleNow"
    assert back == {
        GenericRecord(name, {"a": 1, "b": "x"}): 1,
        GenericRecord(name, {"a": 2, "b": "x"}): 2,
    }
    unhashable = GenericRecord(name, {"a": []})
    assert {unhashable: 1}[GenericRecord(name, {"a": []})] == 1
    assert unhashable != name


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents


def test_a_failing_decode_is_told() -> None:
    def decode(cents: int) -> Money:
        raise ZeroDivisionError("no money")

    registry = TypeRegistry()
    registry.register(codec(Money, lambda m: m.cents, decode))
    serializer = Serializer(registry)
    data = serializer.dumps(Money(1), step="s")
    with pytest.raises(SerializationError, match=r"ZeroDivisionError: no money"):
        serializer.loads(data)
