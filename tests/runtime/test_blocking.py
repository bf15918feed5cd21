"""A step that holds the event loop is named, with the call that does it; nothing else is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextvars import ContextVar, copy_context
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamcp as sc
from streamcp.observability.events import EventLoopHeld
from streamcp.runtime.blocking import BLOCKING, SILENCE, Silence, Watched
from streamcp.testing.clock import ManualClock
from tests.runtime.engine import Engine, settle, until

COLOUR: ContextVar[str] = ContextVar("colour", default="none")


# ---- when it is told


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 9)), min_size=1))
def test_every_hold_is_told_once_unless_it_falls_into_the_last_silence(
    holds: list[tuple[int, int]],
) -> None:
    silence, now, told = Silence(), 0, list[tuple[int, int, float]]()
    for pause, seconds in holds:
        now += pause
        answer = silence.notice(now, seconds)
        if answer is not None:
            told.append((now, *answer))
    assert told[0][1:] == (1, holds[0][1])
    assert all(b - a >= SILENCE for (a, *_), (b, *_) in pairwise(told))
    counted = sum(times for _, times, _ in told)
    assert counted <= len(holds)
    assert all(seconds in [one for _, one in holds] for *_, seconds in told)
    # Nothing is counted twice, and what comes after the silence is told with what fell into it.
    later = silence.notice(now + SILENCE, 0.1)
    assert later is not None
    assert counted + later[0] == len(holds) + 1


# ---- the call that is watched


def watched(call: Callable[[], Any], clock: ManualClock, held: list[float]) -> Watched[Any]:
    return Watched(call, copy_context(), clock, held.append)


async def test_watched_call_gives_what_the_call_gives() -> None:
    async def call() -> int:
        await asyncio.sleep(0)
        return 7

    async def fails() -> int:
        await asyncio.sleep(0)
        raise ValueError("no")

    held: list[float] = []
    assert await watched(call, ManualClock(), held) == 7
    with pytest.raises(ValueError, match="no"):
        await watched(fails, ManualClock(), held)
    with pytest.raises(TypeError, match="await"):
        await watched(lambda: None, ManualClock(), held)
    assert held == []


async def test_watched_call_is_told_of_each_long_step_and_of_no_wait() -> None:
    clock, held = ManualClock(), list[float]()

    async def call() -> None:
        clock.advance(BLOCKING)
        await asyncio.sleep(0)
        clock.advance(BLOCKING / 2)
        await asyncio.sleep(0)
        clock.advance(3.0)

    task_clock_moves = asyncio.get_running_loop().call_soon(clock.advance, 50.0)
    await watched(call, clock, held)
    task_clock_moves.cancel()
    assert held == [BLOCKING, 3.0]


async def test_watched_call_keeps_its_variables_to_itself_and_sees_the_cancellation() -> None:
    seen: list[str] = []

    async def call() -> None:
        COLOUR.set("red")
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)  # cleaning up may wait
            seen.append(COLOUR.get())

    async with asyncio.TaskGroup() as group:
        task = group.create_task(_await(watched(call, ManualClock(), [])))
        await settle(3)
        task.cancel()
    assert task.cancelled()
    assert seen == ["red"]
    assert COLOUR.get() == "none"


async def _await(one: Any) -> Any:
    return await one


# ---- steps


class Job:
    """A job whose functions take the time that the test's clock is moved by."""

    def __init__(self) -> None:
        self.clock = ManualClock(tick=1e-6)
        self.job = sc.Job("job")
        self.out: list[Any] = []
        self.engine: Engine | None = None

    def takes(self, seconds: float, *slow: Any) -> Callable[[Any], Any]:
        """A function that takes `seconds`, for `slow` records only if there are some."""

        def work(record: Any) -> Any:
            if not slow or record in slow:
                self.clock.advance(seconds)
            return record

        return work

    async def write(self, records: Sequence[Any]) -> None:
        self.out += records

    async def run(self, *, count: int) -> list[EventLoopHeld]:
        """Run to the end; `count` records come out."""
        self.engine = Engine(self.job, clock=self.clock)
        async with self.engine.running():
            await until(lambda: len(self.out) == count)
        return [event for event in self.engine.events if isinstance(event, EventLoopHeld)]


