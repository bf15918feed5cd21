"""Changes upon a base are the state of their cut, whatever completes, fails or overlaps."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from streamcp.checkpoint.incremental import LONGEST_CHAIN
from streamcp.checkpoint.key_groups import by_group
from streamcp.checkpoint.snapshot import Section, SectionHandle
from streamcp.serialization.registry import TypeRegistry
from streamcp.serialization.serializer import Serializer
from streamcp.state.entries import Row, apply_rows, is_removal, without_timers
from streamcp.state.keyed import KeyedState
from streamcp.state.keyed_snapshot import CHUNK, KeyedSnapshot
from tests.state.drawn_frames import DrawnFrames

Rows: TypeAlias = dict[Any, tuple[Any, tuple[int, ...]]]


class Disk:
    """Keeps sections, each as a file of its own."""

    def __init__(self) -> None:
        self.sections: list[Section] = []

    def write(self, section: Section) -> SectionHandle:
        self.sections.append(section)
        return SectionHandle(
            "state",
            "step",
            section.records,
            f"chk-{len(self.sections):08d}/data-1-1",
            18,
            tuple(map(len, section.frames)),
            "",
            section.key_groups,
        )

    def read(self, handle: SectionHandle) -> Section:
        return self.sections[int(handle.file[4:12]) - 1]


@dataclass
class Written:
    """A snapshot that is durable, and what it was of."""

    snapshot: KeyedSnapshot
    chain: tuple[SectionHandle, ...]
    cut: Rows


class Bench:
    """A state, what it should hold, and where its snapshots go."""

    def __init__(self, max_parallelism: int = 4) -> None:
        self.serializer = Serializer(TypeRegistry())
        self.max_parallelism = max_parallelism
        self.state = self.new_state()
        self.disk = Disk()

    def new_state(self) -> KeyedState:
        return KeyedState("step", list, self.serializer, self.max_parallelism, incremental=True)

    def fill(self, keys: int) -> None:
        for key in range(keys):
            self.change(key, 0)

    def change(self, key: Any, value: int) -> None:
        entry = self.state[key]
        if entry.epoch != self.state.epoch:
            self.state.preserve(entry)
        entry.value.append(value)

    def rows(self) -> Rows:
        return rows_of(self.state)

    def write(self, snapshot: KeyedSnapshot, cut: Rows) -> Written:
        while snapshot.freeze_some():
            pass
        assert snapshot.error is None
        section = snapshot.section()
        assert len(section.frames) == len(section.key_groups)
        rows = [row for frame in section.frames for row in self.serializer.loads(frame)]
        present = [row[0] for row in rows if not is_removal(row)]
        assert len(present) == len(set(present))
        chain = snapshot.written(self.disk.write(section))
        return Written(snapshot, chain, cut)

    def checkpoint(self) -> Written:
        """Take a snapshot that is written and complete at once."""
        written = self.write(self.state.snapshot(), self.rows())
        written.snapshot.completed()
        return written

    def frames(self, chain: Sequence[SectionHandle]) -> list[tuple[int, list[Row]]]:
        """All stored rows in their order, by key group."""
        return [
            (group, rows)
            for section in map(self.disk.read, chain)
            for runs, frame in zip(section.key_groups, section.frames, strict=True)
            for group, rows in by_group(self.serializer.loads(frame), runs)
        ]

    def restored(self, chain: Sequence[SectionHandle], parallelism: int = 1) -> Rows:
        """Give the groups of a chain to new states, as a restore does; all that they hold."""
        states = [self.new_state() for _ in range(parallelism)]
        for group, rows in self.frames(chain):
            states[group % parallelism].restore(rows)
        found: Rows = {}
        for state in states:
            found |= rows_of(state)
        return found


def rows_of(state: KeyedState) -> Rows:
    return {
        # What a list holds is not changed in place here: numbers, or `[1]`.
        key: ([*entry.value], tuple(sorted(entry.timers[0] if entry.timers else ())))
        for key, entry in state.entries.items()
    }


def test_snapshot_holds_what_changed_since_the_last_complete_one() -> None:
    bench = Bench()
    bench.fill(100)
    bench.checkpoint()
    bench.change(7, 1)
    bench.state.remove(8)
    bench.state.set_timer(bench.state[9], 50)
    written = bench.checkpoint()
    assert len(written.chain) == 2
    stored = [row for _, rows in bench.frames(written.chain[1:]) for row in rows]
    assert sorted(stored) == [(7, [0, 1], ()), (8,), (9, [0], (50,))]
    assert bench.restored(written.chain) == written.cut


def test_changes_of_a_failed_checkpoint_are_in_the_next_one() -> None:
    bench = Bench()
    bench.fill(100)
    bench.checkpoint()
    bench.change(1, 1)
    bench.write(bench.state.snapshot(), bench.rows())  # durable, and yet it fails
    bench.change(2, 1)
    bench.state.snapshot().drop()
    bench.change(3, 1)
    written = bench.checkpoint()
    assert written.snapshot.records == 3
    assert bench.restored(written.chain) == written.cut


def test_snapshot_taken_while_another_is_not_complete_builds_on_the_one_before() -> None:
    bench = Bench()
    bench.fill(100)
    first = bench.checkpoint()
    bench.change(1, 1)
    older = bench.write(bench.state.snapshot(), bench.rows())
    bench.change(2, 1)
    newer_snapshot, newer_rows = bench.state.snapshot(), bench.rows()
    older.snapshot.completed()
    newer = bench.write(newer_snapshot, newer_rows)
    assert newer.chain[0] == first.chain[0]
    assert (newer.snapshot.records, len(newer.chain)) == (2, 2)
    assert bench.restored(newer.chain) == newer.cut


def test_key_that_was_removed_and_came_back_is_fresh_in_the_snapshot() -> None:
    bench = Bench()
    bench.fill(10)
    bench.checkpoint()
    bench.state.remove(1)
    bench.change(1, 5)
    written = bench.checkpoint()
    assert bench.restored(written.chain)[1] == ([5], ())


def test_key_that_is_removed_while_its_change_is_frozen_is_in_the_snapshot() -> None:
    bench = Bench()
    bench.fill(10)
    bench.checkpoint()
    bench.change(1, 5)
    snapshot, cut = bench.state.snapshot(), bench.rows()
    bench.state.remove(1)
    written = bench.write(snapshot, cut)
    written.snapshot.completed()
    assert bench.restored(written.chain) == cut
    after = bench.checkpoint()
    assert 1 not in bench.restored(after.chain)


def test_touch_of_an_entry_that_is_frozen_already_is_a_change_of_the_next_snapshot() -> None:
    bench = Bench(max_parallelism=1)
    bench.fill(2 * CHUNK)
    snapshot, cut = bench.state.snapshot(), bench.rows()
    snapshot.freeze_some()
    bench.change(0, 1)
    bench.write(snapshot, cut).snapshot.completed()
    written = bench.checkpoint()
    assert written.snapshot.records == 1
    assert bench.restored(written.chain) == bench.rows()


def test_touch_of_an_unchanged_entry_adds_nothing_to_a_snapshot_of_changes() -> None:
    bench = Bench()
    bench.fill(10)
    bench.checkpoint()
    bench.change(1, 1)
    snapshot, cut = bench.state.snapshot(), bench.rows()
    bench.change(2, 1)
    written = bench.write(snapshot, cut)
    assert written.snapshot.records == 1
    assert bench.restored(written.chain) == cut


def test_state_that_rests_is_never_written_again() -> None:
    bench = Bench()
    bench.fill(10)
    first = bench.checkpoint()
    later = [bench.checkpoint() for _ in range(2 * LONGEST_CHAIN)]
    assert {one.snapshot.records for one in later} == {0}
    assert later[-1].chain[:-1] == first.chain


def test_long_chain_is_compacted() -> None:
    bench = Bench()
    bench.fill(100)
    lengths = []
    for _ in range(LONGEST_CHAIN + 2):
        bench.change(1, 1)
        lengths.append(len(bench.checkpoint().chain))
    assert max(lengths) == LONGEST_CHAIN
    assert lengths[-2:] == [1, 2]


def test_keys_that_come_and_go_do_not_pile_up_between_two_snapshots() -> None:
    bench = Bench()
    bench.fill(10)
    bench.checkpoint()
    for key in range(100, 5000):
        bench.change(key, 0)
        bench.state.remove(key)
    changes = bench.state._changes
    assert changes is not None
    assert changes.count <= 11
    written = bench.checkpoint()
    assert len(written.chain) == 1
    assert bench.restored(written.chain) == bench.rows()


def test_failing_checkpoints_do_not_let_changes_pile_up() -> None:
    bench = Bench()
    bench.fill(10)
    bench.checkpoint()
    for _ in range(100):
        bench.fill(4)
        bench.state.snapshot().drop()
    changes = bench.state._changes
    assert changes is not None
    assert changes.count <= 11


def test_restored_changes_replace_timers_as_well() -> None:
    state = Bench().new_state()
    state.restore([("a", [1], (10, 20)), ("b", [1], (5,)), ("c", [1], (7,))])
    state.restore([("b",), ("a", [2], (20,)), ("c", [3], ())])
    assert rows_of(state) == {"a": ([2], (20,)), "c": ([3], ())}
    popped = state.pop_due(100)
    assert popped is not None
    assert (popped[0], popped[1].key) == (20, "a")
    state.timer_done(popped[1], 20)
    assert state.pop_due(100) is None


def test_timers_are_left_out_of_rows_and_removals_stay() -> None:
    assert without_timers([("a", 1, (5,)), ("b",)]) == [("a", 1, ()), ("b",)]


def test_last_row_of_a_key_counts() -> None:
    rows: dict[Any, Row] = {}
    apply_rows([("a", 1, ()), ("b", 1, ()), ("b",), ("a", 2, ()), ("c",)], rows)
    assert rows == {"a": ("a", 2, ())}


@pytest.mark.parametrize("parallelism", [2, 3])
def test_chain_is_restored_by_key_group(parallelism: int) -> None:
    bench = Bench(max_parallelism=8)
    bench.fill(50)
    bench.checkpoint()
    for key in range(0, 20, 2):
        bench.state.remove(key)
        bench.change(key + 1, 1)
    written = bench.checkpoint()
    assert len(written.chain) == 2
    assert bench.restored(written.chain, parallelism) == written.cut


# ---- any interleaving

KEYS = st.one_of(st.integers(0, 40), st.sampled_from(["a", ("t", 1)]))


class Checkpoints(DrawnFrames):
    """Changes, and checkpoints that overlap, complete in their order, or fail, against a model."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.model: Rows = {}
        self.under_way: list[tuple[KeyedSnapshot, Rows]] = []
        self.written: list[Written] = []

    @initialize(keys=st.integers(0, 3 * CHUNK))
    def fill(self, keys: int) -> None:
        for key in range(1000, 1000 + keys):
            self.change(key, 0)

    @rule(key=KEYS, value=st.integers(0, 9))
    def change(self, key: Any, value: int) -> None:
        self.bench.change(key, value)
        old, timers = self.model.get(key, ([], ()))
        self.model[key] = ([*old, value], timers)

    @rule(key=KEYS, value=st.one_of(st.just([]), st.just([[1]])))
    def replace(self, key: Any, value: list[Any]) -> None:
        """Also by a value that is frozen at once when it is touched."""
        self.bench.state.replace(self.bench.state[key], copy.deepcopy(value))
        self.model[key] = (copy.deepcopy(value), self.model.get(key, ([], ()))[1])

    @rule(keys=st.lists(KEYS, max_size=4))
    def remove(self, keys: list[Any]) -> None:
        for key in keys:
            self.bench.state.remove(key)
            self.model.pop(key, None)

    @rule(key=KEYS, timestamp=st.integers(1, 20))
    def set_timer(self, key: Any, timestamp: int) -> None:
        self.bench.state.set_timer(self.bench.state[key], timestamp)
        value, timers = self.model.get(key, ([], ()))
        self.model[key] = (value, tuple(sorted({*timers, timestamp})))

    @rule()
    def fire(self) -> None:
        popped = self.bench.state.pop_due(20)
        if popped is not None:
            timestamp, entry = popped
            self.bench.state.timer_done(entry, timestamp)
            value, timers = self.model[entry.key]
            self.model[entry.key] = (value, tuple(t for t in timers if t != timestamp))

    @precondition(lambda self: len(self.under_way) < 3)
    @rule()
    def begin(self) -> None:
        self.under_way.append((self.bench.state.snapshot(), self.model.copy()))

    @precondition(lambda self: self.under_way)
    @rule(which=st.integers(0, 2))
    def freeze_some(self, which: int) -> None:
        self.under_way[which % len(self.under_way)][0].freeze_some()

    @precondition(lambda self: self.under_way)
    @rule()
    def write(self) -> None:
        """The oldest one: they are frozen in their order."""
        snapshot, cut = self.under_way.pop(0)
        written = self.bench.write(snapshot, cut)
        assert self.bench.restored(written.chain, 3) == cut
        self.written.append(written)

    @precondition(lambda self: self.written)
    @rule(which=st.integers(0, 2))
    def complete(self, which: int) -> None:
        """Those before it fail: a newer one is complete."""
        at = which % len(self.written)
        self.written[at].snapshot.completed()
        del self.written[: at + 1]

    @precondition(lambda self: self.under_way)
    @rule(which=st.integers(0, 2))
    def fail(self, which: int) -> None:
        self.under_way.pop(which % len(self.under_way))[0].drop()

    @rule()
    def checkpoint(self) -> None:
        """One as most are: nothing else is under way, and it completes."""
        while self.under_way:
            self.fail(0)
        self.begin()
        self.write()
        self.complete(len(self.written) - 1)

    @precondition(lambda self: not self.under_way)
    @rule(parallelism=st.integers(1, 3))
    def restart(self, parallelism: int) -> None:
        """Everything is read back from the chain into a new state."""
        self.begin()
        self.write()
        chain = self.written[-1].chain
        assert self.bench.restored(chain, parallelism) == self.model
        self.bench.state = self.bench.new_state()
        for _, rows in self.bench.frames(chain):
            self.bench.state.restore(rows)
        self.written.clear()

    @invariant()
    def state_is_the_model(self) -> None:
        assert self.bench.rows() == self.model


TestCheckpoints = Checkpoints.TestCase
TestCheckpoints.settings = settings(max_examples=50, stateful_step_count=50, deadline=None)
