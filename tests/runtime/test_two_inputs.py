"""Steps with two keyed inputs: one state per key, and every record back to its input (P18)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

import streamcp as sc
from streamcp.errors import StepFailed
from streamcp.testing.clock import ManualClock
from tests.runtime.engine import Engine, Gate, Outputs, settle, until


@dataclass
class Both:
    left: list[int] = field(default_factory=list)
    right: list[str] = field(default_factory=list)


@dataclass
class Text:
    """A record that might be changed."""

    value: str


def on_left(record: int, both: Both, ctx: sc.KeyContext[int]) -> list[str]:
    both.left.append(record)
    return [f"left {record}"]


def on_right(record: Text, both: Both, ctx: sc.KeyContext[int]) -> list[str]:
    both.right.append(record.value)
    return [f"right {record.value}"]


class Bench(Outputs):
    """Numbers on the left, texts on the right, connected by `number % 3`."""

    def __init__(
        self,
        left: int,
        right: int | sc.Source[Text],
        *,
        on_left: Callable[..., Any] = on_left,
        on_right: Callable[..., Any] = on_right,
        parallelism: int = 1,
        **options: Any,
    ) -> None:
        super().__init__()
        self.job = sc.Job("job", types=[Both, Text])
        numbers = self.job.source(sc.items(range(left)), name="numbers")
        if isinstance(right, int):
            right = sc.items([Text(str(i)) for i in range(right)])
        texts = self.job.source(right, name="texts")
        step = (
            numbers.key_by(lambda number: number % 3)
            .connect(texts.key_by(lambda text: int(text.value) % 3))
            .process(on_left, on_right, state=Both, name="step", parallelism=parallelism, **options)
        )
        self.collect(step, diverts=options.get("on_error") == "divert")


def expected(left: int, right: int) -> list[str]:
    return sorted([*(f"left {i}" for i in range(left)), *(f"right {i}" for i in range(right))])


async def finish(engine: Engine) -> dict[int, Both]:
    """Run to the end, and read the states from a last checkpoint."""
    async with engine.running():
        await until(lambda: all(subtask.ended for subtask in engine.subtasks))
        engine.trigger(9)
        await engine.until_acknowledged(9)
    return states(engine, 9)


def states(engine: Engine, checkpoint_id: int) -> dict[int, Both]:
    return {
        key: value
        for (subtask, kind), frames in engine.contents(checkpoint_id).items()
        if kind == "state" and subtask.startswith("step")
        for rows in frames
        for key, value, _ in rows
    }


async def check_restored(bench: Bench, engine: Engine, expect: list[str]) -> None:
    """Nothing had come out at checkpoint 1: all comes out now, in the order of each input."""
    bench.gate = None
    bench.out.clear()
    found = await finish(engine.restored(1))
    assert sorted(bench.out) == expect
    for key, both in found.items():
        assert [number % 3 for number in both.left] == [key] * len(both.left)
        assert both.left == sorted(both.left)
        assert both.right == sorted(both.right, key=int)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("sizes", [(0, 0), (5, 0), (0, 5), (40, 70)])
async def test_each_record_goes_to_the_function_of_its_input(
    parallelism: int, sizes: tuple[int, int]
) -> None:
    bench = Bench(*sizes, parallelism=parallelism)
    engine = Engine(bench.job, capacity=8)
    await finish(engine)
    assert sorted(bench.out) == expected(*sizes)


async def test_both_inputs_share_the_state_of_a_key() -> None:
    bench = Bench(3, 3)
    assert await finish(Engine(bench.job)) == {
        0: Both([0], ["0"]),
        1: Both([1], ["1"]),
        2: Both([2], ["2"]),
    }


async def in_flight(bench: Bench, engine: Engine, *, unaligned: bool = True) -> list[str]:
    """Stop everything by a sink that takes nothing, trigger, and name the captured channels."""
    bench.gate = Gate()
    async with engine.running():
        await settle(300)
        engine.trigger(1, unaligned=unaligned)
        if not unaligned:
            engine.work_list.escalate(1)
        await engine.until_acknowledged(1)
    return [
        section.name
        for subtask, section in engine.disk.written[1]
        if section.kind == "channel" and subtask.task == "step"
    ]


@pytest.mark.parametrize("unaligned", [True, False], ids=["unaligned", "escalated"])
async def test_data_only_in_the_second_input_is_captured_and_comes_back_to_it(
    unaligned: bool,
) -> None:
    """FLINK-18139: the in-flight data of every gate is captured, not only the first one's."""
    bench = Bench(0, 60)
    engine = Engine(bench.job, capacity=4)
    assert await in_flight(bench, engine, unaligned=unaligned) == [
        "texts[0] -> step[0] (texts, input 2)"
    ]
    await check_restored(bench, engine, expected(0, 60))


