"""Keys side by side, one key in order; every call a small transaction (P20 to P22)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

import streamcp as sc
from streamcp.errors import JobFailed, StepFailed
from streamcp.testing.clock import ManualClock
from streamcp.testing.loop import VirtualTimeLoop
from tests.runtime.engine import Engine, Gate, finish, settle, until

virtual_time = pytest.mark.asyncio(loop_factories=["asyncio"])


@dataclass
class Seen:
    count: int = 0
    names: list[str] = field(default_factory=list)


@dataclass
class Event:
    key: str
    name: str
    tags: list[str] = field(default_factory=list)


def key_of(event: Event) -> str:
    return event.key


class Bench:
    """A job with one keyed coroutine step; `fn` and `on_timer` are the test's."""

    def __init__(
        self, events: Sequence[Event], fn: Any, on_timer: Any = None, **options: Any
    ) -> None:
        self.out: list[Any] = []
        self.errors: list[Any] = []

        async def write(records: Sequence[Any]) -> None:
            self.out.extend(records)

        async def write_errors(records: Sequence[Any]) -> None:
            self.errors.extend(records)

        self.job = sc.Job("job", types=[Event, Seen])
        step = (
            self.job.source(sc.items(events), name="source")
            .key_by(key_of)
            .process(fn, state=Seen, on_timer=on_timer, name="step", **options)
        )
        step.sink(write, name="out")
        if options.get("on_error") == "divert":
            step.errors.sink(write_errors, name="errors")

    def engine(self, **options: Any) -> Engine:
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualTimeLoop):
            options.setdefault("clock", loop.clock)
        return Engine(self.job, **options)


def state_of(engine: Engine, checkpoint_id: int) -> dict[str, tuple[Any, tuple[int, ...]]]:
    return {
        key: (value, timers)
        for rows in engine.contents(checkpoint_id)[("step[0]", "state")]
        for key, value, timers in rows
    }


async def test_keys_run_side_by_side_and_one_key_in_order() -> None:
    gate = Gate()

    async def fn(event: Event, seen: Seen, ctx: sc.KeyContext[str]) -> list[str]:
        await gate.pass_(event.name)
        seen.count += 1
        return [f"{event.name}:{seen.count}"]

    events = [Event("a", "a1"), Event("a", "a2"), Event("b", "b1"), Event("a", "a3")]
    bench = Bench(events, fn, concurrency=4)
    async with bench.engine().running():
        await until(lambda: len(gate.waiting) == 2)
        assert set(gate.waiting) == {"a1", "b1"}
        gate.open("a1")
        await until(lambda: "a2" in gate.waiting)
        gate.open("b1")
        gate.open("a2")
        await until(lambda: "a3" in gate.waiting)
        gate.open()
        await until(lambda: len(bench.out) == 4)
    assert sorted(bench.out) == ["a1:1", "a2:2", "a3:3", "b1:1"]
    assert [one for one in bench.out if one.startswith("a")] == ["a1:1", "a2:2", "a3:3"]


@pytest.mark.parametrize("unaligned", [True, False])
async def test_snapshot_in_the_middle_of_a_call_holds_state_before_it_and_the_record(
    unaligned: bool,
) -> None:
    gate = Gate()

    async def fn(event: Event, seen: Seen, ctx: sc.KeyContext[str]) -> list[str]:
        seen.names.append(event.name)
        event.tags.append("touched")
        await gate.pass_(event.name)
        return [f"{event.name}:{','.join(seen.names)}"]

    bench = Bench([Event("a", "a1"), Event("a", "a2")], fn, concurrency=2)
    engine = bench.engine()
    async with engine.running():
        await until(lambda: "a1" in gate.waiting)
        gate.open("a1")
        await until(lambda: "a2" in gate.waiting)
        engine.trigger(1, unaligned=unaligned)
        await engine.until_acknowledged(1)
        assert state_of(engine, 1) == {"a": (Seen(0, ["a1"]), ())}
    bench.out.clear()
    again = engine.restored(1, clock=engine.clock)
    async with again.running():
        await until(lambda: "a2" in gate.waiting)
        gate.open()
        await until(lambda: all(subtask.ended for subtask in again.subtasks))
    assert bench.out[-1] == "a2:a1,a2"


async def test_mutable_record_is_restored_as_it_came_in_a_new_process() -> None:
    gate = Gate()
    got: list[list[str]] = []

    async def fn(event: Event, seen: Seen, ctx: sc.KeyContext[str]) -> list[str]:
        got.append(list(event.tags))
        event.tags.append("touched")
        await gate.pass_(event.name)
        return [event.name]

    bench = Bench([Event("a", "a1", ["fresh"])], fn)
    engine = bench.engine()
    # Another class was met first here, so that class numbers differ in the new process.
    engine.serializer.dumps(Seen(), step="step")
    async with engine.running():
        await until(lambda: "a1" in gate.waiting)
        engine.trigger(1)
        await engine.until_acknowledged(1)
    again = engine.restored(1, clock=engine.clock)
    async with again.running():
        await until(lambda: "a1" in gate.waiting)
        gate.open()
        await until(lambda: all(subtask.ended for subtask in again.subtasks))
    assert got == [["fresh"], ["fresh"]]
    assert bench.out == ["a1"]


