from __future__ import annotations

import dataclasses
import enum
from decimal import Decimal
from typing import Any, NamedTuple

import pytest

from streamcp.serialization.immutable import all_immutable, all_leaves, is_deeply_immutable


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: Any


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSlots:
    a: Any


@dataclasses.dataclass
class Open:
    a: Any


class Pair(NamedTuple):
    left: Any
    right: Any


class Color(enum.Enum):
    RED = (1, [2])  # what a member is worth does not matter


class Text(str):
    """A subclass may hold anything."""


@pytest.mark.parametrize(
    "value",
    [1, "a", None, Decimal(1), (), (1, ("a", None)), frozenset([1, (2, 3)]), Frozen(1),
     FrozenSlots((1, Frozen("a"))), Pair(1, Frozen(2)), Color.RED, Frozen(Color.RED)],
    ids=repr,
)  # fmt: skip
def test_a_value_that_cannot_change_is_immutable(value: Any) -> None:
    assert is_deeply_immutable(value)


@pytest.mark.parametrize(
    "value",
    [[], {}, set(), bytearray(), Open(1), (1, []), Frozen([1]), FrozenSlots((1, {})),
     Pair(1, Open(2)), Frozen(Frozen(Frozen(set()))), object(), len, Text("a"), (Text("a"),)],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_value_that_can_change_somewhere_is_not(value: Any) -> None:
    assert not is_deeply_immutable(value)


def test_a_type_is_not_remembered_as_immutable_because_one_value_was() -> None:
    assert is_deeply_immutable(Frozen(1))
    assert not is_deeply_immutable(Frozen([]))
    assert is_deeply_immutable(Frozen(1))


def test_a_value_that_is_costly_to_judge_counts_as_changeable() -> None:
    shared: Any = ()
    for _ in range(100):
        shared = (shared, shared)
    assert not is_deeply_immutable(shared)


def test_a_batch_of_leaves_is_recognized() -> None:
    assert all_leaves([1, "a", None, 2.5])
    assert all_leaves([])
    assert not all_leaves([1, (1,)])
    assert not all_leaves([Text("a")])


def test_instance_without_its_field_is_no_error_here() -> None:
    assert not all_immutable([FrozenSlots.__new__(FrozenSlots)])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([("a", 1), ("b", None)], True),
        ([1, ("a", 2.5), "b", ()], True),
        ([("a", 1), ("b", [])], False),
        ([("a", 1), ["b"]], False),
        ([(("a", 1), 5), ("b", 7)], True),
        ([(("a", []), 5)], False),
        ([((("a", 1), 2), 3)], False),
        ([Pair("a", 1), Frozen("b"), FrozenSlots(1), ("c",), 5], True),
        ([(Frozen("a"), 5), (Frozen(1), 7)], True),
        ([Pair("a", []), Frozen("b")], False),
        ([Frozen("a"), Frozen([])], False),
        ([Frozen("a"), Open("b")], False),
        ([("a", Text("b"))], False),
        ([], True),
        ([1, "a", None], True),
        ([Text("a")], False),
    ],
)
def test_what_cannot_change_is_recognized_in_a_batch(values: list[Any], expected: bool) -> None:
    assert all_immutable(values) is expected
    assert is_deeply_immutable(tuple(values)) or not expected
