from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import subprocess
import sys
import uuid
import zoneinfo
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcp.errors import SerializationError
from streamcp.serialization.stable_hash import stable_hash


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


class Name(str, enum.Enum):  # noqa: UP042 (as people write it)
    A = "a"


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass(frozen=True)
class Point:
    x: Any
    y: Any
    label: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True)
class Other:
    x: Any
    y: Any


numbers = (
    st.integers(-3, 3)
    | st.booleans()
    | st.integers(-3, 3).map(float)
    | st.integers(-3, 3).map(Decimal)
    | st.fractions(-3, 3, max_denominator=4)
    | st.sampled_from([0.5, -0.0, Decimal("0.50"), Decimal("-0"), 0.25, 1j, complex(1, 0)])
    | st.sampled_from([float("inf"), Decimal("Infinity"), 2**61 - 1, 2**70, float(2**70)])
)
leaves = (
    numbers
    | st.none()
    | st.sampled_from(["", "a", Name.A, b"a", b"", Color.RED, Color.BLUE, Level.LOW])
    | st.sampled_from([dt.date(2024, 1, 1), dt.datetime(2024, 1, 1), dt.timedelta(1)])  # noqa: DTZ001
)
keys = st.recursive(
    leaves,
    lambda inner: (
        st.tuples(inner, inner)
        | st.builds(Pair, inner, inner)
        | st.builds(Point, inner, inner, st.sampled_from(["", "other"]))
        | st.builds(Other, inner, inner)
        | st.frozensets(inner, max_size=3)
    ),
    max_leaves=4,
)


@settings(max_examples=300, deadline=None)
@given(keys, keys)
def test_equal_keys_have_equal_hashes(one: Any, other: Any) -> None:
    if one == other:
        assert stable_hash(one) == stable_hash(other)


@pytest.mark.parametrize(
    "group",
    [
        [1, 1.0, True, Decimal(1), Fraction(1), complex(1), Level.LOW, np.int8(1)],
        [0.5, np.float64(0.5), Decimal("0.5")],
        [0, -0.0, 0.0, False, Decimal("-0.00")],
        ["a", Name.A, np.str_("a")],
        [(1, "x"), Pair(True, "x"), Pair(Decimal(1), "x")],
        [frozenset([1, 2, 3]), frozenset([3.0, 2, True])],
        [Point(1, 2, "some"), Point(1.0, 2, "other")],
        [uuid.UUID(int=5), uuid.UUID("00000000-0000-0000-0000-000000000005")],
    ],
)
def test_keys_of_one_group_are_one_key(group: list[Any]) -> None:
    assert len({stable_hash(key) for key in group}) == 1


def test_different_keys_have_different_hashes() -> None:
    some = [
        None, 0, 1, 2, "", "1", "a", b"a", b"", (), (1,), (1, 2), (2, 1), ((1,), 2), frozenset(),
        frozenset([1]), Color.RED, Color.BLUE, Point(1, 2), Other(1, 2), uuid.UUID(int=1),
        dt.date(2024, 1, 1), dt.datetime(2024, 1, 1), dt.timedelta(1), "RED", 0.5, 2**70,  # noqa: DTZ001
    ]  # fmt: skip
    assert len({stable_hash(key) for key in some}) == len(some)
    assert all(0 <= stable_hash(key) < 2**64 for key in some)


instants = st.datetimes(
    dt.datetime(1990, 1, 1),  # noqa: DTZ001
    dt.datetime(2030, 1, 1),  # noqa: DTZ001
    timezones=st.just(dt.UTC),
)
zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"])


@settings(deadline=None)
@given(instants, zones, zones)
def test_equal_instants_in_different_zones_have_equal_hashes(
    instant: dt.datetime, one: str, other: str
) -> None:
    left, right = (instant.astimezone(zoneinfo.ZoneInfo(name)) for name in (one, other))
    if left == right:
        assert stable_hash(left) == stable_hash(right)


def test_a_repeated_hour_is_one_key_as_for_equality() -> None:
    first = dt.datetime(2024, 10, 27, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
    second = first.replace(fold=1)
    assert first == second
    assert stable_hash(first) == stable_hash(second)


def test_the_ends_of_time_have_hashes() -> None:
    for when in (dt.datetime.min, dt.datetime.max):  # noqa: DTZ901
        for zone in (
            None,
            dt.UTC,
            dt.timezone(dt.timedelta(hours=14)),
            dt.timezone(-dt.timedelta(hours=14)),
        ):
            assert stable_hash(when.replace(tzinfo=zone)) == stable_hash(when.replace(tzinfo=zone))


def test_not_a_number_has_one_hash() -> None:
    assert (
        len(
            {stable_hash(x) for x in (float("nan"), -float("nan"), Decimal("nan"), Decimal("sNaN"))}
        )
        == 1
    )


def test_hashes_never_change() -> None:
    assert [stable_hash(key) for key in (1, "a", (1, "a"), None, b"a")] == FIXED


def test_another_process_computes_the_same_hashes() -> None:
    program = (
        "from streamcp.serialization.stable_hash import stable_hash as h\n"
        "print([h(k) for k in (1, 'a', (1, 'a'), None, b'a')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(FIXED)


FIXED = [
    3439722301264460078,
    15201566949650179872,
    7627037169470609326,
    4075412128446734485,
    12281825131740780327,
]


@dataclasses.dataclass
class Mutable:
    x: int


@dataclasses.dataclass(frozen=True)
class OwnIdea:
    x: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnIdea) and other.x.lower() == self.x.lower()

    def __hash__(self) -> int:
        return 0


class CaseBlind(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self.lower() == str(other).lower()

    def __hash__(self) -> int:
        return hash(self.lower())


@pytest.mark.parametrize(
    "key",
    [object(), [1], {}, bytearray(b"a"), Mutable(1), OwnIdea("a"), CaseBlind("a"), len, int,
     np.float32(0.1), (1, object())],
    ids=lambda key: type(key).__name__,
)  # fmt: skip
def test_a_key_without_a_stable_hash_is_refused(key: Any) -> None:
    with pytest.raises(SerializationError, match=r"cannot be a key.*(use a text|item)"):
        stable_hash(key)
