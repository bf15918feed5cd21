"""Fields whose entries are stored one by one: what a snapshot holds of them, and restores (P39)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

import streamcp as sc
from streamcp.checkpoint.snapshot import Section, SectionHandle
from streamcp.errors import SerializationError
from streamcp.serialization.deserializer import Deserializer
from streamcp.serialization.registry import TypeRegistry
from streamcp.serialization.serializer import Serializer
from streamcp.state.entries import Row
from streamcp.state.keyed import KeyedState
from streamcp.state.keyed_snapshot import KeyedSnapshot
from streamcp.state.parts import CODECS
from tests.state.drawn_frames import DrawnFrames


@dataclass
class Cart:
    items: sc.ListState[int] = field(default_factory=sc.ListState)
    seen: sc.MapState[str, int] = field(default_factory=sc.MapState)
    more: sc.ListState[int] = field(default_factory=sc.ListState)
    plain: list[int] = field(default_factory=list)


@dataclass
class Renamed:
    entries: Annotated[sc.ListState[int], sc.renamed_from("items")] = field(
        default_factory=sc.ListState
    )


@dataclass
class Turned:
    items: sc.MapState[int, int] = field(default_factory=sc.MapState)


def registry_of(*classes: Any) -> TypeRegistry:
    registry = TypeRegistry()
    for one in CODECS:
        registry.register(one)
    for one in classes:
        registry.declare(one, step="step")
    return registry


class Bench:
    """A state, the values that it should have, and where its snapshots go."""

    def __init__(self, *, incremental: bool = True) -> None:
        self.incremental = incremental
        self.registry = registry_of(Cart)
        self.sections: list[Section] = []
        self.begin()

    def begin(self, states: int = 1) -> None:
        self.serializer = Serializer(self.registry)
        self.states = [
            KeyedState("step", Cart, self.serializer, 4, incremental=self.incremental)
            for _ in range(states)
        ]

    @property
    def state(self) -> KeyedState:
        return self.states[0]

    def call(self, key: Any, fn: Callable[[Cart], Any]) -> Any:
        """Change the state of a key in place, as a plain step does."""
        state = self.state
        entry = state[key]
        if entry.epoch != state.epoch:
            state.preserve(entry)
        return fn(entry.value)

    def transact(self, key: Any, fn: Callable[[Cart], Any], *, commits: bool) -> None:
        """Work on a copy, as a coroutine does."""
        entry = self.state[key]
        private = self.state.private_copy(entry)
        fn(private)
        if commits:
            self.state.replace(self.state[key], private)

    def write(self, snapshot: KeyedSnapshot) -> tuple[SectionHandle, ...]:
        while snapshot.freeze_some():
            pass
        assert snapshot.error is None, snapshot.error
        section = snapshot.section()
        self.sections.append(section)
        file = f"chk-{len(self.sections)}"
        return snapshot.written(
            SectionHandle("state", "step", section.records, file, 18, (), "", section.key_groups)
        )

    def checkpoint(self) -> tuple[SectionHandle, ...]:
        snapshot = self.state.snapshot()
        chain = self.write(snapshot)
        snapshot.completed()
        return chain

    def section(self, handle: SectionHandle) -> Section:
        return self.sections[int(handle.file[4:]) - 1]

    def size(self, handle: SectionHandle) -> int:
        return sum(map(len, self.section(handle).frames))

    def rows(self, chain: Sequence[SectionHandle], registry: TypeRegistry) -> list[list[Row]]:
        reader = Deserializer(self.serializer.classes(), registry)
        return [reader.loads(frame) for one in chain for frame in self.section(one).frames]

    def restored(self, chain: Sequence[SectionHandle], make: Any = Cart) -> dict[Any, Any]:
        registry = registry_of(make)
        state = KeyedState("step", make, Serializer(registry), 4, incremental=True)
        for rows in self.rows(chain, registry):
            state.restore(rows)
        return dict(state.copies())


def test_append_to_a_long_list_writes_a_few_bytes() -> None:
    bench = Bench()
    bench.call("a", lambda cart: cart.items.extend(range(100_000)))
    whole = bench.checkpoint()
    assert bench.size(whole[0]) > 100_000
    bench.call("a", lambda cart: cart.items.append(-1))
    chain = bench.checkpoint()
    assert len(chain) == 2
    assert bench.size(chain[1]) < 300
    assert bench.restored(chain)["a"].items == [*range(100_000), -1]


def test_long_list_is_frozen_in_many_slices() -> None:
    bench = Bench()
    bench.call("a", lambda cart: cart.items.extend(range(10_000)))
    snapshot = bench.state.snapshot()
    slices = 0
    while snapshot.freeze_some():
        slices += 1
    assert slices >= 10
    assert max(map(len, snapshot.section().frames)) < 20_000


def test_changes_behind_the_cut_are_not_in_the_snapshot() -> None:
    bench = Bench()
    bench.call("a", lambda cart: cart.items.extend(range(3000)))
    snapshot = bench.state.snapshot()
    snapshot.freeze_some()
    bench.call("a", lambda cart: cart.items.clear())
    bench.call("a", lambda cart: cart.seen.update(x=1))
    assert bench.restored(bench.write(snapshot)) == {"a": Cart(sc.ListState(range(3000)))}


def test_call_that_fails_leaves_no_trace_and_one_that_commits_becomes_a_change() -> None:
    bench = Bench()
    bench.call("a", lambda cart: cart.items.extend(range(1000)))
    bench.checkpoint()
    bench.transact("a", lambda cart: cart.items.append(5), commits=False)
    bench.transact("a", lambda cart: cart.items.append(6), commits=True)
    chain = bench.checkpoint()
    assert bench.size(chain[1]) < 300
    assert bench.restored(chain)["a"].items == [*range(1000), 6]


def test_collection_that_is_put_into_two_fields_becomes_two() -> None:
    bench = Bench()

    def both(cart: Cart) -> None:
        cart.items.append(1)
        cart.more = cart.items

    bench.call("a", both)
    bench.checkpoint()
    bench.call("a", lambda cart: cart.more.append(2))
    chain = bench.checkpoint()
    assert bench.restored(chain)["a"] == Cart(sc.ListState([1]), more=sc.ListState([1, 2]))


def test_collection_that_is_no_field_of_a_state_is_stored_whole() -> None:
    serializer = Serializer(registry_of(Cart))
    cart = Cart(sc.ListState([1, 2]), sc.MapState({"a": 1}))
    assert serializer.loads(serializer.dumps([cart], step="s")) == [cart]


def test_field_that_was_renamed_keeps_its_entries() -> None:
    bench = Bench()
    bench.call("a", lambda cart: cart.items.extend([1, 2]))
    bench.checkpoint()
    bench.call("a", lambda cart: cart.items.append(3))
    chain = bench.checkpoint()
    reader = registry_of(Renamed)
    table = [
        entry | {"name": entry["name"].replace("Cart", "Renamed")}
        for entry in bench.serializer.classes()
    ]
    state = KeyedState("step", Renamed, Serializer(reader), 4)
    for one in chain:
        for frame in bench.section(one).frames:
            state.restore(Deserializer(table, reader).loads(frame))
    assert dict(state.copies()) == {"a": Renamed(sc.ListState([1, 2, 3]))}


def test_field_of_the_other_kind_is_refused() -> None:
    bench = Bench()
    bench.call("a", lambda cart: cart.items.append(1))
    state = KeyedState("step", Turned, Serializer(registry_of(Turned)), 4)
    rows = [row for rows in bench.rows(bench.checkpoint(), bench.registry) for row in rows]
    state.restore([("a", Turned(items=rows[0][1].items), ())])
    with pytest.raises(SerializationError, match=r"'items' was a ListState and is a MapState now"):
        state.restore([row for row in rows if len(row) == 2])


KEYS = st.integers(0, 3)
FIELDS = st.sampled_from(["items", "more"])
CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "append": lambda cart, n: cart.items.append(n),
    "push": lambda cart, n: cart.items.insert(0, n),
    "middle": lambda cart, n: cart.items.insert(len(cart.items) // 2, n),
    "pop": lambda cart, n: cart.items.pop() if len(cart.items) else None,
    "shift": lambda cart, n: cart.items.pop(0) if len(cart.items) else None,
    "assign": lambda cart, n: cart.items.__setitem__(-1, n) if len(cart.items) else None,
    "set": lambda cart, n: cart.seen.__setitem__(str(n % 5), n),
    "drop": lambda cart, n: cart.seen.pop(str(n % 5), None),
    "clear": lambda cart, n: cart.seen.clear(),
    "many": lambda cart, n: cart.more.extend(range(n)),
    "new": lambda cart, n: setattr(cart, "more", sc.ListState([n])),
    "same": lambda cart, n: setattr(cart, "more", cart.items),
    "swap": lambda cart, n: cart.__dict__.update(items=cart.more, more=cart.items),
    "plain": lambda cart, n: cart.plain.append(n),
}


def as_plain(cart: Any) -> tuple[Any, ...]:
    return [*cart.items], [*cart.seen.items()], [*cart.more], [*cart.plain]


class Carts(DrawnFrames):
    """Calls in place and on copies, and checkpoints that overlap, fail and are restored, against
    values that are copied at each cut."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.under_way: list[tuple[KeyedSnapshot, Any]] = []
        self.written: list[tuple[KeyedSnapshot, Any, Any]] = []

    def all(self) -> dict[Any, Any]:
        entries = self.bench.state.entries
        return {key: copy.deepcopy(as_plain(entry.value)) for key, entry in entries.items()}

    @rule(key=KEYS, what=st.sampled_from(sorted(CHANGES)), n=st.integers(0, 30))
    def change(self, key: int, what: str, n: int) -> None:
        self.bench.call(key, lambda cart: CHANGES[what](cart, n))

    @rule(
        key=KEYS,
        what=st.lists(st.sampled_from(sorted(CHANGES)), min_size=1, max_size=4),
        n=st.integers(0, 30),
        commits=st.booleans(),
    )
    def transact(self, key: int, what: list[str], n: int, commits: bool) -> None:
        assert self.bench.state[key] is not None
        before = as_plain(self.bench.state[key].value)
        seen: list[Any] = []

        def fn(cart: Any) -> None:
            for one in what:
                CHANGES[one](cart, n)
            seen.append(as_plain(cart))

        self.bench.transact(key, fn, commits=commits)
        after = as_plain(self.bench.state[key].value)
        if not commits:
            assert after == before
        elif "same" not in what and "swap" not in what:  # two fields, one object, until it is one's
            assert after == seen[0]

    @rule(key=KEYS)
    def remove(self, key: int) -> None:
        self.bench.state.remove(key)

    @rule(key=KEYS)
    def renew(self, key: int) -> None:
        self.bench.state.replace(self.bench.state[key], Cart())

    @rule()
    @precondition(lambda self: len(self.under_way) < 2)
    def begin(self) -> None:
        self.under_way.append((self.bench.state.snapshot(), self.all()))

    @rule()
    @precondition(lambda self: self.under_way)
    def freeze_some(self) -> None:
        self.under_way[-1][0].freeze_some()

    @rule()
    @precondition(lambda self: self.under_way)
    def fail(self) -> None:
        self.under_way.pop()[0].drop()

    @rule()
    @precondition(lambda self: self.under_way)
    def complete(self) -> None:
        snapshot, cut = self.under_way.pop(0)
        chain = self.bench.write(snapshot)
        snapshot.completed()
        found = {key: as_plain(cart) for key, cart in self.bench.restored(chain).items()}
        assert found == cut
        self.written.append((snapshot, chain, cut))

    @rule()
    @precondition(lambda self: self.written)
    def restart(self) -> None:
        _, chain, cut = self.written[-1]
        rows = self.bench.rows(chain, self.bench.registry)
        self.bench = Bench()
        for frame in rows:
            self.bench.state.restore(frame)
        assert self.all() == cut
        self.under_way, self.written = [], []

    @invariant()
    def every_collection_is_of_one_field(self) -> None:
        for entry in self.bench.state.entries.values():
            assert type(entry.value) is Cart


TestCarts = Carts.TestCase
TestCarts.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