@pytest.mark.parametrize("parallelism", [1, 2])
async def test_data_in_both_inputs_is_captured_and_comes_back(parallelism: int) -> None:
    bench = Bench(80, 60, parallelism=parallelism)
    engine = Engine(bench.job, capacity=4)
    names = await in_flight(bench, engine)
    assert {name.partition("(")[2] for name in names} == {"numbers)", "texts, input 2)"}
    await check_restored(bench, engine, expected(80, 60))


@pytest.mark.parametrize("turns", range(0, 60, 9))
@pytest.mark.parametrize("unaligned", [True, False])
async def test_cut_at_any_moment_is_exact(turns: int, unaligned: bool) -> None:
    bench = Bench(50, 50, parallelism=2)
    engine = Engine(bench.job, capacity=5)
    async with engine.running():
        for _ in range(turns):
            await asyncio.sleep(0)
        engine.trigger(1, unaligned=unaligned)
        await engine.until_acknowledged(1)
    found = await finish(engine.restored(1))
    left = sorted(number for both in found.values() for number in both.left)
    right = sorted(int(text) for both in found.values() for text in both.right)
    assert left == right == list(range(50))


async def test_stream_connected_with_itself_keeps_its_records_on_their_input() -> None:
    out: list[str] = []
    gate = Gate()

    async def write(records: Sequence[str]) -> None:
        await gate.pass_("write")
        out.extend(records)

    def first(record: int, both: Both, ctx: sc.KeyContext[int]) -> list[str]:
        return [f"left {record}"]

    def second(record: int, both: Both, ctx: sc.KeyContext[int]) -> list[str]:
        return [f"right {record}"]

    job = sc.Job("job", types=[Both])
    keyed = job.source(sc.items(range(40)), name="numbers").key_by(lambda number: number % 3)
    keyed.connect(keyed).process(first, second, state=Both, name="step").sink(write, name="out")
    engine = Engine(job, capacity=4)
    async with engine.running():
        await settle(200)
        engine.trigger(1)
        await engine.until_acknowledged(1)
    out.clear()
    again = engine.restored(1)
    async with again.running():
        while not all(subtask.ended for subtask in again.subtasks):
            gate.open()
            await settle(1)
    assert sorted(out) == expected(40, 40)


async def test_timer_set_by_one_input_is_cleared_by_the_other() -> None:
    gate = Gate()

    @sc.source
    async def told(position: int = 0) -> AsyncIterator[tuple[Text, int]]:
        await gate.pass_("text")
        yield Text("1"), 1
        await gate.pass_("end")

    def start(record: int, both: Both, ctx: sc.KeyContext[int]) -> None:
        ctx.set_timer(after="1h")

    def stop(record: Text, both: Both, ctx: sc.KeyContext[int]) -> list[str]:
        ctx.clear_state()
        return [f"stopped {record.value}"]

    def late(timestamp: int, both: Both, ctx: sc.KeyContext[int]) -> list[str]:
        return [f"late {ctx.key}"]

    bench = Bench(3, told(), on_left=start, on_right=stop, on_timer=late)
    clock = ManualClock(tick=1e-6)
    engine = Engine(bench.job, clock=clock)
    async with engine.running():
        await until(lambda: engine["step"].meter.records_in == 3)
        gate.open("text")
        await until(lambda: bench.out == ["stopped 1"])
        clock.advance(3600)
        engine["step"].wakeup.set()
        await until(lambda: len(bench.out) == 3)
        gate.open("end")
    assert sorted(bench.out) == ["late 0", "late 2", "stopped 1"]


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_failed_records_of_both_inputs_are_diverted_and_leave_no_trace(kind: str) -> None:
    def fails(function: Callable[..., list[str]]) -> Callable[..., Any]:
        def call(record: Any, both: Both, ctx: sc.KeyContext[int]) -> list[str]:
            results = function(record, both, ctx)
            if "1" in results[0]:
                raise ValueError("not this one")
            return results

        async def call_async(record: Any, both: Both, ctx: sc.KeyContext[int]) -> list[str]:
            return call(record, both, ctx)

        return call if kind == "plain" else call_async

    bench = Bench(3, 3, on_left=fails(on_left), on_right=fails(on_right), on_error="divert")
    found = await finish(Engine(bench.job))
    assert sorted(bench.out) == ["left 0", "left 2", "right 0", "right 2"]
    failed = sorted(repr(failure.record) for failure in bench.errors)
    assert failed == ["1", "Text(value='1')"]
    assert found[1] == Both()