async def test_failed_call_leaves_no_trace_and_retry_gets_everything_as_it_came() -> None:
    tries: list[tuple[int, list[str]]] = []

    async def fn(event: Event, seen: Seen, ctx: sc.KeyContext[str]) -> list[str]:
        tries.append((seen.count, list(event.tags)))
        seen.count += 1
        event.tags.append("touched")
        if len(tries) < 3:
            raise ValueError
        return [f"{event.name}:{seen.count}"]

    bench = Bench([Event("a", "a1", ["x"])], fn, retry=sc.Retry(attempts=3, backoff="0s"))
    await finish(bench.engine())
    assert tries == [(0, ["x"])] * 3
    assert bench.out == ["a1:1"]


async def test_diverted_failure_holds_the_record_as_it_came() -> None:
    async def fn(event: Event, seen: Seen, ctx: sc.KeyContext[str]) -> list[str]:
        seen.count += 1
        event.tags.append("touched")
        if event.name == "bad":
            raise ValueError("bad one")
        return [f"{event.name}:{seen.count}"]

    events = [Event("a", "a1"), Event("a", "bad", ["x"]), Event("a", "a2")]
    bench = Bench(events, fn, on_error="divert")
    await finish(bench.engine())
    assert sorted(bench.out) == ["a1:1", "a2:2"]
    (failure,) = bench.errors
    assert (failure.record, failure.error, failure.attempts) == (
        Event("a", "bad", ["x"]),
        "ValueError: bad one",
        1,
    )


async def test_emitted_state_object_fails_the_job() -> None:
    async def fn(event: Event, seen: Seen, ctx: sc.KeyContext[str]) -> list[Seen]:
        return [seen]

    with pytest.RaisesGroup(StepFailed, flatten_subgroups=True):
        await finish(Bench([Event("a", "a1")], fn).engine())


async def test_context_of_an_ended_call_refuses_further_use() -> None:
    contexts: list[sc.KeyContext[str]] = []

    async def fn(event: Event, seen: Seen, ctx: sc.KeyContext[str]) -> None:
        contexts.append(ctx)

    await finish(Bench([Event("a", "a1")], fn).engine())
    with pytest.raises(RuntimeError, match="has ended"):
        contexts[0].clear_state()


# ---- timers


def timed(log: list[Any], gate: Gate | None = None, *, after: str = "1s") -> tuple[Any, Any]:
    """A function that sets a timer, and one that logs it (and waits at `gate`)."""

    async def fn(event: Event, seen: Seen, ctx: sc.KeyContext[str]) -> None:
        seen.count += 1
        seen.names.append(event.name)
        if event.name == "clear":
            ctx.clear_state()
        elif event.name.startswith("set"):
            ctx.set_timer(after=after)

    async def on_timer(timestamp: int, seen: Seen, ctx: sc.KeyContext[str]) -> list[str]:
        log.append((ctx.key, list(seen.names)))
        if gate is not None:
            await gate.pass_(ctx.key)
        seen.names.append("timer")
        return [f"timer of {ctx.key}"]

    return fn, on_timer


def endless(events: Sequence[Event], gate: Gate) -> Any:
    """A source of events that stays open until `gate` lets "end" pass; "later" comes first."""

    @sc.source
    async def source(position: int = 0) -> Any:
        for number in range(position, len(events)):
            if events[number].name == "later":
                await gate.pass_("later")
            yield events[number], number + 1
        await gate.pass_("end")

    return source()


def timed_bench(
    events: Sequence[Event], fn: Any, on_timer: Any, gate: Gate, **options: Any
) -> Bench:
    bench = Bench([], fn, on_timer, **options)
    out, job = bench.out, sc.Job("job", types=[Event, Seen])

    async def write(records: Sequence[Any]) -> None:
        out.extend(records)

    (
        job.source(endless(events, gate), name="source")
        .key_by(key_of)
        .process(fn, state=Seen, on_timer=on_timer, name="step", **options)
        .sink(write, name="out")
    )
    bench.job = job
    return bench


@virtual_time
async def test_timer_fires_without_any_further_input() -> None:
    log: list[Any] = []
    source = Gate()
    fn, on_timer = timed(log)
    bench = timed_bench([Event("a", "set")], fn, on_timer, source)
    async with bench.engine().running():
        await asyncio.sleep(2)
        assert bench.out == ["timer of a"]
        assert log == [("a", ["set"])]


@virtual_time
async def test_state_cleared_before_a_due_timer_is_called_cancels_it() -> None:
    log: list[Any] = []
    source, calls = Gate(), Gate()
    fn, on_timer = timed(log)

    async def slow(event: Event, seen: Seen, ctx: sc.KeyContext[str]) -> None:
        if event.name == "clear":
            await calls.pass_("clear")
        await fn(event, seen, ctx)

    bench = timed_bench([Event("a", "set"), Event("a", "clear")], slow, on_timer, source)
    async with bench.engine().running():
        await asyncio.sleep(5)  # the timer is due, behind the call that will clear the state
        calls.open()
        await asyncio.sleep(5)
    assert log == []
    assert bench.out == []


