"""Every subtask gets its part, whatever the parallelism and the fusing were (rules P7 and P41)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

import streamcp as sc
from streamcp.errors import RestoreRefused
from streamcp.runners.placing import restore
from streamcp.runners.restoring import Restorable
from streamcp.runtime.keyed_async_subtask import KeyedAsyncSubtask
from tests.runtime.engine import Engine, Gate, settle, until

virtual_time = pytest.mark.asyncio(loop_factories=["asyncio"])
KEYS = 20


@dataclass
class Seen:
    values: list[int] = field(default_factory=list)


def numbers(
    ends: dict[str, int], gate: Callable[[], Gate | None] = lambda: None
) -> sc.Source[tuple[str, int]]:
    """Splits by name, each with its numbers; before its last one, each waits at the gate."""

    @sc.source(splits=lambda: list(ends))
    async def read(split: str, position: int = 0) -> AsyncIterator[tuple[tuple[str, int], int]]:
        for i in range(position, ends[split]):
            where = gate()
            if i == ends[split] - 1 and where is not None:
                await where.pass_(split)
            yield (split, i), i + 1

    return read()


class Out:
    """A sink that waits at its gate while it has one."""

    def __init__(self) -> None:
        self.gate: Gate | None = Gate()
        self.records: list[Any] = []

    async def write(self, records: Sequence[Any]) -> None:
        if self.gate is not None:
            await self.gate.pass_("write")
        self.records += records


def keyed_job(out: Out, source: sc.Source[Any], p: int) -> sc.Job:
    """At p = 1 everything before the sink is one task."""

    def note(item: tuple[str, int], seen: Seen, ctx: sc.KeyContext[Any]) -> list[Any]:
        assert item[1] not in seen.values
        assert not seen.values or seen.values[-1] < item[1]
        seen.values.append(item[1])
        return [(*item, len(seen.values))]

    job = sc.Job("job")
    (
        job.source(source, name="source", parallelism=p)
        .key_by(lambda item: (item[0], item[1] % KEYS))
        .process(note, state=Seen, name="note", parallelism=p)
        .rebalance()
        .sink(lambda: out, name="out", parallelism=p)
    )
    return job


async def run_to_the_end(engine: Engine) -> None:
    async with engine.running():
        await until(lambda: all(subtask.finished for subtask in engine.subtasks))


@virtual_time
@pytest.mark.parametrize("q", range(1, 7))
@pytest.mark.parametrize("p", range(1, 7))
async def test_restore_gives_every_key_and_every_record_exactly_once(p: int, q: int) -> None:
    """Records in flight before and behind a keyed step, its state, and positions."""
    out, source = Out(), numbers({"a": 200})
    engine = Engine(keyed_job(out, source, p), capacity=30)
    async with engine.running():
        await until(
            lambda: all(one.gate.queued_records for one in engine.subtasks if one.id.task == "out")
        )
        await settle()
        assert not out.records
        engine.trigger(1)
        await engine.until_acknowledged(1)
    out.gate = None
    again = engine.restored(1, keyed_job(out, source, q), capacity=30)
    owners = Counter(
        key
        for subtask in again.subtasks
        for run in subtask.chain._keyed.values()
        for key in run.state.entries
    )
    assert set(owners.values()) <= {1}
    await run_to_the_end(again)
    assert sorted(out.records) == [("a", i, i // KEYS + 1) for i in range(200)]


@virtual_time
async def test_splits_are_dealt_anew_with_their_positions() -> None:
    gate, out = Gate(), Out()
    out.gate = None
    ends = {"a": 5, "b": 6, "c": 7}
    engine = Engine(keyed_job(out, numbers(ends, lambda: gate), 3))
    async with engine.running():
        await until(lambda: len(gate.waiting) == 3)
        await settle()
        engine.trigger(1)
        await engine.until_acknowledged(1)
    assert len(out.records) == 15
    again = engine.restored(1, keyed_job(out, numbers(ends), 2))
    dealt = [[r.split for r in again[f"source[{i}]"].readers] for i in range(2)]
    assert dealt == [["a", "c"], ["b"]]
    await run_to_the_end(again)
    assert Counter(split for split, _, _ in out.records) == ends


@virtual_time
@pytest.mark.parametrize("q", [2, 3])
async def test_new_split_is_read_although_all_had_finished(q: int) -> None:
    """It was dealt to a subtask that had finished, and what is behind it had finished too."""
    out = Out()
    out.gate = None
    engine = Engine(keyed_job(out, numbers({"a": 5, "b": 5}), 2))
    await run_to_the_end(engine)
    engine.trigger(1)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(engine.snapshots.run())
        await engine.until_acknowledged(1)
        task.cancel()
    same = engine.restored(1, keyed_job(out, numbers({"a": 5, "b": 5}), q))
    assert all(subtask.finished for subtask in same.subtasks)
    again = engine.restored(1, keyed_job(out, numbers({"a": 5, "b": 5, "c": 30}), q))
    await run_to_the_end(again)
    assert Counter(split for split, _, _ in out.records) == {"a": 5, "b": 5, "c": 30}


class Asked:
    """A keyed coroutine step whose calls wait at a gate, and what it was asked, in order."""

    def __init__(self) -> None:
        self.gate: Gate | None = Gate()
        self.order: list[int] = []

    def job(self, out: Out, p: int, key: Callable[[int], Any] = lambda n: n % 5) -> sc.Job:
        async def ask(number: int, seen: Seen, ctx: sc.KeyContext[Any]) -> list[int]:
            if self.gate is not None:
                await self.gate.pass_(number)
            if number % 7 == 3:
                raise ValueError("not this one")
            seen.values.append(number)
            self.order.append(number)
            return [number]

        job = sc.Job("job")
        asked = (
            job.source(sc.items(range(30)), name="source")
            .key_by(key)
            .process(ask, state=Seen, name="ask", parallelism=p, concurrency=4, on_error="divert")
        )
        asked.rebalance().sink(out.write, name="out")
        asked.errors.rebalance().sink(out.write, name="errors")
        return job


@virtual_time
@pytest.mark.parametrize(("p", "q"), [(1, 3), (3, 1), (2, 5), (4, 3)])
async def test_pending_list_of_a_keyed_step_is_divided_by_key_in_its_order(p: int, q: int) -> None:
    """Records, finished results and failures; a key's owner gets its state and its list."""
    out, asked = Out(), Asked()
    engine = Engine(asked.job(out, p), capacity=2)
    async with engine.running():
        gate = asked.gate
        assert gate is not None
        await until(lambda: len(gate.waiting) >= 4)
        gate.open()
        await settle()
        engine.trigger(1)
        await engine.until_acknowledged(1)
    done = [*asked.order]
    assert done
    asked.gate = out.gate = None
    again = engine.restored(1, asked.job(out, q), capacity=2)
    assert len([one for one in again.subtasks if isinstance(one, KeyedAsyncSubtask)]) == q
    assert any(one.pending_count for one in again.subtasks if isinstance(one, KeyedAsyncSubtask))
    await run_to_the_end(again)
    answers = [one for one in out.records if not isinstance(one, sc.Failure)]
    failed = [one.record for one in out.records if isinstance(one, sc.Failure)]
    assert sorted(answers) == [n for n in range(30) if n % 7 != 3]
    assert sorted(failed) == [n for n in range(30) if n % 7 == 3]
    for key in range(5):
        assert [n for n in asked.order if n % 5 == key] == [
            n for n in range(key, 30, 5) if n % 7 != 3
        ]


