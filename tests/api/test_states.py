"""Rule 6: state is changed in place, so immutable types are refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple

import attrs
import msgspec
import pydantic
import pytest

import streamcp as sc
from streamcp.api.states import check_state, is_immutable


@dataclass
class Visits:
    count: int = 0


@dataclass(frozen=True)
class Frozen:
    count: int = 0


@dataclass
class NeedsCount:
    count: int


class Pair(NamedTuple):
    left: int = 0


class Color(Enum):
    RED = 1


class Struct(msgspec.Struct):
    count: int = 0


class FrozenStruct(msgspec.Struct, frozen=True):
    count: int = 0


class Model(pydantic.BaseModel):
    count: int = 0


class FrozenModel(pydantic.BaseModel, frozen=True):
    count: int = 0


@attrs.define
class Defined:
    count: int = 0


@attrs.frozen
class FrozenDefined:
    count: int = 0


async def slow() -> Visits:
    return Visits()


@pytest.mark.parametrize(
    "state", [Visits, dict, list, set, Counter, Struct, Model, Defined, lambda: Visits(3)]
)
def test_what_can_be_changed_in_place_is_taken(state: Any) -> None:
    check_state("process(f)", state)


IMMUTABLE: list[Any] = [
    *(int, str, bytes, tuple, frozenset, float),
    *(Frozen, Pair, FrozenStruct, FrozenModel, FrozenDefined),
    *(lambda: None, lambda: Color.RED, datetime.now),
]


@pytest.mark.parametrize("state", IMMUTABLE)
def test_immutable_state_is_refused(state: Any) -> None:
    with pytest.raises(sc.DefinitionError, match=r"process\(f\).*cannot be changed in place"):
        check_state("process(f)", state)


@pytest.mark.parametrize("state", [Visits(), 0, slow])
def test_what_makes_no_state_is_refused(state: Any) -> None:
    with pytest.raises(sc.DefinitionError, match="a class, or a plain function"):
        check_state("process(f)", state)


def test_object_given_as_state_is_told_to_give_its_class() -> None:
    with pytest.raises(
        sc.DefinitionError, match=r"state=Visits\(count=0\) is an object.*state=Visits"
    ):
        check_state("process(f)", Visits())  # type: ignore[arg-type]


def test_fields_without_defaults_are_named() -> None:
    with pytest.raises(sc.DefinitionError, match=r"'count'.*give every field a default") as caught:
        check_state("process(f)", NeedsCount)  # type: ignore[arg-type]
    assert isinstance(caught.value.__cause__, TypeError)


def test_bool_and_range_are_immutable() -> None:
    assert is_immutable(True)
    assert is_immutable(range(3))