@virtual_time
async def test_pending_timer_fires_once_after_restore() -> None:
    log: list[Any] = []
    source, calls = Gate(), Gate()
    fn, on_timer = timed(log, calls)
    bench = timed_bench([Event("a", "set")], fn, on_timer, source)
    engine = bench.engine()
    async with engine.running():
        await asyncio.sleep(5)
        assert "a" in calls.waiting
        engine.trigger(1)
        await engine.until_acknowledged(1)
    log.clear()
    again = engine.restored(1, clock=engine.clock)
    async with again.running():
        await asyncio.sleep(5)
        calls.open("a")
        await asyncio.sleep(5)
        assert calls.waiting == {}
        again.trigger(2)
        await again.until_acknowledged(2)
    assert log == [("a", ["set"])]
    assert bench.out == ["timer of a"]
    assert state_of(again, 2) == {"a": (Seen(1, ["set", "timer"]), ())}


@virtual_time
async def test_record_behind_a_pending_timer_stays_behind_it_across_restore() -> None:
    order: list[str] = []
    source, calls = Gate(), Gate()

    async def fn(event: Event, seen: Seen, ctx: sc.KeyContext[str]) -> None:
        order.append(event.name)
        if event.name == "set":
            ctx.set_timer(after="1s")

    async def on_timer(timestamp: int, seen: Seen, ctx: sc.KeyContext[str]) -> None:
        order.append("timer")
        await calls.pass_("timer")

    bench = timed_bench([Event("a", "set"), Event("a", "later")], fn, on_timer, source)
    engine = bench.engine()
    async with engine.running():
        await asyncio.sleep(5)
        source.open("later")
        await asyncio.sleep(5)
        engine.trigger(1)
        await engine.until_acknowledged(1)
    order.clear()
    async with engine.restored(1, clock=engine.clock).running():
        await asyncio.sleep(5)
        assert order == ["timer"]
        calls.open()
        await asyncio.sleep(5)
    assert order == ["timer", "later"]


@virtual_time
async def test_many_due_timers_do_not_exceed_the_bound_of_the_pending_list() -> None:
    log: list[Any] = []
    source, calls = Gate(), Gate()
    fn, on_timer = timed(log, calls)
    events = [Event(f"k{number}", "set") for number in range(50)]
    bench = timed_bench(events, fn, on_timer, source, concurrency=2)
    engine = bench.engine(capacity=4)
    async with engine.running():
        await asyncio.sleep(5)
        assert len(engine["step"]._slots) <= 8
        while len(bench.out) < 50:
            calls.open()
            await asyncio.sleep(1)
    assert sorted(bench.out) == sorted(f"timer of k{number}" for number in range(50))


@virtual_time
async def test_timers_due_while_the_job_was_down_fire_once_after_restore() -> None:
    log: list[Any] = []
    source = Gate()
    fn, on_timer = timed(log, after="1h")
    bench = timed_bench([Event("a", "set"), Event("b", "set")], fn, on_timer, source)
    engine = bench.engine()
    async with engine.running():
        await asyncio.sleep(5)
        engine.trigger(1)
        await engine.until_acknowledged(1)
    assert log == []
    clock = engine.clock
    assert isinstance(clock, ManualClock)
    clock.advance(7200)
    async with engine.restored(1, clock=clock).running():
        await asyncio.sleep(5)
    assert sorted(bench.out) == ["timer of a", "timer of b"]


# ---- stop


async def test_held_step_starts_no_call_and_goes_on_when_the_stop_failed() -> None:
    gate = Gate()

    async def fn(event: Event, seen: Seen, ctx: sc.KeyContext[str]) -> list[str]:
        await gate.pass_(event.name)
        return [event.name]

    bench = Bench([Event("a", "a1"), Event("a", "a2")], fn)
    engine = bench.engine()
    async with engine.running():
        await until(lambda: "a1" in gate.waiting)
        engine.trigger(1, stopping=True)
        gate.open("a1")
        await settle()
        assert gate.waiting == {}
        assert bench.out == []
        engine.work_list.cancel(1)
        await until(lambda: "a2" in gate.waiting)
        gate.open()
        await until(lambda: bench.out == ["a1", "a2"])


async def test_failing_key_function_names_the_step_before_it_and_the_record() -> None:
    async def never(record: int, state: Seen, context: sc.KeyContext[int]) -> list[int]:
        return []

    job = sc.Job("keys")
    keyed = job.source(sc.items([0]), name="numbers").key_by(lambda record: 1 // record)
    keyed.process(never, state=Seen, name="keyed").sink(sc.discard(), name="nowhere")
    with pytest.raises(JobFailed, match=r"step 'numbers'.*record 0.*ZeroDivisionError"):
        await job.run_async()
