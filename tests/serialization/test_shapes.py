"""Every kind of data class: fields come back, and no code of the class runs."""

from __future__ import annotations

import dataclasses
import enum
import functools
from typing import Any, ClassVar, NamedTuple

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcp.errors import SerializationError
from streamcp.serialization.deserializer import Deserializer
from streamcp.serialization.registry import TypeRegistry
from streamcp.serialization.serializer import Serializer

CALLS: list[str] = []


def ran(name: str) -> None:
    CALLS.append(name)


def converted(value: Any) -> Any:
    ran("converter")
    return value


def validated(instance: Any, attribute: Any, value: Any) -> None:
    ran("validator")


@dataclasses.dataclass
class Plain:
    a: Any
    b: Any = 2
    kind: ClassVar[str] = "k"

    def __post_init__(self) -> None:
        ran("post_init")


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: Any
    b: Any

    def __new__(cls, *args: Any) -> Frozen:
        ran("new")
        return super().__new__(cls)


@dataclasses.dataclass(slots=True)
class Slots:
    a: Any
    b: Any


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSlots:
    a: Any
    b: Any


@dataclasses.dataclass
class Mixed(Slots):  # slots of the base, a dict of its own
    c: Any = 3


@dataclasses.dataclass
class Watching:
    a: Any
    b: Any

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        ran("setattr")
        object.__setattr__(self, name, value)

    def __reduce__(self) -> Any:
        ran("reduce")
        return str, ("",)

    def __setstate__(self, state: Any) -> None:
        ran("setstate")


class Pair(NamedTuple):
    a: Any
    b: Any = 2


@attrs.define
class AttrsSlots:
    a: Any = attrs.field(converter=converted)
    b: Any = attrs.Factory(list)


@attrs.frozen(cache_hash=True)
class AttrsFrozen:
    a: Any
    b: Any


@attrs.define(slots=False)
class AttrsDict:
    a: Any
    b: Any = attrs.field(validator=validated)


class Struct(msgspec.Struct):
    a: Any
    b: Any = msgspec.field(default_factory=list)


class FrozenStruct(msgspec.Struct, frozen=True, kw_only=True, tag="t"):
    a: Any
    b: Any

    def __post_init__(self) -> None:
        ran("struct post_init")


class Model(pydantic.BaseModel):
    a: Any
    b: Any = 2
    _secret: Any = pydantic.PrivateAttr(default=5)
    _unset: Any = pydantic.PrivateAttr()

    @pydantic.field_validator("a")
    @classmethod
    def check(cls, value: Any) -> Any:
        ran("validator")
        return value


class FrozenModel(pydantic.BaseModel, frozen=True, extra="allow"):
    a: Any
    b: Any


@dataclasses.dataclass
class Empty:
    pass


@dataclasses.dataclass
class Single:
    a: Any


TWO_FIELDS: list[Any] = [
    Plain, Frozen, Slots, FrozenSlots, Mixed, Watching, Pair, AttrsSlots, AttrsFrozen, AttrsDict,
    Struct, FrozenStruct, Model, FrozenModel,
]  # fmt: skip
ALL = [*TWO_FIELDS, Empty, Single]


def make_serializer() -> Serializer:
    registry = TypeRegistry()
    for cls in ALL:
        registry.declare(cls, step="s")
    return Serializer(registry)


def build(cls: Any, a: Any, b: Any) -> Any:
    keywords = issubclass(cls, FrozenStruct | pydantic.BaseModel)
    return cls(a=a, b=b) if keywords else cls(a, b)


@pytest.mark.parametrize("cls", TWO_FIELDS)
def test_an_instance_comes_back_equal_and_none_of_its_code_runs(cls: Any) -> None:
    value, flat_value = build(cls, [1], "x"), build_flat(cls)
    serializer = make_serializer()
    CALLS.clear()
    data = serializer.dumps(value, step="s")
    back = Deserializer(serializer.classes(), serializer._registry).loads(data)
    copied, flat = serializer.copy(value, step="s"), serializer.copy(flat_value, step="s")
    assert CALLS == []
    assert type(back) is type(copied) is type(flat) is cls
    assert back == value == copied
    assert flat == flat_value
    assert back.a is not value.a
    assert copied.a is not value.a


@functools.cache
def build_flat(cls: Any) -> Any:
    return build(cls, 1, "x")


@pytest.mark.parametrize("value", [Empty(), Single([1])])
def test_classes_with_no_field_and_with_one_come_back(value: Any) -> None:
    serializer = make_serializer()
    assert serializer.loads(serializer.dumps(value, step="s")) == value
    assert serializer.copy(value, step="s") == value


@pytest.mark.parametrize("cls", [Frozen, FrozenSlots, AttrsFrozen, FrozenStruct, FrozenModel, Pair])
def test_a_frozen_instance_can_be_a_key_again(cls: Any) -> None:
    value = {build_flat(cls): {build(cls, (1,), None)}}
    hash(build_flat(cls))  # attrs remembers it in the instance, where it must not be taken along
    serializer = make_serializer()
    assert serializer.loads(serializer.dumps(value, step="s")) == value
    assert hash(serializer.copy(build_flat(cls), step="s")) == hash(build_flat(cls))


