"""Position and data belong together (P6), whatever the source and the cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

import streamcp as sc
from streamcp.errors import StepFailed
from tests.runtime.engine import Engine, Gate, finish, settle, until

virtual_time = pytest.mark.asyncio(loop_factories=["asyncio"])


class Out:
    """An at-least-once sink that keeps what it gets, or waits until it is opened."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.gate: Gate | None = None

    async def write(self, records: Sequence[Any]) -> None:
        if self.gate is not None:
            await self.gate.pass_("write")
        self.records += records


def counting(*parts: Sequence[int], gate: Gate | None = None) -> Any:
    """A source that yields each part at once, and waits at `gate` before each."""

    @sc.source
    async def numbers(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        count = 0
        for number, part in enumerate(parts):
            if gate is not None and count >= position:
                await gate.pass_(number)
            for value in part:
                count += 1
                if count > position:
                    yield value, count

    return numbers()


def split_source(parts: dict[str, range]) -> Any:
    @sc.source(splits=lambda: list(parts))
    async def numbers(split: str, position: int = 0) -> AsyncIterator[tuple[int, int]]:
        for count, value in enumerate(parts[split]):
            if count >= position:
                yield value, count + 1

    return numbers()


def job_of(source: Any, out: Out, parallelism: int | None = None) -> sc.Job:
    job = sc.Job("job")
    stream = job.source(source, name="source", parallelism=parallelism)
    stream.sink(out.write, name="out", parallelism=parallelism)
    return job


async def test_source_that_ends_at_once_hands_on_all_records() -> None:
    out = Out()
    await finish(Engine(job_of(counting(range(5)), out)))
    assert out.records == [0, 1, 2, 3, 4]


async def test_several_splits_are_all_read() -> None:
    out = Out()
    await finish(Engine(job_of(split_source({"a": range(3), "b": range(10, 13)}), out)))
    assert sorted(out.records) == [0, 1, 2, 10, 11, 12]


async def test_cut_at_any_turn_and_restore_gives_every_record_once() -> None:
    for turns in range(40):
        out = Out()
        engine = Engine(
            job_of(split_source({"a": range(30), "b": range(100, 130)}), out), capacity=7
        )
        engine["out"]._sink.write.__self__.gate = gate = Gate()
        before: list[Any] = []
        async with engine.running():
            for _ in range(turns):
                gate.open()
                await asyncio.sleep(0)
            engine.trigger(1)
            before = list(out.records)
            await engine.until_acknowledged(1)
        out.gate = None
        out.records = list(before)
        await finish(engine.restored(1))
        assert sorted(out.records) == [*range(30), *range(100, 130)], f"cut after {turns} turns"


async def test_reader_that_ended_with_records_not_taken_over_is_not_ended_in_snapshot() -> None:
    out = Out()
    engine = Engine(job_of(split_source({"a": range(3), "b": range(10, 13)}), out))
    source = engine["source"]
    reader = source.readers[0]
    await source._collect(reader, 100, lambda: None)
    assert reader.ended
    assert reader.collected == [0, 1, 2]
    tasks = engine.snapshots.run()
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(tasks)
        engine.trigger(1)
        await engine.until_acknowledged(1)
        writing.cancel()
    await finish(engine.restored(1))
    assert sorted(out.records) == [0, 1, 2, 10, 11, 12]


async def test_mutable_position_is_kept_as_it_was_yielded() -> None:
    @sc.source
    async def changing(position: list[int] = []) -> AsyncIterator[tuple[int, list[int]]]:  # noqa: B006
        mine = list(position)
        for value in range(len(mine), 4):
            mine.append(value)
            yield value, mine
            await asyncio.sleep(0)

    out = Out()
    out.gate = gate = Gate()
    engine = Engine(job_of(changing(), out), capacity=1)
    async with engine.running():
        await settle()
        engine.trigger(1)
        await engine.until_acknowledged(1)
    del gate
    out.gate = None
    await finish(engine.restored(1))
    assert out.records == [0, 1, 2, 3]


async def test_rest_of_a_yielded_batch_is_in_the_snapshot_in_both_modes() -> None:
    @sc.source(batches=True)
    async def pages(position: int = 0) -> AsyncIterator[tuple[list[int], int]]:
        for page in range(position, 2):
            yield list(range(page * 10, page * 10 + 10)), page + 1

    for unaligned in (True, False):
        out = Out()
        out.gate = Gate()
        engine = Engine(job_of(pages(), out), capacity=3)
        async with engine.running():
            await settle()
            engine.trigger(1, unaligned=unaligned)
            if not unaligned:
                for _ in range(20):
                    out.gate.open()
                    await settle(3)
                # What the sink wrote before the barrier is not in the snapshot.
            await engine.until_acknowledged(1)
        written = engine.contents(1)
        rest = [record for frame in written.get(("source[0]", "rest"), []) for record in frame]
        assert rest == list(range(rest[0], rest[0] + len(rest)))
        assert written[("source[0]", "position")] == [((None, 1, False),)]


async def test_failing_generator_names_source_and_position() -> None:
    @sc.source
    async def broken(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        yield 1, 1
        raise ValueError("no more")

    with pytest.RaisesGroup(StepFailed, flatten_subgroups=True) as caught:
        await finish(Engine(job_of(broken(), Out())))
    assert "source 'source'" in str(caught.value.exceptions[0])
    assert "ValueError: no more" in str(caught.value.exceptions[0])


@pytest.mark.parametrize(("batches", "pair"), [(False, "record, position"), (True, "records, pos")])
async def test_generator_that_yields_no_pair_is_told_what_to_yield(
    batches: bool, pair: str
) -> None:
    async def numbers(position: int = 0) -> AsyncIterator[Any]:
        yield 17

    make: Any = sc.source  # a type checker refuses what it is to make here
    job = sc.Job("job")
    job.source(make(batches=batches)(numbers)(), name="source").sink(Out(), name="out")
    with pytest.RaisesGroup(StepFailed, flatten_subgroups=True) as caught:
        await finish(Engine(job))
    assert "'source'" in str(caught.value.exceptions[0])
    assert f"it yielded 17; yield ({pair}" in str(caught.value.exceptions[0])


async def test_step_that_fails_before_the_source_waits_is_told_as_it_is() -> None:
    closed: list[str] = []

    @sc.source
    async def waiting(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        try:
            yield 1, 1
            await asyncio.get_running_loop().create_future()
        finally:
            closed.append("closed")

    def fail(record: int) -> int:
        raise ValueError("bad record")

    job = sc.Job("job")
    job.source(waiting(), name="source").map(fail, name="fail").sink(Out().write, name="out")
    with pytest.RaisesGroup(StepFailed, flatten_subgroups=True) as caught:
        await finish(Engine(job))
    assert "step 'fail'" in str(caught.value.exceptions[0])
    assert closed == ["closed"]


async def test_cancelled_source_closes_its_generator() -> None:
    closed: list[str] = []

    @sc.source
    async def waiting(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        try:
            yield 1, 1
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            closed.append("closed")

    async with Engine(job_of(waiting(), Out())).running():
        await settle()
    assert closed == ["closed"]


async def test_generator_that_fails_while_it_is_closed_does_not_fail_the_job() -> None:
    @sc.source
    async def waiting(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        try:
            for value in range(1000):
                yield value, value + 1
        finally:
            raise ValueError("the connection was closed already")

    out = Out()
    out.gate = Gate()
    async with Engine(job_of(waiting(), out), capacity=5).running():
        await settle()


async def test_generator_that_raises_cancelled_error_by_itself_fails_the_job() -> None:
    @sc.source
    async def odd(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        yield 1, 1
        raise asyncio.CancelledError

    for parts in (odd(), split_of_cancelled()):
        with pytest.RaisesGroup(StepFailed, flatten_subgroups=True):
            await finish(Engine(job_of(parts, Out())))


def split_of_cancelled() -> Any:
    @sc.source(splits=lambda: ["a", "b"])
    async def odd(split: str, position: int = 0) -> AsyncIterator[tuple[int, int]]:
        yield 1, 1
        if split == "b":
            raise asyncio.CancelledError

    return odd()


async def test_held_source_hands_on_nothing_and_goes_on_when_released() -> None:
    gate = Gate()
    out = Out()
    engine = Engine(job_of(counting([1], [2], [3], gate=gate), out))
    async with engine.running():
        await settle()
        gate.open(0)
        await until(lambda: out.records == [1])
        engine.trigger(1, stopping=True)
        gate.open(1)
        await settle()
        assert out.records == [1]
        engine.work_list.cancel(1)
        await until(lambda: 2 in gate.waiting)
        gate.open(2)
        await until(lambda: out.records == [1, 2, 3])


async def test_restored_splits_stay_with_their_positions_when_new_ones_come_first() -> None:
    parts = {"b": range(10, 20), "c": range(20, 30)}
    out = Out()
    out.gate = Gate()

    def build(splits: dict[str, range]) -> sc.Job:
        return job_of(split_source(splits), out, parallelism=2)

    engine = Engine(build(parts), capacity=4)
    async with engine.running():
        await settle()
        engine.trigger(1)
        await engine.until_acknowledged(1)
    out.gate = None
    out.records = []
    await finish(engine.restored(1, build({"a": range(0, 10), **parts})))
    assert sorted(out.records) == [*range(0, 30)]


# ---- drain


@pytest.mark.parametrize("splits", [False, True])
async def test_drained_source_interrupts_its_generator_once_and_lets_it_close(
    splits: bool,
) -> None:
    """What the generator holds is closed by coroutines, which a second cancellation would break."""
    told: list[str] = []

    async def waiting(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        try:
            yield 0, 1
            await asyncio.sleep(1e9)
            yield 1, 2
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            told.append("closed")

    async def waiting_split(split: str, position: int = 0) -> AsyncIterator[tuple[int, int]]:
        async for one in waiting(position):
            yield one

    source: Any = (
        sc.source(splits=lambda: ["a", "b"])(waiting_split)() if splits else sc.source(waiting)()
    )
    out = Out()
    job = sc.Job("job")
    job.source(source, name="source").sink(out, name="out")
    engine = Engine(job)
    async with engine.running():
        await until(lambda: len(out.records) == 1 + splits)
        engine["source"].drain()
        engine["source"].drain()
        engine.trigger(1)
        await until(lambda: engine["out"].finished)
        await engine.until_acknowledged(1)
    assert told == ["closed"] * (1 + splits)
    assert out.records == [0] * (1 + splits)
    ((positions,),) = [v for (_, kind), v in engine.contents(1).items() if kind == "position"]
    assert [(position, ended) for _, position, ended in positions] == [(1, True)] * (1 + splits)


async def test_drained_source_that_is_restored_reads_nothing_and_works_its_rest_off() -> None:
    out = Out()
    job = sc.Job("job")
    job.source(sc.items(list(range(50))), name="source").sink(out, name="out")
    engine = Engine(job, capacity=4)
    engine["source"].restore("position", "source", [[(None, 10, False)]])
    engine["source"].restore("rest", "source", [[7, 8, 9]])
    engine["source"].drain()
    async with engine.running():
        await until(lambda: engine["out"].finished)
    assert out.records == [7, 8, 9]


async def test_drain_waits_for_room_and_for_nothing_else() -> None:
    out = Out()
    gate = out.gate = Gate()

    @sc.source
    async def numbers(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        for i in range(position, 1000):
            yield i, i + 1

    job = sc.Job("job")
    job.source(numbers(), name="source").sink(out, name="out")
    engine = Engine(job, capacity=4)
    async with engine.running():
        await until(lambda: bool(gate.waiting))
        await settle()
        engine["source"].drain()
        await settle()
        assert not engine["source"].finished
        while not engine["out"].finished:
            gate.open()
            await asyncio.sleep(0)
    assert out.records == list(range(len(out.records)))
    assert len(out.records) < 1000
