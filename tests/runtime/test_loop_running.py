"""Barriers and ends in a running loop: captured while n goes round, in every mode (P11, P19)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

import streamcp as sc
from streamcp.checkpoint.snapshot import IN_FLIGHT
from streamcp.identifiers import SubtaskId
from streamcp.testing.clock import ManualClock
from tests.runtime.engine import Engine, Gate, finish, settle, until

virtual_time = pytest.mark.asyncio(loop_factories=["asyncio"])


@dataclass
class Walker:
    """Changed in place by the steps that it passes: the captured one must not change with it, or
    it would make a step without the wait that belongs to it."""

    name: int
    steps: int = 0
    waits: int = 0


class Walk:
    """Numbers that go round, one step more each time, until they have made five steps."""

    def __init__(self, count: int = 12, parallelism: int = 1, steps: int = 0, **call: Any) -> None:
        self.gate: Gate | None = None
        self.sink_gate: Gate | None = None
        self.out: list[tuple[int, int, int]] = []
        self.job = sc.Job("walk", parallelism=parallelism)

        async def wait(walker: Walker) -> Walker:
            if self.gate is not None:
                await self.gate.pass_("call")
            walker.waits += 1
            return walker

        async def write(walkers: Sequence[Walker]) -> None:
            if self.sink_gate is not None:
                await self.sink_gate.pass_("write")
            self.out += [(walker.name, walker.steps, walker.waits) for walker in walkers]

        def body(loop: sc.Stream[Walker]) -> tuple[sc.Stream[Walker], sc.Stream[Walker]]:
            waited = loop.map(step).rebalance().map(wait, name="wait", **call)
            again, output = waited.branch(lambda walker: walker.steps < 5)
            return again.rebalance(), output

        walkers = self.job.source(
            sc.items([Walker(i, steps, steps) for i in range(count)]), name="walkers"
        )
        walkers.rebalance().iterate(body, name="loop").rebalance().sink(
            write, name="out", parallelism=1
        )
        self.expected = [(i, 5, 5) for i in range(count)]


def step(walker: Walker) -> Walker:
    walker.steps += 1
    return walker


def in_flight(engine: Engine, checkpoint_id: int) -> dict[str, int]:
    """Records of each captured channel."""
    return {
        section.name: section.records
        for _, section in engine.disk.written[checkpoint_id]
        if section.kind in IN_FLIGHT and section.kind == "channel"
    }


async def check_goes_on(walk: Walk, engine: Engine, checkpoint_id: int, before: int) -> None:
    """A job that is restored from the checkpoint adds what the sink did not have at the cut."""
    del walk.out[before:]
    walk.gate = walk.sink_gate = None
    await finish(engine.restored(checkpoint_id))
    assert sorted(walk.out) == walk.expected


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("capacity", [1, 2, 1000])
async def test_loop_ends_when_its_input_has_ended_and_every_record_has_left(
    parallelism: int, capacity: int
) -> None:
    walk = Walk(parallelism=parallelism)
    engine = Engine(walk.job, capacity=capacity)
    await finish(engine)
    assert sorted(walk.out) == walk.expected
    assert all(subtask.finished for subtask in engine.subtasks)


async def test_loop_out_of_which_records_vanish_ends_too() -> None:
    kept: list[int] = []

    async def write(numbers: Sequence[int]) -> None:
        kept.extend(numbers)

    job = sc.Job("x")
    job.source(sc.items([1, 2, 3]), name="numbers").iterate(
        lambda loop: loop.map(lambda n: n - 1).filter(lambda n: n != 1).branch(bool), name="down"
    ).sink(write, name="out")
    await finish(Engine(job))
    assert kept == [0]


async def test_multiplying_loop_does_not_stop_where_its_channels_are_full() -> None:
    """Each record makes two of itself, eight rounds long, through channels for one."""
    kept: list[int] = []

    async def write(numbers: Sequence[int]) -> None:
        kept.extend(numbers)

    job = sc.Job("x")

    def body(loop: sc.Stream[int]) -> tuple[sc.Stream[int], sc.Stream[int]]:
        doubled = loop.flat_map(lambda n: [n - 1, n - 1]).rebalance().map(lambda n: n)
        return doubled.branch(bool)

    job.source(sc.items([8, 8]), name="numbers").iterate(body, name="loop").sink(write, name="out")
    await finish(Engine(job, capacity=1))
    assert kept == [0] * 512


@pytest.mark.parametrize("unaligned", [False, True])
async def test_snapshot_holds_what_goes_round_as_it_was_at_the_cut(unaligned: bool) -> None:
    """The aligned barrier goes round behind records that wait for their calls; those that come
    back before it are captured, and then changed by the step that they pass."""
    walk = Walk(count=8, concurrency=1)
    walk.gate = Gate()
    engine = Engine(walk.job, capacity=6)  # six are pending, two before the barrier
    async with engine.running():
        await settle()
        engine.trigger(1, unaligned=unaligned)
        for _ in range(200):
            await settle(5)
            if walk.gate.waiting:
                walk.gate.open()
        await engine.until_whole(1)
        channels = in_flight(engine, 1)
        if not unaligned:
            assert channels.keys() == {"wait[0] -> loop[0] (branch-4.yes)"}
        assert sorted(walk.out) == walk.expected
    await check_goes_on(walk, engine, 1, before=0)


async def test_aligned_snapshot_of_an_empty_loop_captures_nothing() -> None:
    walk = Walk(count=3)
    walk.sink_gate = Gate()
    engine = Engine(walk.job)
    async with engine.running():
        await settle()
        engine.trigger(1, unaligned=False)
        walk.sink_gate.open()
        walk.sink_gate = None
        await engine.until_whole(1)
    assert in_flight(engine, 1) == {}


@pytest.mark.parametrize("unaligned", [False, True])
async def test_stop_without_drain_captures_what_goes_round_and_a_restart_goes_on(
    unaligned: bool,
) -> None:
    """From its cut on the head takes nothing, and yet the barrier comes round to it."""
    walk = Walk(count=40)
    engine = Engine(walk.job, capacity=5)
    async with engine.running():
        await until(lambda: walk.out)
        assert len(walk.out) < 40
        engine.trigger(1, unaligned=unaligned, stopping=True)
        await engine.until_whole(1)
        await settle()
        before = len(walk.out)
        assert all(subtask.held for subtask in engine.subtasks if not subtask.finished)
    await check_goes_on(walk, engine, 1, before)


async def test_stop_that_fails_while_the_barrier_goes_round_lets_the_loop_go_on() -> None:
    walk = Walk(count=8, concurrency=1)
    walk.gate = Gate()
    engine = Engine(walk.job, capacity=6)  # six are pending, two before the barrier
    async with engine.running():
        await settle()
        engine.trigger(1, unaligned=False, stopping=True)
        await settle()
        assert engine["loop"].held
        assert not engine.whole(1)
        engine.work_list.cancel(1)
        walk.gate.open()
        walk.gate = None
        await until(lambda: all(subtask.ended for subtask in engine.subtasks))
    assert sorted(walk.out) == walk.expected


async def test_checkpoint_after_a_cancelled_one_that_went_round_is_whole() -> None:
    walk = Walk(count=8, concurrency=1)
    walk.gate = Gate()
    engine = Engine(walk.job, capacity=6)  # six are pending, two before the barrier
    async with engine.running():
        await settle()
        engine.trigger(1, unaligned=False)
        await settle()
        engine.work_list.cancel(1)
        assert all(c.capturing is None for c in engine["loop"].gate.channels)
        engine.trigger(2, unaligned=False)
        walk.gate.open()
        walk.gate = None
        await engine.until_whole(2)
    await check_goes_on(walk, engine, 2, before=0)


async def test_escalated_checkpoint_does_not_wait_for_the_records_before_the_barrier() -> None:
    walk = Walk(count=8, concurrency=1)
    walk.gate = Gate()
    engine = Engine(walk.job, capacity=6)  # six are pending, two before the barrier
    async with engine.running():
        await settle()
        engine.trigger(1, unaligned=False)
        await settle()
        assert not engine.whole(1)
        engine.work_list.escalate(1)
        await engine.until_whole(1)
        statistics = {str(k): v.statistics for k, v in engine.upward.acknowledged[1].items()}
        assert statistics["loop[0]"].escalated_after is None
        assert statistics["wait[0]"].escalated_after is not None
    await check_goes_on(walk, engine, 1, before=0)


async def test_loop_that_ends_while_a_barrier_goes_round_acknowledges_without_it() -> None:
    walk = Walk(count=1, steps=4)
    walk.gate = Gate()
    engine = Engine(walk.job)
    loop, wait = engine["loop"], engine["wait"]
    async with engine.running():
        await until(lambda: walk.gate is not None and walk.gate.waiting)
        wait.gate.blocked.add(0)
        engine.trigger(1, unaligned=False)
        assert wait.gate.with_barrier(1) == {0}
        walk.gate.open()
        await until(lambda: loop.finished)
        assert wait.gate.with_barrier(1) == {0}
        wait.gate.resume([0])
        wait.wakeup.set()
        await engine.until_whole(1)
        await until(lambda: all(subtask.ended for subtask in engine.subtasks))
        assert walk.out == walk.expected  # it left the loop before the barrier
    await check_goes_on(walk, engine, 1, before=1)


@pytest.mark.parametrize("unfinished", [["wait[0]"], ["loop[1]", "wait[0]", "wait[1]"]])
@pytest.mark.parametrize("unaligned", [False, True])
async def test_loop_that_had_ended_in_part_of_its_subtasks_ends_after_a_restore(
    unfinished: list[str], unaligned: bool
) -> None:
    walk = Walk(parallelism=2)
    walk.sink_gate = Gate()
    engine = Engine(walk.job)
    async with engine.running():
        await until(lambda: engine["wait"].finished and engine["wait[1]"].finished)
        engine.trigger(1, unaligned=unaligned)
        walk.sink_gate.open()
        walk.sink_gate = None
        await engine.until_whole(1)
    for subtask, one in [*engine.upward.acknowledged[1].items()]:
        if str(subtask) in unfinished:
            engine.upward.acknowledged[1][subtask] = replace(one, finished=False)
    restored = engine.restored(1)
    restored.trigger(2, unaligned=unaligned, stopping=True)
    async with restored.running():
        await restored.until_whole(2)
    await finish(engine.restored(1))


@dataclass
class State:
    """Of a keyed step."""


class Timed:
    """A loop that waits for more input, around a keyed step that sets a timer now and one later."""

    def __init__(self, *, coroutine: bool) -> None:
        self.clock = ManualClock(tick=1e-6)
        self.more = Gate()
        self.kept: list[str] = []

        @sc.source
        async def names(position: int = 0) -> AsyncIterator[tuple[str, int]]:
            yield "first", 1
            await self.more.pass_("more")

        def process(name: str, state: State, ctx: sc.KeyContext[str]) -> list[str]:
            if name == "first":
                ctx.set_timer(ctx.timestamp)
                ctx.set_timer(after="1h")
            return []

        async def slowly(name: str, state: State, ctx: sc.KeyContext[str]) -> list[str]:
            return process(name, state, ctx)

        def on_timer(timestamp: int, state: State, ctx: sc.KeyContext[str]) -> list[str]:
            return ["again", "leaves"]

        async def write(names: Sequence[str]) -> None:
            self.kept.extend(names)

        def body(loop: sc.Stream[str]) -> tuple[sc.Stream[str], sc.Stream[str]]:
            fn: Any = slowly if coroutine else process
            timed = loop.key_by(str).process(fn, state=State, on_timer=on_timer, name="timed")
            return timed.branch(lambda name: name == "again")

        job = sc.Job("x")
        job.source(names(), name="names").iterate(body, name="loop").sink(write, name="out")
        self.engine = Engine(job, clock=self.clock)
        self.timed = self.engine["timed" if coroutine else "loop"]


@virtual_time
@pytest.mark.parametrize("coroutine", [False, True])
async def test_member_with_a_due_timer_is_not_empty_until_its_loop_has_ended(
    coroutine: bool,
) -> None:
    timed = Timed(coroutine=coroutine)
    async with timed.engine.running():
        await until(lambda: timed.kept == ["leaves"])
        await settle()
        assert timed.timed.is_empty
        timed.clock.advance(3600)
        assert not timed.timed.is_empty
        timed.timed.iteration.ended = True
        assert timed.timed.is_empty
        assert timed.timed.until_timer() is None


@virtual_time
@pytest.mark.parametrize("coroutine", [False, True])
async def test_timer_that_comes_due_when_its_loop_has_ended_does_not_fire(coroutine: bool) -> None:
    timed = Timed(coroutine=coroutine)
    async with timed.engine.running():
        await until(lambda: timed.kept == ["leaves"])
        timed.more.open()
        await until(lambda: timed.timed.iteration.ended)
        timed.clock.advance(3600)
        await until(lambda: all(subtask.ended for subtask in timed.engine.subtasks))
    assert timed.kept == ["leaves"]


async def test_empty_loop_waits_for_more_input() -> None:
    more, kept = Gate(), list[int]()

    @sc.source
    async def numbers(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        yield 2, 1
        await more.pass_("more")
        yield 3, 2

    async def write(numbers: Sequence[int]) -> None:
        kept.extend(numbers)

    job = sc.Job("x")
    job.source(numbers(), name="numbers").iterate(
        lambda loop: loop.map(lambda n: n - 1).branch(bool), name="down"
    ).sink(write, name="out")
    engine = Engine(job)
    async with engine.running():
        await until(lambda: kept == [0])
        await settle()
        assert not engine["down"].iteration.ended
        more.open()
        await until(lambda: all(subtask.ended for subtask in engine.subtasks))
    assert kept == [0, 0]


def test_plan_of_a_loop_triggers_its_head_when_the_senders_outside_have_finished() -> None:
    engine = Engine(Walk().job)
    assert engine.plan.senders()[SubtaskId("loop", 0)] == {SubtaskId("walkers", 0)}
    loop, wait = engine["loop"], engine["wait"]
    assert (loop.gate.back, wait.gate.back) == ({1}, frozenset())
    assert loop.iteration is wait.iteration is not None
    assert engine["walkers"].iteration is None