async def test_one_slow_function_among_fused_ones_is_named_with_its_record() -> None:
    bench = Job()
    stream = bench.job.source(sc.items(range(500)), name="in")
    stream = stream.map(bench.takes(0.00001), name="before")
    stream = stream.map(bench.takes(0.25, 3, 300, 310), name="slow")
    stream.filter(lambda record: record >= 0, name="behind").sink(bench.write, name="out")
    [event] = await bench.run(count=500)
    assert (event.step, event.times) == ("slow", 1)
    assert 0.25 <= event.seconds < 0.26
    assert event.doing == "at record 300"
    assert "test_blocking.py" in event.place
    assert "coroutine" in event.remedy


async def test_slices_that_were_too_long_for_many_records_name_nobody() -> None:
    bench = Job()
    stream = bench.job.source(sc.items(range(300)), name="in")
    stream.map(bench.takes(0.004), name="even").sink(bench.write, name="out")
    assert await bench.run(count=300) == []


async def test_step_is_told_of_again_only_after_the_silence() -> None:
    bench = Job()
    stream = bench.job.source(sc.items(range(360)), name="in")
    stream.map(bench.takes(0.5), name="slow").sink(bench.write, name="out")
    first, second, *more = await bench.run(count=360)
    assert first.times == 1
    assert second.at_ms - first.at_ms >= SILENCE * 1000
    assert 110 < second.times < 130
    assert len(more) == 1


async def test_warning_is_logged_as_well(caplog: pytest.LogCaptureFixture) -> None:
    bench = Job()
    stream = bench.job.source(sc.items(range(200)), name="in")
    stream.map(bench.takes(0.2), name="slow").sink(bench.write, name="out")
    with caplog.at_level(logging.WARNING, logger="streamcp.runtime.blocking"):
        [event] = await bench.run(count=200)
    assert [record.getMessage() for record in caplog.records] == [event.told()]
    assert event.told().startswith(f"step 'slow' ({event.place}) held the event loop for 0.20 s")


@pytest.mark.parametrize("kind", ["branch", "flat_map", "process", "scan", "reduce"])
async def test_every_kind_of_plain_function_is_measured(kind: str) -> None:
    bench = Job()
    slow = bench.takes(0.2)
    stream: Any = bench.job.source(sc.items(range(200)), name="in")

    def generate(record: int) -> Iterator[int]:
        yield slow(record)

    match kind:
        case "branch":
            yes, no = stream.branch(lambda record: slow(record) >= 0, name="step")
            stream = yes.union(no)
        case "flat_map":
            stream = stream.flat_map(generate, name="step")
        case "process":
            stream = stream.key_by(abs).process(
                lambda record, state, context: generate(record), state=list, name="step"
            )
        case "scan":
            stream = stream.key_by(abs).scan(int, lambda _, record: slow(record), name="step")
        case _:
            stream = stream.key_by(lambda _: 0)
            stream = stream.reduce(lambda _, record: slow(record), name="step")
    stream.sink(bench.write, name="out")
    [event] = await bench.run(count=200)
    assert event.step == "step"
    assert event.doing.startswith("at record ")


@sc.source
async def open_end(position: int = 0) -> AsyncIterator[tuple[int, int]]:
    for i in range(position, 9):
        yield i, i + 1
    await asyncio.Event().wait()  # timers that are left when the input ends never fire


@pytest.mark.parametrize("parallelism", [1, 2])  # in the source's task, and in one of its own
async def test_timer_that_holds_the_loop_is_named(parallelism: int) -> None:
    bench = Job()

    def start(record: int, state: list[int], context: sc.KeyContext[int]) -> None:
        context.set_timer(context.timestamp + record)

    def fire(timestamp: int, state: list[int], context: sc.KeyContext[int]) -> list[int]:
        bench.clock.advance(0.3)
        return [timestamp]

    keyed = bench.job.source(open_end(), name="in").key_by(lambda record: record % 2)
    timed = keyed.process(start, state=list, on_timer=fire, name="timed", parallelism=parallelism)
    timed.rebalance().sink(bench.write, name="out")
    [event] = await bench.run(count=9)
    assert event.step == "timed"
    assert event.doing.startswith("at timer ")