@virtual_time
async def test_key_function_that_fails_for_a_restored_record_is_told() -> None:
    out, asked = Out(), Asked()
    engine = Engine(asked.job(out, 1), capacity=2)
    async with engine.running():
        gate = asked.gate
        assert gate is not None
        await until(lambda: bool(gate.waiting))
        engine.trigger(1)
        await engine.until_acknowledged(1)

    def other(number: int) -> Any:
        raise LookupError("no such key")

    with pytest.raises(RestoreRefused, match=r"key function behind step 'ask'.*no such key"):
        engine.restored(1, asked.job(out, 2, other))


@virtual_time
@pytest.mark.parametrize(("p", "q"), [(1, 3), (3, 2), (2, 1)])
async def test_async_steps_in_a_row_keep_their_order(p: int, q: int) -> None:
    """P17: pending lists and forward edges of one old subtask go to one and the same index."""
    gate, out = Gate(), Out()
    holding = True

    async def ask(number: int) -> int:
        if holding and number >= 6:
            await gate.pass_(number)
        return number

    def job(parallelism: int) -> sc.Job:
        job = sc.Job("job")
        (
            job.source(sc.items(range(60)), name="source")
            .key_by(lambda n: n % 6)
            .process(lambda n, state, ctx: [n], state=list, name="pass", parallelism=parallelism)
            .map(ask, name="first", concurrency=2, parallelism=parallelism)
            .map(ask, name="second", concurrency=2, parallelism=parallelism)
            .key_by(lambda n: n % 6)
            .process(lambda n, state, ctx: [n], state=list, name="again", parallelism=2)
            .key_by(lambda n: n)
            .sink(out.write, name="out")
        )
        return job

    engine = Engine(job(p), capacity=4)
    async with engine.running():
        await until(lambda: bool(gate.waiting))
        await settle()
        engine.trigger(1)
        await engine.until_acknowledged(1)
    holding, out.gate = False, None
    again = engine.restored(1, job(q), capacity=4)
    await run_to_the_end(again)
    assert sorted(set(out.records)) == list(range(60))
    for key in range(6):
        assert [n for n in out.records if n % 6 == key] == list(range(key, 60, 6))


