"""`executor="thread"`: plain functions that run beside the event loop, with the guarantees of any
coroutine step."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import pytest

import streamcp as sc
from streamcp.errors import StepFailed
from streamcp.runners.life import first_cause
from streamcp.runtime import executing
from streamcp.runtime.threads import Threads
from streamcp.testing.clock import ManualClock
from tests.runtime.engine import Engine, Outputs, finish, settle, until

COLOUR: ContextVar[str] = ContextVar("colour of a thread", default="none")


@dataclass
class Item:
    number: int
    tags: list[str] = field(default_factory=list)


class Doors:
    """Threads wait at them until the test lets them go on."""

    def __init__(self) -> None:
        self.entered: list[int] = []
        self.left: list[int] = []
        self._open = {i: threading.Event() for i in range(50)}

    def pass_(self, number: int) -> None:
        self.entered.append(number)
        assert self._open[number].wait(30)
        self.left.append(number)

    def open(self, *numbers: int) -> None:
        for number in numbers or self._open:
            self._open[number].set()


class Bench(Outputs):
    def __init__(
        self, fn: Any, records: Sequence[Any] = range(6), verb: str = "map", **options: Any
    ) -> None:
        super().__init__()
        self.job = sc.Job("job", types=[Item])
        stream: Any = self.job.source(sc.items(records), name="source").rebalance()
        if verb == "process":
            stream = stream.key_by(lambda record: record % 2)
        step = getattr(stream, verb)(fn, name="step", executor="thread", **options)
        if verb != "for_each":
            self.collect(step, diverts=options.get("on_error") == "divert")


def in_a_thread(record: int) -> bool:
    return threading.current_thread() is not threading.main_thread()


@pytest.mark.parametrize(("verb", "expected"), [("map", [True] * 6), ("filter", list(range(6)))])
async def test_plain_functions_run_in_threads(verb: str, expected: list[Any]) -> None:
    bench = Bench(in_a_thread, verb=verb)
    await finish(Engine(bench.job))
    assert bench.out == expected


async def test_generators_are_worked_off_in_the_thread() -> None:
    def many(record: int) -> Iterator[tuple[int, bool]]:
        yield record, in_a_thread(record)
        yield record, in_a_thread(record)

    bench = Bench(many, verb="flat_map")
    await finish(Engine(bench.job))
    assert bench.out == [(i, True) for i in range(6) for _ in range(2)]


async def test_for_each_and_services_work_as_without_threads() -> None:
    seen: list[Any] = []

    def note(record: int, service: str) -> None:
        seen.append((record, service, in_a_thread(record)))

    def opener() -> Any:
        raise AssertionError("opened by the runner")

    bench = Bench(note, verb="for_each", uses=opener)
    await finish(Engine(bench.job, services={opener: "db"}))
    assert sorted(seen) == [(i, "db", True) for i in range(6)]


async def test_keyed_functions_and_timers_run_in_threads_on_a_copy_of_the_state() -> None:
    def collect(record: int, state: list[int], ctx: sc.KeyContext[int]) -> list[Any]:
        state.append(record)
        if record >= 4:
            ctx.set_timer(ctx.timestamp)
        return []

    def fire(timestamp: int, state: list[int], ctx: sc.KeyContext[int]) -> list[Any]:
        result = (ctx.key, list(state), in_a_thread(0))
        ctx.clear_state()
        return [result]

    @sc.source
    async def stays(position: int = 0) -> Any:
        for i in range(position, 6):
            yield i, i + 1
        await asyncio.Event().wait()

    job = sc.Job("job")
    out: list[Any] = []
    keyed = job.source(stays(), name="in").key_by(lambda record: record % 2)
    step = keyed.process(collect, state=list, on_timer=fire, executor="thread", name="step")
    step.for_each(out.append)
    async with Engine(job).running():
        await until(lambda: len(out) == 2)
    assert sorted(out) == [(0, [0, 2, 4], True), (1, [1, 3, 5], True)]


async def test_event_loop_goes_on_and_no_more_threads_run_than_calls_at_once() -> None:
    doors = Doors()
    bench = Bench(doors.pass_, concurrency=2)
    async with Engine(bench.job).running():
        await until(lambda: len(doors.entered) == 2)
        await settle()
        assert doors.entered == [0, 1]
        doors.open()
        await until(lambda: len(bench.out) == 6)


async def test_barrier_passes_and_outstanding_functions_are_called_again_after_a_restore() -> None:
    doors = Doors()

    def change(item: Item) -> Item:
        item.tags.append("changed")
        doors.pass_(item.number)
        return item

    bench = Bench(change, [Item(i) for i in range(4)], concurrency=2)
    engine = Engine(bench.job)
    async with engine.running():
        await until(lambda: len(doors.entered) == 2)
        engine.trigger(1, unaligned=False)
        await engine.until_whole(1)
        doors.open()
    [pending] = engine.contents(1)["step[0]", "pending"]
    assert [tuple(entry) for entry in pending] == [(0, Item(i)) for i in range(4)]

    bench.out.clear()
    doors.entered.clear()
    await finish(engine.restored(1))
    assert bench.out == [Item(i, ["changed"]) for i in range(4)]
    assert sorted(doors.entered) == [0, 1, 2, 3]


# A loop in virtual time stands still while a thread works; here the test's clock says what has
# taken too long.
@pytest.mark.asyncio(loop_factories=["fastest"])
@pytest.mark.parametrize("retry", [None, sc.Retry(attempts=2, backoff="0s")])
async def test_call_that_took_too_long_holds_its_slot_until_it_returns(retry: Any) -> None:
    doors = Doors()
    calls: list[int] = []

    def work(record: int) -> int:
        calls.append(record)
        if record == 0:
            doors.pass_(0)
        return record

    bench = Bench(
        work,
        range(3),
        concurrency=1,
        timeout="100ms",
        retry=retry,
        on_error="divert",
        ordered=False,
    )
    engine = Engine(bench.job)
    assert isinstance(engine.clock, ManualClock)
    async with engine.running():
        await until(lambda: doors.entered == [0])
        engine.clock.advance(1)
        await until(lambda: not engine["step"]._executing._running)  # its call was given up
        # The failure is told at once, unless the call is to be made again.
        await until(lambda: bool(bench.errors) is (retry is None))
        assert calls == [0], "another call took the slot of one that goes on"
        doors.open(0)
        await until(lambda: len(bench.out) + len(bench.errors) == 3)
    if retry is None:
        assert (calls, bench.out) == ([0, 1, 2], [1, 2])
        assert bench.errors[0].error == "TimeoutError: no result within 0.1 s"
    else:
        assert (calls, sorted(bench.out)) == ([0, 0, 1, 2], [0, 1, 2])


async def test_job_that_ends_waits_for_functions_that_return_in_time() -> None:
    doors = Doors()
    bench = Bench(doors.pass_, range(2), concurrency=2)
    async with Engine(bench.job).running():
        await until(lambda: len(doors.entered) == 2)
        asyncio.get_running_loop().call_soon(doors.open)
    assert sorted(doors.left) == [0, 1]


async def test_function_that_does_not_return_is_left_behind_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executing, "CLOSING_TIME", 0.0)
    doors = Doors()
    own = Threads(1, "step")
    call = own.coroutine_of(doors.pass_)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_await(call(0)))
        await until(lambda: doors.entered == [0])
        task.cancel()
    await own.close()
    assert "step 'step': 1 of its functions have not returned" in caplog.text
    doors.open(0)


async def _await(one: Any) -> Any:
    return await one


async def test_errors_of_functions_are_those_of_the_step() -> None:
    def fails(record: int) -> int:
        match record:
            case 0:
                raise StopIteration
            case 1:
                raise asyncio.CancelledError
            case 2:
                raise ValueError("no")
        return record

    bench = Bench(fails, range(4), on_error="divert")
    await finish(Engine(bench.job))
    assert bench.out == [3]
    assert [failure.error for failure in bench.errors] == [
        "RuntimeError: it raised StopIteration",
        "RuntimeError: it raised CancelledError, although nobody cancelled it",
        "ValueError: no",
    ]


async def test_function_that_returns_something_to_be_awaited_is_refused() -> None:
    async def slow(record: int) -> int:
        return record

    bench = Bench(lambda record: slow(record))
    with pytest.raises(ExceptionGroup) as caught:
        await finish(Engine(bench.job))
    cause = first_cause(caught.value)
    assert isinstance(cause, StepFailed)
    assert "async def" in str(cause)


async def test_functions_see_the_variables_of_the_start_and_have_no_call_id() -> None:
    seen: list[str] = []

    def look(record: int) -> str:
        seen.append(COLOUR.get())
        COLOUR.set("another")
        with pytest.raises(RuntimeError, match="coroutine function"):
            sc.call_id()
        return "ok"

    COLOUR.set("red")
    bench = Bench(look, concurrency=2)
    await finish(Engine(bench.job))
    assert (bench.out, set(seen)) == (["ok"] * 6, {"red"})