@pytest.mark.parametrize("timeout", [None, "1h"])
async def test_coroutine_that_blocks_is_named_and_one_that_waits_is_not(
    timeout: str | None,
) -> None:
    bench = Job()

    async def waits(record: int) -> int:
        await asyncio.sleep(0)
        bench.clock.advance(0.01)
        await asyncio.sleep(0)
        return record

    async def blocks(record: int) -> int:
        await asyncio.sleep(0)
        bench.clock.advance(0.4)
        return record

    stream = bench.job.source(sc.items(range(40)), name="in")
    stream = stream.map(waits, name="waits", concurrency=20, timeout=timeout)
    stream.map(blocks, name="blocks", concurrency=2, timeout=timeout).sink(bench.write, name="out")
    [event] = await bench.run(count=40)
    assert event.step == "blocks"
    assert event.doing == "between two awaits"
    assert "asyncio.to_thread" in event.remedy


async def test_sink_that_blocks_is_named() -> None:
    bench = Job()

    async def write(records: Sequence[Any]) -> None:
        bench.clock.advance(0.3)
        await bench.write(records)

    bench.job.source(sc.items(range(10)), name="in").sink(write, name="out")
    [event] = await bench.run(count=10)
    assert event.step == "out"


async def test_plain_sink_that_blocks_is_named() -> None:
    bench = Job()

    class Slow:
        def write(self, records: Sequence[Any], /) -> None:
            bench.clock.advance(0.3)
            bench.out += records

    bench.job.source(sc.items(range(10)), name="in").sink(Slow(), name="out")
    [event] = await bench.run(count=10)
    assert event.step == "out"
    assert event.doing == "in one write of 10 records"


async def test_source_that_blocks_is_named() -> None:
    bench = Job()

    @sc.source
    async def pages(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        for i in range(position, 5):
            bench.clock.advance(0.2)
            yield i, i + 1

    bench.job.source(pages(), name="in").sink(bench.write, name="out")
    [event] = await bench.run(count=5)
    assert event.step == "in"
    assert event.doing == "while it made 5 records"


# ---- context variables


class NeverEqual:
    """As of numpy: what `==` gives is no answer."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")

    __hash__ = None  # type: ignore[assignment]


OBJECT: ContextVar[NeverEqual] = ContextVar("object")


async def test_variables_whose_values_cannot_be_compared_are_kept_apart_too() -> None:
    """A call that sets one fails no other call."""
    OBJECT.set(given := NeverEqual())
    bench, seen = Job(), list[bool]()

    async def call(record: int) -> int:
        seen.append(OBJECT.get() is given)
        OBJECT.set(NeverEqual())
        return record

    stream = bench.job.source(sc.items(range(30)), name="in")
    stream.map(call, name="call", concurrency=2).sink(bench.write, name="out")
    await bench.run(count=30)
    assert seen == [True] * 30


@pytest.mark.parametrize("options", [{}, {"timeout": "1h"}, {"ordered": False}])
async def test_calls_see_the_variables_of_the_start_and_none_of_another_call(
    options: dict[str, Any],
) -> None:
    seen: list[tuple[str, str]] = []

    async def call(record: int) -> int:
        before = COLOUR.get()
        COLOUR.set(f"of {record}")
        for _ in range(record % 3):
            await asyncio.sleep(0)
        seen.append((before, COLOUR.get()))
        return record

    COLOUR.set("the caller's")
    bench = Job()
    stream = bench.job.source(sc.items(range(60)), name="in")
    stream.map(call, name="call", concurrency=4, **options).sink(bench.write, name="out")
    await bench.run(count=60)
    assert {before for before, _ in seen} == {"the caller's"}
    assert {after for _, after in seen} == {f"of {record}" for record in range(60)}
