"""Fused keyed steps: state per key, effects that commit with their call, timers (P20, P43)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

import streamcp as sc
from streamcp.errors import StepFailed
from streamcp.operators.context import KeyContext
from streamcp.runners.life import first_cause
from streamcp.runtime.keyed_steps import Effects
from streamcp.testing.clock import ManualClock
from streamcp.testing.loop import VirtualTimeLoop
from tests.runtime.engine import Engine, Gate, finish

virtual_time = pytest.mark.asyncio(loop_factories=["asyncio"])


@dataclass
class Seen:
    names: list[str] = field(default_factory=list)


class Bench:
    def __init__(self, records: Sequence[Any], build: Any, gate: Gate | None = None) -> None:
        self.out: list[Any] = []

        @sc.source
        async def source(position: int = 0) -> Any:
            for number in range(position, len(records)):
                yield records[number], number + 1
            if gate is not None:
                await gate.pass_("end")

        async def write(records: Sequence[Any]) -> None:
            self.out.extend(records)

        self.job = sc.Job("job", types=[Seen])
        keyed = self.job.source(source(), name="source").key_by(lambda record: record[0])
        build(keyed).sink(write, name="out")

    def engine(self, **options: Any) -> Engine:
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualTimeLoop):
            options.setdefault("clock", loop.clock)
        return Engine(self.job, **options)


RECORDS = [("a", 1), ("b", 10), ("a", 2), ("b", 20), ("a", 3)]


async def test_count_reduce_and_scan_emit_each_new_value() -> None:
    counted = Bench(RECORDS, lambda keyed: keyed.count(name="count"))
    await finish(counted.engine())
    assert counted.out == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3)]
    reduced = Bench(RECORDS, lambda k: k.reduce(lambda x, y: (x[0], x[1] + y[1]), name="reduce"))
    await finish(reduced.engine())
    assert reduced.out == [("a", 1), ("b", 10), ("a", 3), ("b", 30), ("a", 6)]
    scanned = Bench(RECORDS, lambda k: k.scan(int, lambda total, r: total + r[1], name="scan"))
    await finish(scanned.engine())
    assert scanned.out == [1, 10, 3, 30, 6]


async def test_emitted_or_returned_state_object_fails_the_job() -> None:
    def emit(record: Any, seen: Seen, ctx: KeyContext[str]) -> list[Seen]:
        return [seen]

    def in_place(total: list[int], record: Any) -> list[int]:
        total.append(record[1])
        return total

    for build in (
        lambda k: k.process(emit, state=Seen, name="step"),
        lambda k: k.scan(list, in_place, name="step"),
    ):
        with pytest.RaisesGroup(StepFailed, flatten_subgroups=True) as caught:
            await finish(Bench(RECORDS, build).engine())
        assert "return a" in str(first_cause(caught.value))


async def test_failed_call_leaves_no_trace_where_it_does_not_fail_the_job() -> None:
    def fn(record: Any, seen: Seen, ctx: KeyContext[str]) -> list[Any]:
        seen.names.append(str(record[1]))
        ctx.set_timer(after="1h")
        if record[1] == 2:
            raise ValueError
        return [(record[0], list(seen.names))]

    bench = Bench(
        RECORDS,
        lambda k: k.process(fn, state=Seen, on_timer=_nothing, name="step", on_error="drop"),
    )
    engine = bench.engine()
    await finish(engine)
    assert [names for key, names in bench.out if key == "a"] == [["1"], ["1", "3"]]


def _nothing(timestamp: int, seen: Seen, ctx: KeyContext[str]) -> None:
    """Emit nothing."""


def timed(record: Any, seen: Seen, ctx: KeyContext[str]) -> None:
    seen.names.append(str(record[1]))
    if record[1] == 99:
        ctx.clear_state()
    else:
        ctx.set_timer(after=f"{record[1]}s")


def fired(timestamp: int, seen: Seen, ctx: KeyContext[str]) -> list[Any]:
    seen.names.append("timer")
    return [(ctx.key, list(seen.names))]


@virtual_time
async def test_timers_fire_in_time_order_without_further_input() -> None:
    gate = Gate()
    bench = Bench(
        [("a", 3), ("b", 1), ("c", 2)],
        lambda k: k.process(timed, state=Seen, on_timer=fired, name="step"),
        gate,
    )
    async with bench.engine().running():
        await asyncio.sleep(10)
        assert [key for key, _ in bench.out] == ["b", "c", "a"]


@virtual_time
async def test_cleared_state_forgets_its_timers() -> None:
    gate = Gate()
    bench = Bench(
        [("a", 1), ("a", 99)],
        lambda k: k.process(timed, state=Seen, on_timer=fired, name="step"),
        gate,
    )
    async with bench.engine().running():
        await asyncio.sleep(10)
        assert bench.out == []


@virtual_time
async def test_timers_that_came_due_while_the_job_was_down_fire_once_after_the_restore() -> None:
    gate = Gate()
    bench = Bench(
        [("a", 50), ("b", 40)],
        lambda k: k.process(timed, state=Seen, on_timer=fired, name="step"),
        gate,
    )
    engine = bench.engine()
    async with engine.running():
        await asyncio.sleep(1)
        engine.trigger(1)
        await engine.until_acknowledged(1)
    clock = engine.clock
    assert isinstance(clock, ManualClock)
    clock.advance(3600)
    again = engine.restored(1, clock=clock)
    async with again.running():
        await asyncio.sleep(1)
        assert bench.out == [("b", ["40", "timer"]), ("a", ["50", "timer"])]
        again.trigger(2)
        await again.until_acknowledged(2)
    third = again.restored(2, clock=clock)
    async with third.running():
        await asyncio.sleep(100)
    assert len(bench.out) == 2


async def test_set_timer_without_on_timer_fails_and_names_the_remedy() -> None:
    with pytest.RaisesGroup(StepFailed, flatten_subgroups=True) as caught:
        await finish(Bench(RECORDS, lambda k: k.process(timed, state=Seen, name="step")).engine())
    assert "on_timer" in str(first_cause(caught.value))


@virtual_time
async def test_timer_that_sets_itself_again_at_once_does_not_stop_the_others() -> None:
    gate = Gate()
    fires, most = 0, 0

    def again(timestamp: int, seen: Seen, ctx: KeyContext[str]) -> None:
        nonlocal fires
        fires += 1
        ctx.set_timer(timestamp + 1)

    bench = Bench(
        [("a", 0)], lambda k: k.process(timed, state=Seen, on_timer=again, name="step"), gate
    )
    engine = bench.engine()
    assert isinstance(engine.clock, ManualClock)
    async with engine.running():
        await asyncio.sleep(1)
        engine.clock.advance(60)  # sixty thousand timers are due, one after another
        for _ in range(50):
            before = fires
            await asyncio.sleep(0)
            most = max(most, fires - before)
    assert 0 < most < 10_000


def test_effects_of_an_ended_call_refuse_everything() -> None:
    effects = Effects(may_set_timers=True, now=lambda: 0)
    effects.set_timer(1, "processing")
    effects.clear_state()
    assert effects.cleared
    effects.ended = True
    with pytest.raises(RuntimeError, match="has ended"):
        effects.set_timer(1, "processing")
    with pytest.raises(RuntimeError, match="has ended"):
        effects.delete_timer(1, "processing")
    with pytest.raises(RuntimeError, match="has ended"):
        effects.emit("side", 1)
    with pytest.raises(RuntimeError, match="has ended"):
        effects.clear_state()
