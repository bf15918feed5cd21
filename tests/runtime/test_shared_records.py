"""What two readers have is found wherever it is held, and only a change of content is one."""

from __future__ import annotations

import copy
import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streamcp.runtime.shared_records import WATCHED, SharedRecords
from streamcp.serialization.registry import TypeRegistry, codec


@dataclass
class Order:
    number: float
    tags: list[Any] = field(default_factory=list)


class Opaque:
    pass


def shared(*values: Any) -> SharedRecords:
    records = SharedRecords(TypeRegistry())
    for value in values:
        records.watch(value, "somebody else")
    return records


LEAVES = st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=3), st.binary())
HASHED = st.one_of(st.integers(), st.text(max_size=3))
VALUES = st.recursive(
    st.one_of(LEAVES, st.sets(HASHED, max_size=3), st.builds(bytearray, st.binary())),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(HASHED, inner, max_size=3),
        st.tuples(inner, inner),
        st.builds(Order, st.floats(), st.lists(inner, max_size=2)),
        st.builds(deque, st.lists(inner, max_size=2)),
    ),
    max_leaves=12,
)


def changeable(value: Any) -> list[Any]:
    """Everything in a value that this test can change."""
    found, waiting = [], [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list | dict | set | bytearray | deque | Order):
            found.append(one)
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, Order):
            waiting.append(one.tags)
        elif isinstance(one, list | tuple | deque):
            waiting += one
    return found


def change(value: Any) -> None:
    match value:
        case dict():
            value["one more"] = 1
        case set():
            value.add("one more")
        case bytearray():
            value.append(1)
        case Order():
            value.number = 1.5 if math.isnan(value.number) else math.nan
        case _:
            value.append("one more")


@given(VALUES, st.data())
def test_any_change_in_place_is_found_and_nothing_else(value: Any, data: st.DataObject) -> None:
    records = shared(value)
    watched = records.watched_in([{"holds": [(value,)]}])
    copy.deepcopy(value), repr(value), value == value  # what a reader may do
    assert records.changed(watched) is None
    inside = changeable(value)
    assert bool(watched) == bool(inside)
    if inside:
        change(data.draw(st.sampled_from(inside)))
        assert records.changed(watched) is not None


@given(VALUES)
def test_equal_object_that_is_another_one_is_not_watched(value: Any) -> None:
    records = shared(value)
    assert records.watched_in([copy.deepcopy(value)]) == []


def test_first_one_who_shared_an_object_is_told() -> None:
    record = [1]
    records = shared(record)
    records.watch(record, "a third one")
    [watched] = records.watched_in([record])
    assert watched.whose == "somebody else"


def test_objects_in_both_a_result_and_a_state_are_watched() -> None:
    kept, alone = Order(1), Order(2)
    records = shared()
    records.watch_common([[kept, alone]], {"last": kept}, "the state")
    watched = [one.value for one in records.watched_in([[kept, alone]])]
    assert len(watched) == 2
    assert any(one is kept for one in watched)
    assert any(one is kept.tags for one in watched)


def test_oldest_are_forgotten() -> None:
    values = [[n] for n in range(WATCHED + 1)]
    records = shared(*values)
    assert records.watched_in([values[0]]) == []
    assert records.watched_in([values[1], values[-1]]) != []


def test_what_no_snapshot_could_hold_is_taken_for_unchanging() -> None:
    opaque, circle = Opaque(), list[Any]()
    circle.append(circle)
    records = shared([opaque], circle)
    opaque.__dict__["cached"] = 1
    circle.append(1)
    assert records.changed(records.watched_in([[opaque], circle])) is None


def test_class_with_a_codec_is_what_it_encodes() -> None:
    registry = TypeRegistry()
    registry.register(codec(Opaque, lambda one: list(vars(one)), lambda names: Opaque()))
    records, opaque = SharedRecords(registry), Opaque()
    records.watch(opaque, "somebody else")
    opaque.__dict__["changed"] = 1
    assert records.changed(records.watched_in([opaque])) is not None


def test_state_that_is_too_large_is_looked_into_for_a_while_only() -> None:
    record = [1]
    records = shared(record)
    large: list[Any] = [record, *([n] for n in range(20_000))]
    assert records.watched_in([large]) == []
