from __future__ import annotations

from typing import Any

import pytest

from streamcp.errors import SerializationError
from streamcp.serialization.captured import Captured
from streamcp.serialization.registry import TypeRegistry
from streamcp.serialization.serializer import Serializer


@pytest.fixture
def serializer() -> Serializer:
    return Serializer(TypeRegistry())


def test_a_value_changed_after_before_use_is_frozen_as_it_was(serializer: Serializer) -> None:
    value = {"a": [1]}
    captured = Captured(value, serializer, step="s")
    captured.before_use()
    value["a"].append(2)
    captured.freeze()
    assert captured.frozen is not None
    assert serializer.loads(captured.frozen) == {"a": [1]}


def test_an_immutable_value_is_not_frozen_before_use(serializer: Serializer) -> None:
    captured = Captured((1, "a"), serializer, step="s")
    captured.before_use()
    assert captured.frozen is None
    captured.freeze()
    assert captured.frozen is not None


@pytest.mark.parametrize(("values", "freezes"), [([1, "a"], False), ([1, [2]], True)])
def test_a_list_that_nobody_changes_is_judged_by_its_records(
    serializer: Serializer, values: list[Any], freezes: bool
) -> None:
    captured = Captured(values, serializer, step="s", fixed_list=True)
    captured.before_use()
    assert (captured.frozen is not None) == freezes


def test_a_list_is_frozen_before_use_if_it_may_be_changed(serializer: Serializer) -> None:
    captured = Captured([1], serializer, step="s")
    captured.before_use()
    assert captured.frozen is not None


def test_a_failing_freeze_keeps_its_error_and_is_not_repeated(serializer: Serializer) -> None:
    value: list[Any] = [object()]
    captured = Captured(value, serializer, step="enrich")
    captured.before_use()
    first = captured.error
    value.clear()
    captured.freeze()
    captured.before_use()
    assert captured.frozen is None
    assert captured.error is first
    assert isinstance(first, SerializationError)
    assert "enrich" in str(first)