async def test_frames_are_let_go_of_as_they_are_restored() -> None:
    out = Out()
    out.gate = None
    engine = Engine(keyed_job(out, numbers({"a": 50}), 2))
    await run_to_the_end(engine)
    engine.trigger(1)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(engine.snapshots.run())
        await engine.until_acknowledged(1)
        task.cancel()
    restorable = engine.restorable(1)
    new = Engine(engine.job, attempt=2)
    restore(new.plan, new.subtasks, restorable, new.registry)
    assert not restorable.frames


@dataclass
class Rules:
    numbers: list[int] = field(default_factory=list)


@virtual_time
@pytest.mark.parametrize(("p", "q"), [(1, 3), (3, 2), (2, 4), (4, 1)])
async def test_broadcast_state_is_equal_on_all_subtasks_of_a_rescaled_step(p: int, q: int) -> None:
    """FLINK-33693 = flink#23850 (case 25), under another parallelism: some had applied more."""
    out, gate = Out(), Gate()

    def apply(number: int, rules: Rules) -> list[int]:
        rules.numbers.append(number)
        return []

    def job(parallelism: int) -> sc.Job:
        job = sc.Job("job")
        rules = job.source(sc.items(range(100)), name="rules").broadcast()
        read = numbers({"a": 100, "b": 100}, lambda: gate)
        (
            job.source(read, name="source", parallelism=2)
            .rebalance()
            .connect(rules)
            .process(
                lambda item, rules: [item],
                apply,
                broadcast_state=Rules,
                name="step",
                parallelism=parallelism,
            )
            .rebalance()
            .sink(out.write, name="out")
        )
        return job

    engine = Engine(job(p), capacity=8)
    async with engine.running():
        await until(lambda: bool(out.gate and out.gate.waiting))
        await settle()
        engine.trigger(1)
        await engine.until_acknowledged(1)
    out.gate = None
    again = engine.restored(1, job(q), capacity=8)
    async with again.running():
        while not all(subtask.finished for subtask in again.subtasks):
            gate.open()
            await asyncio.sleep(0)
    assert sorted(out.records) == sorted((split, i) for split in "ab" for i in range(100))
    states = [
        run.state.value.numbers
        for subtask in again.subtasks
        for run in subtask.chain._broadcast.values()
    ]
    assert states == [list(range(100))] * q


