"""`batch` and `unbatch`: every record once and in order, no list too long, none too late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamcp as sc
from streamcp.operators.steps import BatchStep
from streamcp.runtime.batching import BatchRun
from streamcp.runtime.meters import StepMeter
from streamcp.testing.clock import ManualClock
from streamcp.testing.loop import VirtualTimeLoop
from tests.runtime.engine import Engine, bare_context, finish, settle, until

virtual_time = pytest.mark.asyncio(loop_factories=["asyncio"])

# ---- one run


class Bench:
    def __init__(self, clock: ManualClock, size: int, wait: float) -> None:
        self.out: list[list[int]] = []
        self.context = bare_context(clock, lambda event: None)
        spec = BatchStep(size, wait)
        self.run = BatchRun("batch", spec, self.out.extend, StepMeter(), self.context)

    def snapshot(self) -> Any:
        """What a snapshot holds, read back."""
        section = self.run.section()
        while section.freeze_some():
            pass
        [frame] = section.section().frames
        return self.context.serializer.loads(frame)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(0, 12)),
        st.tuples(st.just("wait"), st.sampled_from([1, 40, 100])),
        st.tuples(st.just("cut"), st.just(0)),
    ),
    max_size=30,
)


@given(STEPS, st.integers(1, 5))
def test_records_come_once_in_order_in_lists_that_are_neither_too_long_nor_too_late(
    steps: list[tuple[str, int]], size: int
) -> None:
    """Time goes on in steps, timers fire when they are due, and the run may be restored."""
    clock = ManualClock()
    bench = Bench(clock, size, 0.1)
    out: list[list[int]] = []
    came: list[int] = []  # when each record came, in ms
    for what, amount in steps:
        if what == "push":
            bench.run.push(list(range(len(came), len(came) + amount)))
            came += [clock.wall_ms()] * amount
        elif what == "cut":
            out += bench.out
            due, records = bench.snapshot()
            bench = Bench(clock, size, 0.1)
            if records:
                bench.run.restore(due, records)
        else:
            for _ in range(amount):
                clock.advance(0.001)
                bench.run.fire()
        done = sum(map(len, out + bench.out))
        assert all(clock.wall_ms() - at < 100 for at in came[done:]), "a record waits too long"
        assert len(came) - done < size
    bench.run.flush()
    out += bench.out
    assert [record for batch in out for record in batch] == list(range(len(came)))
    assert all(1 <= len(batch) <= size for batch in out)


def test_restored_records_of_several_subtasks_that_fill_a_list_are_due_at_once() -> None:
    clock = ManualClock()
    bench = Bench(clock, 3, 60.0)
    bench.run.restore(clock.wall_ms() + 50, [1, 2])
    assert not bench.run.fire()
    bench.run.restore(clock.wall_ms() + 90, [3, 4])
    assert bench.out == [], "nothing is emitted before everything is restored"
    assert bench.run.fire()
    assert bench.out == [[1, 2, 3], [4]]


# ---- in a job


@dataclass
class Item:
    number: int


def job_of(source: Any, *, size: int = 4, wait: str = "1h", parallelism: int = 1) -> Any:
    out: list[Any] = []

    async def write(records: Sequence[Any]) -> None:
        out.extend(records)

    job = sc.Job("job", types=[Item])
    stream = job.source(source, name="in").rebalance()
    batches = stream.batch(size, wait, name="batch", parallelism=parallelism)
    batches.rebalance().sink(write, name="out")
    return job, out


@sc.source
async def slowly(position: int = 0, count: int = 0, pause: float = 0.0) -> AsyncIterator[Any]:
    for i in range(position, count):
        yield i, i + 1
        await asyncio.sleep(pause)
    await asyncio.Event().wait()


async def test_full_lists_go_on_and_the_rest_at_the_end() -> None:
    job, out = job_of(sc.items(range(10)))
    await finish(Engine(job))
    assert out == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@virtual_time
async def test_list_that_is_not_full_goes_on_when_its_first_record_has_waited() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    job, out = job_of(slowly(count=5, pause=0.4), wait="1s")
    async with Engine(job, clock=loop.clock).running():
        await asyncio.sleep(1.1)
        assert out == [[0, 1, 2]]
        await asyncio.sleep(3)
        assert out == [[0, 1, 2], [3, 4]]


@virtual_time
async def test_list_behind_a_source_and_behind_a_coroutine_is_not_forgotten() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    out: list[Any] = []

    async def call(record: int) -> int:
        await asyncio.sleep(0.01)
        return record

    async def write(records: Sequence[Any]) -> None:
        out.extend(records)

    job = sc.Job("job")
    batches = job.source(slowly(count=3), name="in").batch(10, "1s", name="first")
    again = batches.unbatch().map(call, name="call").batch(10, "1s", name="second")
    again.sink(write, name="out")
    async with Engine(job, clock=loop.clock).running():
        await asyncio.sleep(2.5)
    assert out == [[0, 1, 2]]


async def test_lists_in_lists_are_all_handed_on_at_the_end() -> None:
    out: list[Any] = []
    job = sc.Job("job")
    stream = job.source(sc.items(range(7)), name="in").batch(2, "1h", name="a")
    twice = stream.batch(3, "1h", name="b").map(lambda lists: lists).unbatch().unbatch()
    twice.batch(100, "1h", name="c").for_each(out.append)
    await finish(Engine(job))
    assert out == [list(range(7))]


@pytest.mark.parametrize("unaligned", [True, False])
@pytest.mark.parametrize("parallelism", [1, 3])
async def test_open_list_is_in_the_snapshot_and_goes_on_after_a_restore(
    unaligned: bool, parallelism: int
) -> None:
    job, out = job_of(slowly(count=6), parallelism=2, size=4)
    engine = Engine(job)
    async with engine.running():
        await until(lambda: engine["batch"].meter.records_in == 3)
        await settle()
        engine.trigger(1, unaligned=unaligned)
        await engine.until_whole(1)
    assert out == []
    held = [engine.contents(1)[f"batch[{i}]", "batch"][0][1] for i in range(2)]
    assert sorted(held[0] + held[1]) == list(range(6))

    second, out = job_of(slowly(count=9), parallelism=parallelism, size=4)
    restored = engine.restored(1, second)
    async with restored.running():
        await settle(300)
        for subtask in restored.subtasks:
            subtask.drain()
        await until(lambda: all(subtask.ended for subtask in restored.subtasks))
    assert sorted(record for batch in out for record in batch) == list(range(9))
    assert all(len(batch) <= 4 for batch in out)


async def test_records_that_are_changed_behind_the_step_are_captured_as_they_were() -> None:
    job = sc.Job("job", types=[Item])
    seen: list[int] = []

    def change(batch: list[Item]) -> list[int]:
        for item in batch:
            item.number += 100
        seen.extend(item.number for item in batch)
        return []

    stream = job.source(slowly(count=3), name="in").map(Item)
    stream.batch(4, "1h", name="batch").flat_map(change).sink(sc.discard())
    engine = Engine(job)
    async with engine.running():
        await until(lambda: engine["in"].chain.has_open_batches)
        await settle()
        engine.trigger(1)
        engine["in"].chain.flush_batches()
        await engine.until_whole(1)
    assert seen == [100, 101, 102]
    [(_, items)] = engine.contents(1)["in[0]", "batch"]
    assert items == [Item(0), Item(1), Item(2)]


@virtual_time
async def test_loop_ends_only_when_no_list_is_open_in_it() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    out: list[int] = []

    def body(stream: sc.Stream[int]) -> tuple[sc.Stream[int], sc.Stream[int]]:
        once = stream.batch(100, "1s", name="batch").unbatch().map(lambda n: n - 1)
        return once.branch(lambda n: n > 0)

    job = sc.Job("job")
    job.source(sc.items([1, 2, 3]), name="in").iterate(body, name="loop").for_each(out.append)
    engine = Engine(job, clock=loop.clock)
    async with engine.running():
        while not all(subtask.ended for subtask in engine.subtasks):  # noqa: ASYNC110 - time passes
            await asyncio.sleep(0.1)
    assert out == [0, 0, 0]
