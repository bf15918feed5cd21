"""Coroutine steps without state: pending records, results that wait, restore (P20 to P22)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

import streamcp as sc
from streamcp.errors import StepFailed
from streamcp.runners.life import first_cause
from tests.runtime.engine import Engine, Gate, finish, settle, until

virtual_time = pytest.mark.asyncio(loop_factories=["asyncio"])


@dataclass
class Item:
    number: int
    tags: list[str] = field(default_factory=list)


class Bench:
    """A job with one coroutine step: `map` unless told otherwise."""

    def __init__(
        self, records: Sequence[Any], fn: Any, *, verb: str = "map", **options: Any
    ) -> None:
        self.out: list[Any] = []
        self.errors: list[Any] = []
        self.out_gate: Gate | None = None

        async def write(records: Sequence[Any]) -> None:
            if self.out_gate is not None:
                await self.out_gate.pass_("write")
            self.out.extend(records)

        async def write_errors(records: Sequence[Any]) -> None:
            self.errors.extend(records)

        self.job = sc.Job("job", types=[Item])
        stream = self.job.source(sc.items(records), name="source")
        step: Any = getattr(stream, verb)(fn, name="step", **options)
        if verb != "for_each":
            step.sink(write, name="out")
        if options.get("on_error") == "divert":
            step.errors.sink(write_errors, name="errors")


async def test_ordered_results_come_in_the_order_of_their_records() -> None:
    async def slow_first(record: int) -> int:
        for _ in range(10 - record % 10):
            await asyncio.sleep(0)
        return record * 2

    bench = Bench(range(100), slow_first, concurrency=7)
    await finish(Engine(bench.job))
    assert bench.out == [record * 2 for record in range(100)]


async def test_unordered_results_come_as_they_are_ready() -> None:
    gate = Gate()

    async def wait(record: int) -> int:
        await gate.pass_(record)
        return record

    bench = Bench(range(3), wait, concurrency=3, ordered=False)
    async with Engine(bench.job).running():
        await until(lambda: len(gate.waiting) == 3)
        for record in (2, 0, 1):
            gate.open(record)
            await until(lambda n=record: n in bench.out)
    assert bench.out == [2, 0, 1]


@pytest.mark.parametrize(
    ("verb", "expected"),
    [("map", [0, 1, 2, 3]), ("filter", [1, 3]), ("flat_map", [1, 2, 2, 3, 3, 3])],
)
async def test_each_verb_does_with_results_what_it_says(verb: str, expected: list[int]) -> None:
    async def fn(record: int) -> Any:
        await asyncio.sleep(0)
        return {"map": record, "filter": record % 2, "flat_map": [record] * record}[verb]

    bench = Bench(range(4), fn, verb=verb)
    await finish(Engine(bench.job))
    assert bench.out == expected


async def test_flat_map_takes_async_generators_and_refuses_text() -> None:
    async def pair(record: int) -> Any:
        yield record
        await asyncio.sleep(0)
        yield -record

    bench = Bench([1, 2], pair, verb="flat_map")
    await finish(Engine(bench.job))
    assert bench.out == [1, -1, 2, -2]

    async def text(record: int) -> Any:
        return "abc"

    with pytest.RaisesGroup(StepFailed, flatten_subgroups=True) as caught:
        await finish(Engine(Bench([1], text, verb="flat_map").job))
    assert "would fall into pieces" in str(first_cause(caught.value))


async def test_for_each_calls_every_record_and_emits_nothing() -> None:
    seen: list[int] = []

    async def note(record: int) -> None:
        await asyncio.sleep(0)
        seen.append(record)

    await finish(Engine(Bench(range(20), note, verb="for_each").job))
    assert sorted(seen) == list(range(20))


async def test_pending_list_of_a_slow_step_is_refilled_in_shares() -> None:
    """One record at a time would leave a snapshot hundreds of pieces to copy."""

    async def wait_a_turn(record: int) -> int:
        await asyncio.sleep(0)
        return record

    bench = Bench(range(2000), wait_a_turn, concurrency=1)
    engine = Engine(bench.job)
    admitted: list[int] = []
    admit = engine["step"].admit_records

    def counting(records: list[Any]) -> None:
        admitted.append(len(records))
        admit(records)

    engine["step"].admit_records = counting
    await finish(engine)
    assert (sum(admitted), len(bench.out)) == (2000, 2000)
    assert len(admitted) < 2000 / 20


async def test_pending_list_is_bounded() -> None:
    gate = Gate()

    async def wait(record: int) -> int:
        await gate.pass_(record)
        return record

    bench = Bench(range(100), wait, concurrency=2)
    engine = Engine(bench.job, capacity=4)
    async with engine.running():
        await settle()
        assert len(gate.waiting) == 2
        gate.open(1)
        await settle()
        # Results that wait for their turn count as well.
        assert engine["step"]._pending.count <= 8
        while len(bench.out) < 100:
            gate.open()
            await settle(5)
    assert bench.out == list(range(100))


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("unaligned", [True, False])
async def test_restore_calls_pending_records_again_and_finished_ones_never(
    ordered: bool, unaligned: bool
) -> None:
    gate, calls = Gate(), []

    async def wait(record: int) -> int:
        calls.append(record)
        await gate.pass_(record)
        return record

    bench = Bench(range(6), wait, concurrency=3, ordered=ordered)
    engine = Engine(bench.job)
    async with engine.running():
        await until(lambda: len(gate.waiting) == 3)
        engine["step"].output.channels[0].occupied += 10_000  # no room: results stay pending
        gate.open(1)
        gate.open(2)
        await until(lambda: 4 in gate.waiting)
        engine.trigger(1, unaligned=unaligned)
        await engine.until_acknowledged(1)
        assert bench.out == []
    assert sorted(calls) == [0, 1, 2, 3, 4]
    calls.clear()
    again = engine.restored(1)
    async with again.running():
        await until(lambda: 0 in gate.waiting)
        while len(bench.out) < 6:
            gate.open()
            await settle(5)
    assert sorted(calls) == [0, 3, 4, 5]
    assert sorted(bench.out) == list(range(6))
    if ordered:
        assert bench.out == list(range(6))


async def test_mutable_records_are_restored_and_retried_as_they_came() -> None:
    gate = Gate()
    seen: list[list[str]] = []

    async def touch(item: Item) -> int:
        seen.append(list(item.tags))
        item.tags.append("touched")
        if len(seen) == 1:
            raise ValueError("once")
        await gate.pass_(item.number)
        return item.number

    bench = Bench([Item(1, ["a"])], touch, retry=sc.Retry(attempts=2, backoff="0s"))
    engine = Engine(bench.job)
    async with engine.running():
        await until(lambda: 1 in gate.waiting)
        engine.trigger(1)
        await engine.until_acknowledged(1)
    assert engine.contents(1)[("step[0]", "pending")] == [[(0, Item(1, ["a"]))]]
    again = engine.restored(1)
    async with again.running():
        await until(lambda: 1 in gate.waiting)
        gate.open()
        await until(lambda: bench.out == [1])
    assert seen == [["a"], ["a"], ["a"]]


async def test_results_that_leave_a_snapshot_not_yet_written_are_written_as_they_were() -> None:
    gate = Gate()

    async def wrap(record: int) -> Item:
        await gate.pass_(record)
        return Item(record)

    out: list[Any] = []

    def spoil(item: Item) -> Item:
        item.tags.append("spoiled")
        return item

    async def write(records: Sequence[Any]) -> None:
        out.extend(records)

    job = sc.Job("job", types=[Item])
    (
        job.source(sc.items([1, 2]), name="source")
        .map(wrap, name="step")
        .map(spoil, name="spoil")
        .sink(write, name="out")
    )
    engine = Engine(job)
    async with engine.running():
        await until(lambda: len(gate.waiting) == 2)
        engine["step"].output.channels[0].occupied += 10_000
        gate.open()
        await settle()
        engine.trigger(1)
        # The snapshot is taken, and not written: now the results leave the pending list.
        engine["step"].output.channels[0].occupied -= 10_000
        engine["step"].refill()
        await engine.until_acknowledged(1)
    assert engine.contents(1)[("step[0]", "pending")] == [[(1, Item(1)), (1, Item(2))]]


async def test_diverted_failures_keep_their_turn_across_a_restore() -> None:
    gate = Gate()

    async def fail_odd(record: int) -> int:
        await gate.pass_(record)
        if record % 2:
            raise ValueError(f"odd {record}")
        return record

    bench = Bench(range(4), fail_odd, concurrency=4, on_error="divert")
    engine = Engine(bench.job)
    async with engine.running():
        await until(lambda: len(gate.waiting) == 4)
        gate.open(1)
        await settle()
        engine.trigger(1)
        await engine.until_acknowledged(1)
    again = engine.restored(1)
    async with again.running():
        while len(bench.out) + len(bench.errors) < 4:
            gate.open()
            await settle(5)
    assert bench.out == [0, 2]
    assert [(one.record, one.error) for one in bench.errors] == [
        (1, "ValueError: odd 1"),
        (3, "ValueError: odd 3"),
    ]


async def test_dropped_failures_are_counted() -> None:
    async def fail_odd(record: int) -> int:
        if record % 2:
            raise ValueError
        return record

    bench = Bench(range(5), fail_odd, on_error="drop")
    engine = Engine(bench.job)
    await finish(engine)
    assert bench.out == [0, 2, 4]
    assert engine["step"]._step_meter.dropped == 2


async def test_failure_names_step_place_and_record() -> None:
    async def fail(record: int) -> int:
        raise ValueError("no such country")

    with pytest.RaisesGroup(StepFailed, flatten_subgroups=True) as caught:
        await finish(Engine(Bench([7], fail).job))
    message = str(first_cause(caught.value))
    assert "step 'step'" in message
    assert "record 7" in message
    assert "ValueError: no such country" in message


async def test_truth_of_a_filter_result_that_cannot_be_told_is_a_failure_of_the_record() -> None:
    class Doubtful:
        def __bool__(self) -> bool:
            raise ValueError("ambiguous")

    async def doubt(record: int) -> Any:
        return Doubtful() if record == 1 else True

    bench = Bench([0, 1, 2], doubt, verb="filter", on_error="drop")
    await finish(Engine(bench.job))
    assert bench.out == [0, 2]


async def test_held_step_starts_no_call_emits_nothing_and_goes_on_when_released() -> None:
    gate = Gate()

    async def wait(record: int) -> int:
        await gate.pass_(record)
        return record

    bench = Bench(range(3), wait, concurrency=1)
    engine = Engine(bench.job)
    async with engine.running():
        await until(lambda: 0 in gate.waiting)
        engine.trigger(1, stopping=True)
        gate.open(0)
        await settle()
        assert (gate.waiting, bench.out) == ({}, [])
        engine.work_list.cancel(1)
        for record in (1, 2):
            await until(lambda n=record: n in gate.waiting)
            gate.open(record)
        await until(lambda: bench.out == [0, 1, 2])


async def test_cut_at_any_turn_gives_every_result_once() -> None:
    async def hop(record: int) -> int:
        for _ in range(record % 3):
            await asyncio.sleep(0)
        return record

    for turns in range(0, 60, 2):
        bench = Bench(range(40), hop, concurrency=3, ordered=turns % 4 == 0)
        engine = Engine(bench.job, capacity=5)
        async with engine.running():
            await settle(turns)
            engine.trigger(1)
            before = list(bench.out)
            await engine.until_acknowledged(1)
        bench.out = before
        await finish(engine.restored(1))
        assert sorted(bench.out) == list(range(40)), f"cut after {turns} turns"
