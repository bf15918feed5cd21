"""Instances are taken apart exactly, and as they were made: their attributes get no dict."""

from __future__ import annotations

import dataclasses
import functools
import gc
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from streamcp.errors import SerializationError
from streamcp.serialization.registry import TypeRegistry
from streamcp.serialization.serializer import Serializer
from streamcp.state.keyed import KeyedState


@dataclasses.dataclass
class One:
    a: Any = None


@dataclasses.dataclass
class Two:
    a: Any = None
    b: Any = None


class Backwards(Two):
    """Its attributes are set in another order than its fields are declared."""

    def __init__(self, a: Any, b: Any) -> None:
        self.b = b
        self.a = a


class Remembering(Two):
    @functools.cached_property
    def total(self) -> int:
        return int(self.a + self.b)


def serializer() -> Serializer:
    registry = TypeRegistry()
    for cls in (One, Two, Backwards, Remembering):
        registry.declare(cls, step="step")
    return Serializer(registry)


def has_dict(instance: object) -> bool:
    """Whether its attributes live in a dict; asking for `__dict__` would make one."""
    fields = [getattr(instance, field.name) for field in dataclasses.fields(instance)]  # type: ignore[arg-type]
    held = [one for one in gc.get_referents(instance) if not any(one is value for value in fields)]
    return any(type(one) is dict for one in held)


def by_one(values: Sequence[Any]) -> list[Any]:
    writer = serializer()
    return [writer.loads(writer.dumps(value, step="step")) for value in values]


def by_columns(values: Sequence[Any]) -> list[Any]:
    writer = serializer()
    keys = [*range(len(values))]
    return [value for _, value in writer.loads(writer.dumps_rows(keys, [*values], step="step"))]


def by_copy(values: Sequence[Any]) -> list[Any]:
    writer = serializer()
    for value in values:
        writer.writer(type(value))
    return [writer.copy(value, step="step") for value in values]


WAYS = pytest.mark.parametrize("way", [by_one, by_columns, by_copy])
Way = Callable[[Sequence[Any]], list[Any]]


@WAYS
@pytest.mark.parametrize("values", [[One(1), One("x")], [Two(1, None), Two([], {})]])
def test_attributes_get_no_dict(way: Way, values: list[Any]) -> None:
    assert not any(map(has_dict, values))  # else the test says nothing
    assert way(values) == values
    assert not any(map(has_dict, values))


@WAYS
def test_a_restored_instance_has_no_dict(way: Way) -> None:
    assert not any(map(has_dict, way([One(1), One(2)])))


@WAYS
@pytest.mark.parametrize("content", [{"x": 1}, {}, One, Two])
def test_fields_that_look_like_what_is_beside_them(way: Way, content: Any) -> None:
    """A dict where the dict of an instance would be."""
    if content not in (One, Two):
        assert way([One(content), One(content)]) == [One(content), One(content)]
    else:
        with pytest.raises(SerializationError, match="type"):
            way([One(content), One(content)])


@WAYS
def test_attributes_in_another_order(way: Way) -> None:
    found = way([Backwards(1, 2), Backwards(3, 3)])
    assert [(one.a, one.b) for one in found] == [(1, 2), (3, 3)]


@WAYS
def test_an_instance_with_a_dict(way: Way) -> None:
    """Somebody has asked for it; of the others nobody has."""
    values = [One(1), One(2), One(3)]
    assert vars(values[1]) == {"a": 2}
    assert way(values) == values
    assert [*map(has_dict, values)] == [False, True, False]


@WAYS
def test_what_can_be_computed_again_is_left_out(way: Way) -> None:
    values = [Remembering(1, 2), Remembering(3, 4)]
    assert values[1].total == 7
    assert [vars(one) for one in way(values)] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]


@WAYS
@pytest.mark.parametrize("cls", [One, Two])
@pytest.mark.parametrize("lacking", [False, True])
def test_an_attribute_that_is_no_field_is_refused(way: Way, cls: Any, lacking: bool) -> None:
    """Also if another instance, or the same one, lacks a field, so that the number is right."""
    other, one = cls(1), cls(2)
    one.extra = 3
    if lacking:
        del other.a
    with pytest.raises(SerializationError, match="holds the attribute 'extra'"):
        way([other, one])
    if lacking:
        del one.a
        with pytest.raises(SerializationError, match="holds the attribute 'extra'"):
            way([one, one])


@WAYS
def test_a_field_that_only_the_class_has(way: Way) -> None:
    one = Two(1, 2)
    del one.a
    assert way([one, Two(3, 4)]) == [Two(None, 2), Two(3, 4)]


@dataclasses.dataclass
class Nothing:
    """A state that only says that it is there."""


def test_what_is_taken_of_a_class_without_fields_can_be_read_back() -> None:
    """Not as columns: there would be none to tell how many there are."""
    registry = TypeRegistry()
    registry.declare(Nothing, step="step")
    writer = Serializer(registry)
    state = KeyedState("step", Nothing, writer, 1)
    writer.writer(Nothing)
    for key in range(3):
        state.insert(key)
    snapshot = state.snapshot()
    for entry in state.entries.values():
        state.preserve(entry)
    while snapshot.freeze_some():
        pass

    rows = [row for frame in snapshot.section().frames for row in writer.loads(frame)]
    assert rows == [(key, Nothing(), ()) for key in range(3)]
