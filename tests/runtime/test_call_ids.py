"""Ids of calls: never given twice, and given again to a call that is made again."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamcp as sc
from streamcp.errors import StepFailed
from streamcp.runners.life import first_cause
from streamcp.runtime import call_ids
from streamcp.runtime.call_ids import StepCallIds, SubtaskCallIds
from tests.runtime.engine import Engine, Gate, finish, settle, until

# ---- plain


def step(life: str = "") -> StepCallIds:
    return StepCallIds("job", "step", life)


def content(letter: str) -> bytes:
    return letter.encode() * 16


CONTENTS = st.lists(st.sampled_from("abcde"), max_size=30)


class Attempt:
    """One subtask or several of a step, and the ids of the records (their places in a list)."""

    def __init__(self, subtasks: int = 1) -> None:
        shared = step()
        self.subtasks = [SubtaskCallIds(shared) for _ in range(subtasks)]
        self.ids: dict[int, str] = {}

    def ask(self, place: int, letter: str) -> None:
        subtask = self.subtasks[place % len(self.subtasks)]
        self.ids[place] = subtask.of(place, None, content(letter))


@given(
    CONTENTS,
    st.lists(st.integers(0, 30), min_size=1, max_size=3),
    st.sets(st.integers(0, 30)),
    st.integers(1, 3),
)
def test_no_id_is_given_twice_wherever_the_subtasks_are_cut(
    letters: list[str], cuts: list[int], ended: set[int], subtasks: int
) -> None:
    """An aligned barrier comes to each subtask at another moment. What was asked for before, and
    had not ended, and what was asked for behind its cut is asked for again, by other subtasks."""
    before = Attempt(len(cuts))
    snapshots: dict[int, Any] = {}

    def cut_at(place: int) -> None:
        for i, cut in enumerate(cuts):
            if i not in snapshots and place >= cut:
                before.subtasks[i].forget(ended.__contains__)
                snapshots[i] = before.subtasks[i].snapshot()

    for place, letter in enumerate(letters):
        cut_at(place)
        before.ask(place, letter)
    cut_at(99)
    done = {p for p in range(len(letters)) if p in ended and p < cuts[p % len(cuts)]}
    after = Attempt(subtasks)
    for i, snapshot in snapshots.items():
        after.subtasks[i % subtasks].restore(*snapshot)
    again = [place for place in range(len(letters)) if place not in done]
    for place in again:
        after.ask(place, letters[place])
    assert len(set(after.ids.values())) == len(again)
    assert {before.ids[place] for place in done}.isdisjoint(after.ids.values())


@given(CONTENTS, st.integers(0, 30), st.sets(st.integers(0, 30)), st.integers(1, 3), st.booleans())
def test_restored_calls_find_their_ids_and_no_id_is_given_twice(
    letters: list[str], cut: int, ended: set[int], subtasks: int, shuffled: bool
) -> None:
    """Up to the cut everything was asked for, some of it has ended; the rest was asked for behind
    it, before the crash. After the restore it comes in the same order or, `shuffled`, in another
    one, dealt to other subtasks."""
    before = Attempt(subtasks)
    places = range(len(letters))
    for place in places[:cut]:
        before.ask(place, letters[place])
    for subtask in before.subtasks:
        subtask.forget(ended.__contains__)
    snapshots = [subtask.snapshot() for subtask in before.subtasks]
    for place in places[cut:]:
        before.ask(place, letters[place])
    assert len(set(before.ids.values())) == len(letters)

    after = Attempt(subtasks)
    for subtask, snapshot in zip(after.subtasks, snapshots, strict=True):
        subtask.restore(*snapshot)
    again = [place for place in places if place >= cut or place not in ended]
    if shuffled:  # of different contents, within and behind the pending list
        again.sort(key=lambda place: (place % subtasks, letters[place]))
    for place in again:
        after.ask(place, letters[place])
    assert len(set(after.ids.values())) == len(again)
    done = {before.ids[place] for place in places[:cut] if place in ended}
    assert done.isdisjoint(after.ids.values())
    if not shuffled:
        assert after.ids == {place: before.ids[place] for place in again}
    elif subtasks == 1:
        assert ids_of(after, letters, again) == ids_of(before, letters, again)


def ids_of(attempt: Attempt, letters: Sequence[str], places: Sequence[int]) -> dict[str, set[str]]:
    found = defaultdict[str, set[str]](set)
    for place in places:
        found[letters[place]].add(attempt.ids[place])
    return found


def test_contents_that_share_a_counter_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_ids, "BUCKETS", 1)
    ids = SubtaskCallIds(step())
    assert len({ids.of(i, None, content(letter)) for i, letter in enumerate("abaab")}) == 5


def test_same_call_has_one_id_and_other_steps_jobs_and_lives_have_others() -> None:
    ids = [
        SubtaskCallIds(one).of("ticket", None, content("a"))
        for one in (
            step(),
            step(),
            step("7"),
            StepCallIds("job", "other", ""),
            StepCallIds("other", "step", ""),
            StepCallIds("job step", "", ""),
        )
    ]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 5
    one = SubtaskCallIds(step())
    assert one.of("t", None, content("a")) == one.of("t", None, content("a")) == ids[0]
    assert len(ids[0]) == 32


# ---- in a job


@dataclass
class Order:
    user: str
    tags: list[str] = field(default_factory=list)


class Bench:
    """A job whose step asks for its id; those of `held` records wait."""

    def __init__(self, records: Sequence[Any], kind: str = "map", **options: Any) -> None:
        self.gate = Gate()
        self.held: set[str] = set()
        self.asked: list[tuple[str, str]] = []  # of each attempt: the user, and the id
        self.out: list[Any] = []
        self.fail = Counter[str]()
        self.job = sc.Job("job", types=[Order])
        stream: Any = self.job.source(sc.items(records), name="source").rebalance()
        if kind == "process":
            stream = stream.key_by(lambda order: order.user)
            step = stream.process(self.process, state=list, name="step", **options)
        else:
            step = getattr(stream, kind)(self.call, name="step", **options)
        if kind != "for_each":
            step.rebalance().sink(self.write, name="out")

    async def call(self, order: Order) -> Any:
        order.tags.append("changed")
        await self.note(order.user, sc.call_id())
        return order

    async def process(self, order: Order, state: list[int], ctx: sc.KeyContext[str]) -> list[Any]:
        assert ctx.call_id == sc.call_id()
        await self.note(order.user, ctx.call_id)
        return [order]

    async def note(self, user: str, own_id: str) -> None:
        self.asked.append((user, own_id))
        assert sc.call_id() == own_id
        await asyncio.sleep(0)
        if user in self.held:
            await self.gate.pass_(user)
        if self.fail[user] > 0:
            self.fail[user] -= 1
            raise ConnectionError(user)

    async def write(self, records: Sequence[Any]) -> None:
        self.out += records


def orders(users: str) -> list[Order]:
    return [Order(user) for user in users]


@pytest.mark.parametrize("kind", ["map", "filter", "for_each", "process"])
async def test_equal_records_have_different_ids_and_a_retry_has_the_same(kind: str) -> None:
    bench = Bench(orders("aabac"), kind, retry=sc.Retry(attempts=3, backoff="0s"), concurrency=1)
    bench.fail["b"] = 2
    await finish(Engine(bench.job))
    by_user = defaultdict[str, list[str]](list)
    for user, own_id in bench.asked:
        by_user[user].append(own_id)
    assert [len(set(by_user[user])) for user in "abc"] == [3, 1, 1]
    assert len(by_user["b"]) == 3
    assert len({own_id for _, own_id in bench.asked}) == 5


@pytest.mark.parametrize("kind", ["map", "process"])
@pytest.mark.parametrize("durable", [True, False])
async def test_calls_that_are_made_again_after_a_restore_have_the_same_ids(
    kind: str, durable: bool
) -> None:
    """Some calls are outstanding at the cut, some begin behind it and end before the crash."""
    bench = Bench(orders("abcadea"), kind, concurrency=2)
    bench.held = set("ace")
    engine = Engine(bench.job, durable=True)
    async with engine.running():
        await until(lambda: len(bench.asked) >= 2 and len(bench.gate.waiting) >= 1)
        await settle()
        engine.trigger(1)
        await engine.until_whole(1)
        before_cut = [*bench.asked]
        while len({own_id for _, own_id in bench.asked}) < 7:
            bench.gate.open()
            await settle(20)
    ids = defaultdict[str, set[str]](set)
    for user, own_id in bench.asked:
        ids[user].add(own_id)
    assert [len(ids[user]) for user in "abcde"] == [3, 1, 1, 1, 1]

    bench.asked.clear()
    bench.held.clear()
    await finish(engine.restored(1))
    outstanding = {user for user, _ in before_cut} & {user for user, _ in bench.asked}
    assert "a" in outstanding
    assert all(own_id in ids[user] for user, own_id in bench.asked)
    assert len({own_id for _, own_id in bench.asked}) == len(bench.asked)


@pytest.mark.parametrize("parallelism", [1, 3])
async def test_keyed_calls_keep_their_ids_under_another_parallelism(parallelism: int) -> None:
    first = Bench(orders("abcdef"), "process", parallelism=2)
    first.held = set("abcdef")
    engine = Engine(first.job)
    async with engine.running():
        await until(lambda: len(first.gate.waiting) == 6)
        engine.trigger(1)
        await engine.until_whole(1)
    second = Bench(orders("abcdef"), "process", parallelism=parallelism)
    await finish(engine.restored(1, second.job))
    assert sorted(second.asked) == sorted(first.asked)


@sc.source
async def open_end(position: int = 0) -> AsyncIterator[tuple[Order, int]]:
    if position == 0:
        yield Order("a"), 1
    await asyncio.Event().wait()


async def test_timers_have_ids_of_their_own() -> None:
    seen: list[str] = []

    async def start(order: Order, state: list[int], ctx: sc.KeyContext[str]) -> None:
        seen.append(ctx.call_id)
        ctx.set_timer(ctx.timestamp)

    async def fire(timestamp: int, state: list[int], ctx: sc.KeyContext[str]) -> None:
        seen.append(ctx.call_id)

    job = sc.Job("job", types=[Order])
    keyed = job.source(open_end(), name="in").key_by(lambda order: order.user)
    keyed.process(start, state=list, on_timer=fire, name="step").sink(sc.discard())
    async with Engine(job).running():
        await until(lambda: len(seen) == 2)
    assert len(set(seen)) == 2


async def test_id_belongs_to_its_call() -> None:
    kept: list[sc.KeyContext[str]] = []

    async def keep(order: Order, state: list[int], ctx: sc.KeyContext[str]) -> None:
        kept.append(ctx)

    job = sc.Job("job", types=[Order])
    keyed = job.source(sc.items(orders("a")), name="in").key_by(lambda order: order.user)
    keyed.process(keep, state=list, name="step").sink(sc.discard())
    await finish(Engine(job))
    with pytest.raises(RuntimeError, match="this call has ended"):
        _ = kept[0].call_id


@pytest.mark.parametrize("kind", ["map", "process"])
async def test_plain_functions_have_no_call_ids(kind: str) -> None:
    job = sc.Job("job", types=[Order])
    stream: Any = job.source(sc.items(orders("a")), name="in")
    if kind == "map":
        stream = stream.map(lambda order: sc.call_id(), name="step")
    else:
        stream = stream.key_by(lambda order: order.user).process(
            lambda order, state, ctx: [ctx.call_id], state=list, name="step"
        )
    stream.sink(sc.discard())
    with pytest.raises(ExceptionGroup) as caught:
        await finish(Engine(job))
    cause = first_cause(caught.value)
    assert isinstance(cause, StepFailed)
    assert "coroutine function" in str(cause)


async def test_memory_is_bounded_by_the_calls_that_have_not_ended() -> None:
    bench = Bench(orders("abcdefgh" * 400), concurrency=2)
    engine = Engine(bench.job, capacity=8)
    async with engine.running():
        await until(lambda: len(bench.asked) >= 3000)
        assert len(engine["step"]._ids) < 100
