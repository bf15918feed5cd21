"""A digest tells contents apart exactly as a snapshot does, and is the same everywhere."""

from __future__ import annotations

import datetime as dt
import enum
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.errors import SerializationError
from streamcp.serialization.registry import TypeRegistry
from streamcp.serialization.serializer import Serializer


class Color(enum.Enum):
    RED = 1


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Order:
    number: int
    tags: list[str] = field(default_factory=list)


@dataclass
class Twin:
    number: int
    tags: list[str] = field(default_factory=list)


class Opaque:
    pass


def serializer() -> Serializer:
    registry = TypeRegistry()
    for cls in (Color, Pair, Order, Twin):
        registry.declare(cls, step="test")
    return Serializer(registry)


def digest(value: Any) -> bytes:
    return serializer().digest(value, step="test")


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-300, 300),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.sampled_from([Color.RED, Decimal("1.0"), dt.date(2024, 1, 2)]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.frozensets(st.integers(0, 5), max_size=3),
        st.builds(Pair, inner, inner),
        st.builds(Order, st.integers(0, 3), st.lists(st.text(max_size=1), max_size=2)),
    ),
    max_leaves=8,
)


@given(VALUES)
def test_what_a_restore_gives_has_the_same_digest(value: Any) -> None:
    one = serializer()
    serializer_of_another_attempt = serializer()
    serializer_of_another_attempt.dumps([Twin(1), Color.RED], step="test")  # other class numbers
    back = one.loads(one.dumps(value, step="test"))
    assert serializer_of_another_attempt.digest(back, step="test") == one.digest(value, step="test")


@given(VALUES, VALUES)
def test_different_contents_have_different_digests(one: Any, other: Any) -> None:
    if repr(one) != repr(other) and not _differ_in_order_only(one, other):
        assert digest(one) != digest(other)


def _differ_in_order_only(one: Any, other: Any) -> bool:
    return bool(one == other) and sorted(repr(one)) == sorted(repr(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ("a", b"a"),
        ([1], (1,)),
        ((1, 2), Pair(1, 2)),
        (Order(1), Twin(1)),
        (["ab", "c"], ["a", "bc"]),
        ([[], 1], [[1]]),
        ({1: 2}, {2: 1}),
        (2**70, -(2**70)),
        (255, -1),
        (Decimal("1.0"), Decimal("1.00")),
    ],
)
def test_what_looks_alike_is_told_apart(one: Any, other: Any) -> None:
    assert digest(one) != digest(other)


def test_order_of_sets_and_dictionaries_and_sharing_do_not_count() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest({1, 2, 9}) == digest({9, 2, 1})
    assert digest(Counter("abb")) == digest(Counter("bab"))
    tags = ["x"]
    assert digest([tags, tags]) == digest([["x"], ["x"]])


def test_digest_is_the_same_in_another_process() -> None:
    code = (
        "from streamcp.serialization.registry import TypeRegistry\n"
        "from streamcp.serialization.serializer import Serializer\n"
        "value = {'a': [1, 2.5, None], 'b': {'x', 'y', 'z'}, 'c': (b'1', 'ä')}\n"
        "print(Serializer(TypeRegistry()).digest(value, step='s').hex())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    value = {"c": (b"1", "ä"), "b": {"z", "y", "x"}, "a": [1, 2.5, None]}
    assert done.stdout.strip() == digest(value).hex()


def test_what_no_snapshot_can_hold_has_no_digest() -> None:
    with pytest.raises(SerializationError, match=r"step 'test': .*Opaque"):
        digest([Opaque()])
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(SerializationError, match="list"):
        digest(endless)
