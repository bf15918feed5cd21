"""A state that expires is never seen too late, is freed by and by, and is restored as it was."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcp.checkpoint.snapshot import SectionHandle
from streamcp.elements import MIN_TIMESTAMP
from streamcp.serialization.registry import TypeRegistry
from streamcp.serialization.serializer import Serializer
from streamcp.state.entries import EVENT, PROCESSING, apply_rows, without_timers
from streamcp.state.expiring import ExpiringState
from streamcp.state.expiry_index import BUCKETS_PER_LIFE
from streamcp.state.keyed import KeyedState
from streamcp.state.keyed_snapshot import KeyedSnapshot

LIFE = 320
WIDTH = LIFE // BUCKETS_PER_LIFE


class Bench:
    """A state, and the time that it is by its clock."""

    def __init__(self, clock: int = PROCESSING, now: int = 1000) -> None:
        self.now = now
        self.clock = clock
        self.serializer = Serializer(TypeRegistry())
        self.state = self.new_state()

    def new_state(self) -> ExpiringState:
        return ExpiringState(
            "step",
            list,
            self.serializer,
            4,
            life=LIFE,
            clock=self.clock,
            time_of=lambda group: self.now,
            incremental=True,
        )

    def call(self, key: Any, value: int) -> list[int]:
        """Do what a step does with a record; return what it sees."""
        state = self.state
        entry = state[key]
        if entry.epoch != state.epoch:
            state.preserve(entry)
        if state.has_expired(entry, self.now):
            state.renew(entry)
        seen = list(entry.value)
        entry.value.append(value)
        state.update(entry, self.now)
        return seen

    def sweep(self) -> None:
        while self.state.sweep(self.now, 5):
            pass

    def rows(self) -> list[Any]:
        """What a snapshot writes that fails then."""
        return self.frozen(self.state.snapshot())

    def frozen(self, snapshot: KeyedSnapshot) -> list[Any]:
        while snapshot.freeze_some():
            pass
        frames = snapshot.section().frames
        return [row for frame in frames for row in self.serializer.loads(frame)]

    def checkpoint(self, stored: dict[Any, Any]) -> None:
        """Take a snapshot, apply it to what is stored, and complete it."""
        snapshot = self.state.snapshot()
        rows = self.frozen(snapshot)
        if snapshot.base is None:
            stored.clear()
        apply_rows(rows, stored)
        file = f"chk-{snapshot.epoch}"
        snapshot.written(SectionHandle("state", "step", len(rows), file, 18, (), "", ()))
        snapshot.completed()


def test_state_is_seen_until_its_life_is_over_and_never_after_although_nothing_was_swept() -> None:
    bench = Bench()
    bench.call("a", 1)
    bench.now += LIFE - 1
    assert bench.call("a", 2) == [1]
    bench.now += LIFE
    assert bench.call("a", 3) == []


def test_sweeping_frees_entries_and_their_places_in_the_index() -> None:
    bench = Bench()
    for key in range(100):
        bench.call(key, 0)
    bench.now += LIFE // 2
    for key in range(0, 100, 2):
        bench.call(key, 1)
    bench.now += LIFE // 2 + WIDTH
    bench.sweep()
    assert sorted(bench.state.entries) == list(range(0, 100, 2))
    assert bench.state.index.count == 50
    bench.now += LIFE
    bench.sweep()
    assert len(bench.state.entries) == bench.state.index.count == 0
    assert bench.state.index.next_look is None
    assert not any(bench.state._groups)


def test_sweep_looks_at_no_more_than_it_may() -> None:
    bench = Bench()
    for key in range(100):
        bench.call(key, 0)
    bench.now += 2 * LIFE
    assert bench.state.sweep(bench.now, 7)
    assert len(bench.state.entries) == 93


@pytest.mark.parametrize("dated", [True, False])
def test_sweep_comes_to_an_end_where_the_time_of_a_group_stands_still(dated: bool) -> None:
    """After a restore, the input of some key groups can have ended, and that of others not."""
    bench = Bench(clock=EVENT)
    if dated:
        bench.call("a", 1)
    bench.now = MIN_TIMESTAMP
    bench.state["b"]  # made as well while no time can be told
    looks = 0
    while bench.state.sweep(1000 + 2 * LIFE, 5):
        looks += 1
        assert looks < 3
    assert sorted(bench.state.entries) == (["a", "b"] if dated else ["b"])


def test_value_that_is_refreshed_when_the_sweep_has_come_to_it_survives_with_one_place() -> None:
    """quix#1129 (case 43)."""
    bench = Bench()
    bench.call("a", 1)
    bench.now += LIFE + WIDTH
    assert bench.call("a", 2) == []  # expired and not swept: it is fresh, and refreshed
    bench.sweep()
    assert bench.state.entries["a"].value == [2]
    assert bench.state.index.count == 1
    bench.now += LIFE - 1
    assert bench.call("a", 3) == [2]
    assert bench.state.index.count == 1


def test_key_that_is_cleared_and_comes_back_again_and_again_has_one_place() -> None:
    bench = Bench()
    for _ in range(1000):
        bench.call("a", 1)
        bench.state.remove("a")
        bench.now += 1
    bench.call("a", 1)
    assert bench.state.index.count == 1


