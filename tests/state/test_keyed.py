"""A snapshot holds the state of its cut, whatever happens while it is frozen, timers included."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from streamcp.checkpoint.key_groups import by_group
from streamcp.serialization.registry import TypeRegistry
from streamcp.serialization.serializer import Serializer
from streamcp.state.keyed import KeyedState
from streamcp.state.keyed_snapshot import CHUNK, KeyedSnapshot
from tests.state.drawn_frames import DrawnFrames

Rows = dict[Any, tuple[Any, tuple[int, ...]]]


@dataclass
class Box:
    items: list[int] = field(default_factory=list)


@dataclass
class Undeclared:
    value: int = 0


def new_state(make: Any = list, max_parallelism: int = 4) -> KeyedState:
    registry = TypeRegistry()
    registry.declare(Box, step="step")
    return KeyedState("step", make, Serializer(registry), max_parallelism)


def rows_of(state: KeyedState) -> Rows:
    return {
        key: (as_it_is(entry.value), tuple(sorted(entry.timers[0] if entry.timers else ())))
        for key, entry in state.entries.items()
    }


def as_it_is(value: Any) -> Any:
    """A copy, quick for the lists of numbers that most of these states hold."""
    return [*value] if type(value) is list else copy.deepcopy(value)


def change(state: KeyedState, key: Any, value: int) -> None:
    """Change a value in place, as a step does."""
    entry = state[key]
    if entry.epoch != state.epoch:
        state.preserve(entry)
    entry.value.append(value)


def frozen(snapshot: KeyedSnapshot, state: KeyedState) -> Rows:
    while snapshot.freeze_some():
        pass
    assert snapshot.error is None
    return stored(snapshot, state)


def stored(snapshot: KeyedSnapshot, state: KeyedState) -> Rows:
    section = snapshot.section()
    assert len(section.frames) == len(section.key_groups)
    rows = [row for frame in section.frames for row in state._serializer.loads(frame)]
    assert len(rows) == section.records == len({row[0] for row in rows})
    for frame, runs in zip(section.frames, section.key_groups, strict=True):
        for group, own in by_group(state._serializer.loads(frame), runs):
            entries = [state.entries[key] for key, *_ in own if key in state.entries]
            assert {entry.group for entry in entries} <= {group}
    return {key: (value, timers) for key, value, timers in rows}


def test_missing_key_gets_a_fresh_value() -> None:
    state = new_state()
    change(state, "a", 1)
    assert state["b"].value == []
    assert state["a"].value == [1]


def test_groups_of_few_keys_share_a_frame() -> None:
    state = new_state(int, max_parallelism=128)
    for key in range(10 * CHUNK):
        state[key].value = key
    snapshot = state.snapshot()
    for key in range(0, 10 * CHUNK, 3):
        state.preserve(state[key])
        state[key].value = -1
    assert frozen(snapshot, state) == {key: (key, ()) for key in range(10 * CHUNK)}
    assert len(snapshot.section().frames) <= 10


def test_frames_of_large_values_hold_no_more_than_a_group() -> None:
    state = new_state(int, max_parallelism=16)
    for key in range(2 * CHUNK):
        state[key].value = "x" * 20_000 + str(key)
    snapshot = state.snapshot()
    frozen(snapshot, state)
    first, *others = snapshot.section().key_groups
    assert len(first) > 1
    assert {len(runs) for runs in others} == {1}


def test_others_get_their_turn_behind_the_last_frame_too() -> None:
    state = new_state()
    change(state, "a", 1)
    snapshot = state.snapshot()
    assert snapshot.freeze_some()
    assert not snapshot.freeze_some()


def test_snapshot_of_an_empty_state_has_no_frames() -> None:
    state = new_state()
    assert frozen(state.snapshot(), state) == {}


def test_changes_while_it_is_frozen_are_not_in_the_snapshot() -> None:
    state = new_state(max_parallelism=1)
    for key in range(3 * CHUNK):
        change(state, key, 0)
    snapshot = state.snapshot()
    snapshot.freeze_some()
    for key in range(0, 3 * CHUNK, 2):
        change(state, key, 1)
    state.remove(3 * CHUNK - 1)
    change(state, "new", 1)
    assert frozen(snapshot, state) == {key: ([0], ()) for key in range(3 * CHUNK)}


def test_removed_key_that_comes_back_is_old_in_the_snapshot_and_fresh_in_the_state() -> None:
    state = new_state()
    change(state, "a", 1)
    snapshot = state.snapshot()
    state.remove("a")
    change(state, "a", 2)
    assert frozen(snapshot, state) == {"a": ([1], ())}
    assert frozen(state.snapshot(), state) == {"a": ([2], ())}


def test_snapshot_that_is_dropped_leaves_the_next_one_whole() -> None:
    state = new_state()
    for key in range(5):
        change(state, key, 0)
    dropped = state.snapshot()
    state.remove(0)
    change(state, 1, 1)
    dropped.drop()
    assert not dropped.freeze_some()
    state.remove(2)
    assert frozen(state.snapshot(), state) == {1: ([0, 1], ()), 3: ([0], ()), 4: ([0], ())}


def test_new_snapshot_leaves_the_one_that_is_still_being_frozen_as_it_was() -> None:
    state = new_state(max_parallelism=1)
    for key in range(2 * CHUNK):
        change(state, key, 0)
    older = state.snapshot()
    older.freeze_some()
    state.remove(0)
    newer = state.snapshot()
    change(state, 1, 1)
    change(state, 2 * CHUNK, 1)
    assert frozen(newer, state) == {key: ([0], ()) for key in range(1, 2 * CHUNK)}
    assert frozen(older, state) == {key: ([0], ()) for key in range(2 * CHUNK)}


def test_keys_that_come_and_go_while_snapshots_always_overlap_take_each_others_places() -> None:
    state = new_state(max_parallelism=1)
    older = state.snapshot()
    for key in range(1000):
        change(state, key, 0)
        newer = state.snapshot()
        assert frozen(older, state) == ({key - 1: ([0], ())} if key else {})
        state.remove(key)
        older = newer
    assert len(state._groups[0]) == 1


def test_value_that_cannot_be_written_is_an_error_of_the_snapshot_alone() -> None:
    state = new_state(Undeclared)
    entry = state["a"]
    snapshot = state.snapshot()
    while snapshot.freeze_some():
        pass
    assert snapshot.error is not None
    assert "Undeclared" in str(snapshot.error)
    state.replace(entry, 1)
    assert frozen(state.snapshot(), state) == {"a": (1, ())}


def test_value_that_cannot_be_written_before_a_change_is_an_error_of_the_snapshot_too() -> None:
    state = new_state(Undeclared)
    entry = state["a"]
    snapshot = state.snapshot()
    state.replace(entry, Undeclared(1))
    assert not snapshot.freeze_some()
    assert snapshot.error is not None


# ---- timers


def test_timers_come_in_time_order_and_once() -> None:
    state = new_state()
    for timestamp in (30, 10, 20, 10):
        state.set_timer(state["a"], timestamp)
    state.set_timer(state["b"], 10)
    due = []
    while (popped := state.pop_due(20)) is not None:
        timestamp, entry = popped
        state.timer_done(entry, timestamp)
        due.append((timestamp, entry.key))
    assert due == [(10, "a"), (10, "b"), (20, "a")]
    assert state.next_timer() == 30


def test_timer_is_in_snapshots_until_it_is_done() -> None:
    state = new_state()
    state.set_timer(state["a"], 10)
    popped = state.pop_due(10)
    assert popped is not None
    assert frozen(state.snapshot(), state) == {"a": ([], (10,))}
    assert state.has_timer("a", 10)
    state.timer_done(popped[1], 10)
    assert frozen(state.snapshot(), state) == {"a": ([], ())}
    assert not state.has_timer("a", 10)


def test_timers_of_a_removed_key_do_not_come_also_if_it_comes_back() -> None:
    state = new_state()
    state.set_timer(state["a"], 10)
    state.remove("a")
    change(state, "a", 1)
    assert state.pop_due(100) is None
    state.set_timer(state["a"], 10)
    popped = state.pop_due(100)
    assert popped is not None
    assert popped[0] == 10


def test_restored_timers_come_again() -> None:
    state = new_state()
    state.restore([("a", [1], (20, 10)), ("b", [], ())])
    assert state.next_timer() == 10
    assert rows_of(state) == {"a": ([1], (10, 20)), "b": ([], ())}


@pytest.mark.parametrize("value", [0, (1, 2), "text"])
def test_immutable_value_is_kept_by_reference_and_written_as_it_was(value: Any) -> None:
    state = new_state(lambda: value)
    entry = state["a"]
    snapshot = state.snapshot()
    state.replace(entry, "changed")
    assert frozen(snapshot, state) == {"a": (value, ())}


# ---- any interleaving

KEYS = st.one_of(st.integers(0, 12), st.sampled_from(["a", "b", ("t", 1)]))


class Interleavings(DrawnFrames):
    """Changes, removals, timers, freezing and new snapshots in any order, against a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.state = new_state()
        self.model: Rows = {}
        self.cuts: list[tuple[KeyedSnapshot, Rows]] = []  # those under way

    @initialize(keys=st.lists(KEYS, max_size=10), many=st.booleans())
    def fill(self, keys: list[Any], many: bool) -> None:
        for key in [*keys, *(range(100, 100 + 3 * CHUNK) if many else ())]:
            self.change(key, 0)

    @rule(key=KEYS, value=st.integers(0, 9))
    def change(self, key: Any, value: int) -> None:
        change(self.state, key, value)
        old, timers = self.model.get(key, ([], ()))
        self.model[key] = ([*old, value], timers)

    @rule(key=KEYS, value=st.lists(st.integers(0, 9), max_size=2))
    def replace(self, key: Any, value: list[int]) -> None:
        self.state.replace(self.state[key], list(value))
        self.model[key] = (value, self.model.get(key, ([], ()))[1])

    @rule(key=KEYS)
    def remove(self, key: Any) -> None:
        self.state.remove(key)
        self.model.pop(key, None)

    @rule(key=KEYS, timestamp=st.integers(1, 20))
    def set_timer(self, key: Any, timestamp: int) -> None:
        self.state.set_timer(self.state[key], timestamp)
        value, timers = self.model.get(key, ([], ()))
        self.model[key] = (value, tuple(sorted({*timers, timestamp})))

    @rule(now=st.integers(1, 20))
    def fire(self, now: int) -> None:
        popped = self.state.pop_due(now)
        due = [timestamp for _, timers in self.model.values() for timestamp in timers]
        if popped is None:
            assert not [timestamp for timestamp in due if timestamp <= now]
            return
        timestamp, entry = popped
        assert timestamp == min(due)
        self.state.timer_done(entry, timestamp)
        value, timers = self.model[entry.key]
        self.model[entry.key] = (value, tuple(t for t in timers if t != timestamp))

    @precondition(lambda self: len(self.cuts) < 3)
    @rule()
    def begin_snapshot(self) -> None:
        self.cuts.append((self.state.snapshot(), self.model.copy()))  # no row of it changes

    @precondition(lambda self: self.cuts)
    @rule(which=st.integers(0, 2))
    def freeze_some(self, which: int) -> None:
        snapshot, cut = self.cuts[which % len(self.cuts)]
        if not snapshot.freeze_some():
            assert stored(snapshot, self.state) == cut
            self.cuts.remove((snapshot, cut))

    @precondition(lambda self: self.cuts)
    @rule(which=st.integers(0, 2))
    def drop(self, which: int) -> None:
        snapshot, _ = self.cuts.pop(which % len(self.cuts))
        snapshot.drop()

    @precondition(lambda self: self.cuts)
    @rule(which=st.integers(0, 2))
    def finish_and_restore(self, which: int) -> None:
        snapshot, cut = self.cuts.pop(which % len(self.cuts))
        found = frozen(snapshot, self.state)
        assert found == cut
        again = new_state()
        again.restore([(key, value, timers) for key, (value, timers) in found.items()])
        assert rows_of(again) == cut
        timers = [timestamp for _, timers in cut.values() for timestamp in timers]
        assert again.next_timer() == min(timers, default=None)

    @invariant()
    def state_is_the_model(self) -> None:
        assert rows_of(self.state) == self.model
        listed = [entry for group in self.state._groups for entry in group]
        assert len(listed) >= len(self.state.entries)
        for group in self.state._groups:
            for place, entry in enumerate(group):
                assert entry.place == place or entry.key is None
        if not self.state._snapshots:
            assert len(listed) == len(self.state.entries)


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
