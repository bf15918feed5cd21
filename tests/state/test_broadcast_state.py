"""Broadcast state is captured by reference, frozen before it changes, and shared while it rests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.serialization.registry import TypeRegistry
from streamcp.serialization.serializer import Serializer
from streamcp.state.broadcast import BroadcastState


def new_state(value: Any) -> BroadcastState:
    return BroadcastState("step", value, Serializer(TypeRegistry()))


def content(serialized: bytes | None) -> Any:
    assert serialized is not None
    return Serializer(TypeRegistry()).loads(serialized)


def test_capture_has_the_value_of_its_time_although_it_is_frozen_by_the_next_change() -> None:
    state = new_state({"a": [1]})
    captured = state.capture()
    state.before_change()
    state.value["a"].append(2)
    assert content(captured.frozen) == {"a": [1]}
    later = state.capture()
    later.freeze()
    assert content(later.frozen) == {"a": [1, 2]}


def test_state_that_rests_is_frozen_once() -> None:
    state = new_state({"a": 1})
    first = state.capture()
    assert state.capture() is first
    state.before_change()
    assert state.capture() is not first


CHANGES: list[Callable[[dict[str, Any]], object]] = [
    lambda value: value.pop("a"),
    lambda value: value["list"].append(1),
    lambda value: value["set"].add(4),
    lambda value: value.update(b=2),
]


@pytest.mark.parametrize("change", CHANGES)
def test_change_that_was_not_told_is_seen(change: Callable[[dict[str, Any]], object]) -> None:
    state = new_state({"a": 1, "list": [], "set": {1, 2, 3}})
    state.capture().freeze()
    assert state.is_as_captured()
    change(state.value)
    assert not state.is_as_captured()


def test_value_that_cannot_be_serialized_is_taken_as_unchanged() -> None:
    assert new_state({"a": lambda: 1}).is_as_captured()


@given(st.lists(st.sampled_from(["change", "capture"]), max_size=12))
def test_every_capture_keeps_the_changes_that_came_before_it(actions: list[str]) -> None:
    state = new_state([])
    captures = []
    for number, action in enumerate(actions):
        if action == "capture":
            captures.append((state.capture(), list(state.value)))
        else:
            state.before_change()
            state.value.append(number)
    for captured, expected in captures:
        captured.freeze()
        assert content(captured.frozen) == expected