@pytest.mark.parametrize("cls", [Frozen, FrozenSlots, AttrsFrozen, FrozenStruct])
def test_a_frozen_instance_is_frozen_again(cls: Any) -> None:
    back = make_serializer().copy(build_flat(cls), step="s")
    with pytest.raises(AttributeError):
        back.a = 5


leaves = st.none() | st.integers() | st.text() | st.floats(allow_nan=False) | st.binary()
nested = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(), inner, max_size=3)
        | st.builds(build, st.sampled_from(TWO_FIELDS), inner, inner)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(nested)
def test_nested_instances_of_all_kinds_come_back_equal(value: Any) -> None:
    serializer = make_serializer()
    assert serializer.loads(serializer.dumps(value, step="s")) == value
    assert serializer.copy(value, step="s") == value


def test_a_pydantic_model_keeps_extra_private_and_set_fields() -> None:
    serializer = make_serializer()
    model = Model(a=1)
    model._secret = [7]
    extra = FrozenModel(a=1, b=2, c=3)  # type: ignore[call-arg]
    back, back_extra = serializer.loads(serializer.dumps([model, extra], step="s"))
    assert back == model
    assert (back._secret, back.model_fields_set) == ([7], {"a"})
    assert back_extra == extra
    assert back_extra.c == 3


class Color(enum.Enum):
    RED = 1
    CRIMSON = 1
    BLUE = [2]  # noqa: RUF012


class Level(enum.IntEnum):
    LOW = 1


class Word(str, enum.Enum):  # noqa: UP042 (as people write it)
    A = "a"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Loose(enum.IntFlag, boundary=enum.KEEP):
    ONE = 1


def enum_serializer() -> Serializer:
    registry = TypeRegistry()
    for cls in (Color, Level, Word, Right, Loose):
        registry.declare(cls, step="s")
    return Serializer(registry)


@pytest.mark.parametrize(
    "member",
    [Color.RED, Color.CRIMSON, Color.BLUE, Level.LOW, Word.A, Right.READ, Right.READ | Right.WRITE,
     Right(0), Loose.ONE],
)  # fmt: skip
def test_members_come_back_as_the_same_objects(member: Any) -> None:
    serializer = enum_serializer()
    assert serializer.loads(serializer.dumps([member, member], step="s")) == [member, member]
    assert serializer.copy(member, step="s") is member


def test_a_flag_with_bits_that_have_no_name_is_refused() -> None:
    with pytest.raises(SerializationError, match=r"bits that no member names"):
        enum_serializer().dumps(Loose(9), step="s")


def test_a_member_that_is_gone_is_named() -> None:
    serializer = enum_serializer()
    data = serializer.dumps(Color.RED, step="s").replace(b"RED", b"RAD")
    with pytest.raises(SerializationError, match=r"Color has no member 'RAD'"):
        serializer.loads(data)


class WithSlot:
    __slots__ = ("lost",)


@dataclasses.dataclass
class LosesSlot(WithSlot):
    a: int


class Descriptor:
    def __get__(self, instance: Any, owner: Any) -> int:
        return 1

    def __set__(self, instance: Any, value: int) -> None:
        ran("descriptor")


@dataclasses.dataclass
class Described:
    a: Descriptor = Descriptor()


@dataclasses.dataclass
class DictToo(dict):  # type: ignore[type-arg]
    a: int


@dataclasses.dataclass
class Error(Exception):
    a: int


@pytest.mark.parametrize("cls", [LosesSlot, Described, DictToo, Error])
def test_a_class_whose_content_would_be_lost_is_no_data_class(cls: type) -> None:
    with pytest.raises(SerializationError, match=cls.__name__):
        TypeRegistry().declare(cls, step="s")


@dataclasses.dataclass
class Caching:
    a: int

    @functools.cached_property
    def double(self) -> int:
        return 2 * self.a


def caching_serializer() -> Serializer:
    registry = TypeRegistry()
    registry.declare(Caching, step="s")
    return Serializer(registry)


def test_a_cached_property_is_computed_again() -> None:
    value = Caching(2)
    assert value.double == 4
    back = caching_serializer().copy(value, step="s")
    assert vars(back) == {"a": 2}
    assert back.double == 4


def test_an_attribute_that_is_no_field_is_refused_not_lost() -> None:
    value = Caching(2)
    value.other = 3  # type: ignore[attr-defined]
    with pytest.raises(SerializationError, match=r"'s'.*Caching.*'other'.*make it a field"):
        caching_serializer().dumps([value], step="s")
    with pytest.raises(SerializationError, match=r"'other'"):
        caching_serializer().copy(value, step="s")


@pytest.mark.parametrize("cls", [Caching, Slots, AttrsSlots])
def test_a_field_without_a_value_is_refused(cls: Any) -> None:
    registry = TypeRegistry()
    registry.declare(cls, step="s")
    with pytest.raises(SerializationError, match=f"{cls.__name__} lacks a field"):
        Serializer(registry).dumps(object.__new__(cls), step="s")