def test_timers_outlive_the_value_of_their_key() -> None:
    bench = Bench()
    bench.call("a", 1)
    bench.state.set_timer(bench.state["a"], 10_000)
    bench.now += 2 * LIFE
    bench.sweep()
    assert bench.state.has_timer("a", 10_000)
    assert bench.state.entries["a"].value == []
    bench.state.timer_done(bench.state["a"], 10_000)
    bench.now += 2 * LIFE
    bench.sweep()
    assert not bench.state.entries


def test_copies_show_nothing_that_has_expired() -> None:
    bench = Bench()
    bench.call("a", 1)
    bench.now += LIFE
    bench.call("b", 2)
    assert dict(bench.state.copies()) == {"b": [2]}


@pytest.mark.parametrize("clock", [PROCESSING, EVENT])
def test_restored_state_has_as_long_to_live_as_it_had(clock: int) -> None:
    bench = Bench(clock)
    bench.call("a", 1)
    rows = bench.rows()
    assert rows == [("a", [1], (), (), 1000, clock)]
    bench.state = bench.new_state()
    bench.state.restore(rows)
    bench.now += LIFE - 1
    assert bench.state.is_visible(bench.state["a"])
    bench.now += 1
    assert not bench.state.is_visible(bench.state["a"])
    bench.now += WIDTH
    bench.sweep()
    assert not bench.state.entries


def test_state_that_did_not_expire_before_begins_its_life_at_the_restore() -> None:
    bench = Bench()
    bench.state.restore([("a", [1], ())])
    bench.now += LIFE - 1
    assert bench.call("a", 2) == [1]


def test_state_that_expired_by_the_other_clock_begins_its_life_with_the_first_watermark() -> None:
    bench = Bench(EVENT, now=-(2**63))
    bench.state.restore([("a", [1], (), (), 1000, PROCESSING), ("b", [2], ())])
    assert bench.rows() == [("a", [1], ()), ("b", [2], ())]
    bench.now = 10**12
    bench.sweep()
    bench.now += LIFE - 1
    assert bench.call("a", 3) == [1]
    bench.now += 1
    assert bench.call("b", 3) == []


def test_call_before_the_first_watermark_dates_what_was_restored_without_a_date() -> None:
    bench = Bench(EVENT, now=-(2**63))
    bench.state.restore([("a", [1], ())])
    bench.state.update(bench.state["a"], 1000)
    bench.now = 900
    bench.sweep()
    assert bench.rows() == [("a", [1], (), (), 1000, EVENT)]
    bench.now = 900 + LIFE
    assert bench.call("a", 2) == [1]


def test_state_that_does_not_expire_any_more_is_restored_without_its_dates() -> None:
    state = KeyedState("step", list, Serializer(TypeRegistry()), 4)
    state.restore([("a", [1], (5,), (), 1000, PROCESSING), ("b", [2], (), (7,), 1000, EVENT)])
    assert [entry.row() for entry in state.entries.values()] == [
        ("a", [1], (5,)),
        ("b", [2], (), (7,)),
    ]


def test_dates_stay_where_timers_are_left_out() -> None:
    rows = [("a", 1, (5,), (6,), 1000, EVENT), ("b", 1, (5,), (), 1, PROCESSING)]
    assert without_timers(rows) == [("a", 1, (), (), 1000, EVENT), ("b", 1, (), (), 1, PROCESSING)]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.sampled_from("abcd")),
        st.tuples(st.just("pass"), st.integers(1, LIFE)),
        st.tuples(st.just("sweep"), st.integers(1, 3)),
        st.tuples(st.just("clear"), st.sampled_from("abcd")),
        st.tuples(st.just("timer"), st.sampled_from("abcd")),
        st.tuples(st.just("checkpoint"), st.booleans()),
    ),
    max_size=60,
)


@settings(max_examples=200)
@given(STEPS, st.sampled_from([PROCESSING, EVENT]))
def test_what_calls_see_equals_an_oracle_whatever_is_swept_cleared_and_restored(
    steps: list[tuple[str, Any]], clock: int
) -> None:
    bench = Bench(clock)
    model: dict[str, tuple[list[int], int]] = {}
    stored: dict[Any, Any] = {}
    for number, (what, value) in enumerate(steps):
        if what == "call":
            seen, updated = model.get(value, ([], bench.now))
            seen = seen if updated + LIFE > bench.now else []
            assert bench.call(value, number) == seen
            model[value] = ([*seen, number], bench.now)
        elif what == "pass":
            bench.now += value
        elif what == "sweep":
            bench.state.sweep(bench.now, value)
        elif what == "clear":
            bench.state.remove(value)
            model.pop(value, None)
        elif what == "timer":
            entry = bench.state.entries.get(value)
            if entry is not None:
                bench.state.set_timer(entry, bench.now + 10 * LIFE)
        else:
            bench.checkpoint(stored)
            if value:
                bench.state = bench.new_state()
                bench.state.restore(copy.deepcopy([*stored.values()]))
        places = [one for bucket in bench.state.index._buckets.values() for one in bucket]
        assert sorted(places, key=id) == sorted(bench.state.entries.values(), key=id)
        assert bench.state.index.count == len(places)
    expected = {key: value for key, (value, at) in model.items() if at + LIFE > bench.now}
    visible = {key: value for key, value in bench.state.copies() if value}
    assert visible == expected
    rows = bench.rows()
    assert all(row[4] <= bench.now for row in rows if len(row) == 6)