async def test_failure_names_the_step_and_the_record_of_the_second_input() -> None:
    def fail(record: Text, both: Both, ctx: sc.KeyContext[int]) -> None:
        raise ValueError("no such text")

    bench = Bench(0, 1, on_right=fail)
    with pytest.raises(ExceptionGroup) as caught:
        await finish(Engine(bench.job))
    (error,) = caught.value.exceptions
    assert isinstance(error, StepFailed)
    assert "step 'step'" in str(error)
    assert "record Text(value='0'): ValueError: no such text" in str(error)


async def test_steps_behind_are_fused_into_the_loops_of_both_inputs() -> None:
    out: list[tuple[str, int]] = []

    async def write(records: Sequence[tuple[str, int]]) -> None:
        out.extend(records)

    job = sc.Job("job", types=[Both, Text])
    numbers = job.source(sc.items(range(4)), name="numbers").key_by(lambda number: 0)
    texts = job.source(sc.items([Text("a"), Text("b")]), name="texts").key_by(lambda text: 0)
    both = numbers.connect(texts).process(on_left, on_right, state=Both, name="step")
    words = both.filter(lambda word: word != "left 2").map(lambda word: word[0])
    words.key_by(str).count(name="count").sink(write, name="out")
    engine = Engine(job)
    assert {subtask.id.task for subtask in engine.subtasks} == {"numbers", "texts", "step", "out"}
    await finish(engine)
    assert sorted(out) == [("l", 1), ("l", 2), ("l", 3), ("r", 1), ("r", 2)]


# ---- coroutines


def waiting(gate: Gate, function: Callable[..., list[str]]) -> Callable[..., Awaitable[list[str]]]:
    async def call(record: Any, both: Both, ctx: sc.KeyContext[int]) -> list[str]:
        results = function(record, both, ctx)
        await gate.pass_(results[0])
        return results

    return call


async def test_coroutines_of_both_inputs_work_for_one_key_in_order() -> None:
    gate = Gate()
    bench = Bench(4, 4, on_left=waiting(gate, on_left), on_right=waiting(gate, on_right))
    engine = Engine(bench.job)
    async with engine.running():
        while len(bench.out) < 8:
            keys = [int(name.split()[1]) % 3 for name in gate.waiting]
            assert len(keys) == len(set(keys)), "two calls of one key run at once"
            gate.open()
            await settle(3)
    assert sorted(bench.out) == expected(4, 4)


async def test_pending_records_of_both_inputs_come_back_to_their_functions() -> None:
    gate = Gate()
    bench = Bench(
        9, 9, on_left=waiting(gate, on_left), on_right=waiting(gate, on_right), concurrency=2
    )
    engine = Engine(bench.job, capacity=4)
    async with engine.running():
        await until(lambda: len(gate.waiting) == 2)
        await settle()
        engine.trigger(1)
        await engine.until_acknowledged(1)
    pending = engine.contents(1)[("step[0]", "pending")]
    assert {type(record) for entries in pending for _, record in entries} == {int, Text}
    again = engine.restored(1)
    async with again.running():
        while not all(subtask.ended for subtask in again.subtasks):
            gate.open()
            await settle(1)
    assert sorted(bench.out) == expected(9, 9)