@virtual_time
@pytest.mark.parametrize(("p", "q"), [(1, 3), (3, 2)])
async def test_pending_records_of_both_inputs_go_to_the_owners_of_their_keys(
    p: int, q: int
) -> None:
    gate, out = Gate(), Out()
    holding = True

    async def left(number: int, seen: Seen, ctx: sc.KeyContext[int]) -> list[tuple[str, int]]:
        if holding:
            await gate.pass_(number)
        return [("left", number)]

    async def right(text: str, seen: Seen, ctx: sc.KeyContext[int]) -> list[tuple[str, int]]:
        assert ctx.key == int(text) % 3
        return [("right", int(text))]

    def job(parallelism: int) -> sc.Job:
        job = sc.Job("job")
        texts = job.source(sc.items([str(i) for i in range(20)]), name="texts")
        (
            job.source(sc.items(range(20)), name="numbers")
            .key_by(lambda number: number % 3)
            .connect(texts.key_by(lambda text: int(text) % 3))
            .process(left, right, state=Seen, name="step", parallelism=parallelism, concurrency=5)
            .rebalance()
            .sink(out.write, name="out")
        )
        return job

    engine = Engine(job(p), capacity=4)
    async with engine.running():
        await until(lambda: bool(gate.waiting))
        await settle()
        engine.trigger(1)
        await engine.until_acknowledged(1)
    holding, out.gate = False, None
    await run_to_the_end(engine.restored(1, job(q), capacity=4))
    assert sorted(set(out.records)) == sorted(
        (side, i) for side in ("left", "right") for i in range(20)
    )


@virtual_time
async def test_records_on_their_way_to_a_step_that_became_keyed_find_the_owners_of_their_keys() -> (
    None
):
    """Nothing else has changed: names, steps and parallelism are those of the checkpoint."""
    gate = Gate()

    async def write(records: Sequence[Any]) -> None:
        await gate.pass_("write")

    async def take(records: Sequence[Any]) -> None:
        pass

    def before() -> sc.Job:
        job = sc.Job("job")
        read = job.source(numbers({"a": 60}), name="source").map(lambda item: item, name="same")
        mapped = read.rebalance().map(lambda item: item, name="note", parallelism=2)
        mapped.rebalance().sink(write, name="out")
        return job

    def note(item: tuple[str, int], seen: Seen, ctx: sc.KeyContext[Any]) -> list[Any]:
        seen.values.append(item[1])
        return [item]

    def after() -> sc.Job:
        job = sc.Job("job")
        read = job.source(numbers({"a": 60}), name="source").map(lambda item: item, name="same")
        keyed = read.key_by(lambda item: item[1] % KEYS)
        noted = keyed.process(note, state=Seen, name="note", parallelism=2)
        noted.rebalance().sink(take, name="out")
        return job

    engine = Engine(before(), capacity=5)
    async with engine.running():
        await until(
            lambda: all(one.gate.queued_records for one in engine.subtasks if one.id.task == "note")
        )
        engine.trigger(1)
        await engine.until_acknowledged(1)
    again = engine.restored(1, after(), capacity=5)
    await run_to_the_end(again)
    states = [
        {key: entry.value.values for key, entry in run.state.entries.items()}
        for subtask in again.subtasks
        if subtask.id.task == "note"
        for run in subtask.chain._keyed.values()
    ]
    assert not states[0].keys() & states[1].keys()


@virtual_time
@pytest.mark.parametrize(
    ("runs", "message"),
    [((0, 999, 1), "key groups before the last have 999"), ((128,), "only 128 key groups")],
)
async def test_rows_that_are_not_of_the_groups_told_are_refused(
    runs: tuple[int, ...], message: str
) -> None:
    out = Out()
    engine = Engine(keyed_job(out, numbers({"a": 20}), 1))
    async with engine.running():
        await settle()
        engine.trigger(1)
        await engine.until_acknowledged(1)
    restorable = engine.restorable(1)
    told = {
        (subtask, replace(handle, key_groups=(runs,) * len(frames))): frames
        for (subtask, handle), frames in restorable.frames.items()
        if handle.kind == "state"
    }
    acknowledgements = tuple(
        replace(one, sections=tuple(handle for subtask, handle in told if subtask == one.subtask))
        for one in restorable.manifest.acknowledgements
    )
    damaged = Restorable(replace(restorable.manifest, acknowledgements=acknowledgements), told)
    with pytest.raises(RestoreRefused, match=message):
        restore(engine.plan, engine.subtasks, damaged, engine.registry)
