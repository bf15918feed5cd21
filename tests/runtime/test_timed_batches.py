"""`batch` with event time: no record becomes late by waiting in a list, and each keeps its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamcp as sc
from streamcp.channel.channel import Channel
from streamcp.elements import MAX_TIMESTAMP, Element, IdleStatus, Watermark
from streamcp.errors import RestoreRefused
from streamcp.testing.running import run_job
from tests.runtime.engine import Engine, cut, finish, moments, settle, until

BOUND = 20


@dataclass(frozen=True)
class Click:
    number: int
    ts: int


@dataclass
class Seen:
    clicks: list[tuple[Click, int, bool]] = field(default_factory=list)


@sc.source(splits=lambda: range(2))
async def clicks(
    split: int, position: int = 0, *, times: Sequence[Sequence[int]]
) -> AsyncIterator[tuple[Click, int]]:
    for number, at in list(enumerate(times[split]))[position:]:
        await asyncio.sleep(0)
        yield Click(number * 2 + split, at), number + 1


def out_of_order(count: int) -> list[list[int]]:
    """Never by more than the bound."""
    return [[n * 7 + (n * 17 + split * 5) % BOUND for n in range(count)] for split in range(2)]


def note(click: Click, seen: Seen, ctx: sc.KeyContext[int]) -> list[Any]:
    seen.clicks.append((click, ctx.timestamp, ctx.timestamp <= ctx.watermark))
    return []


async def call(batch: list[Click]) -> list[Click]:
    await asyncio.sleep(0)
    return [*batch]


SHAPES = ("plain", "coroutine", "keyed before", "lists of lists")


def job_of(
    times: Sequence[Sequence[int]], shape: str = "plain", *, size: int = 4, p: int = 1
) -> sc.Job:
    job = sc.Job("job", types=[Click, Seen], parallelism=p)
    marks = sc.Watermarks[Click](lambda click: click.ts, out_of_orderness=f"{BOUND}ms")
    read: sc.Stream[Click] = job.source(clicks(times=times), name="in", watermarks=marks)
    if shape == "keyed before":
        read = read.key_by(lambda click: click.number % 3).deduplicate(name="once", within="1ms")
        read = read.union(read.filter(lambda click: False))
    batches = read.batch(size, "1h", name="batch")
    if shape == "lists of lists":
        batches = batches.batch(2, "1h", name="two").unbatch()
    if shape == "coroutine":
        batches = batches.map(call, name="call", concurrency=3)
    apart = batches.unbatch()
    apart.key_by(lambda click: click.number % 5).process(note, state=Seen, name="note").sink(
        sc.discard(), name="end"
    )
    return job


def noted(engine: Engine) -> list[tuple[Click, int, bool]]:
    return [
        one
        for subtask in engine.subtasks
        for run in subtask.chain._keyed.values()
        if run.state.step == "note"
        for entry in run.state.entries.values()
        for one in entry.value.clicks
    ]


def check(engine: Engine, times: Sequence[Sequence[int]], shape: str) -> None:
    seen = noted(engine)
    expected = [Click(n * 2 + split, at) for split in range(2) for n, at in enumerate(times[split])]
    if shape != "keyed before":
        assert sorted((c.number, c.ts) for c, _, _ in seen) == sorted(
            (c.number, c.ts) for c in expected
        )
    assert [click for click, at, _ in seen if at != click.ts] == []
    assert [click for click, _, late in seen if late] == []


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [1, 3, 50])
async def test_records_keep_their_timestamps_and_none_becomes_late(shape: str, size: int) -> None:
    times = out_of_order(60)
    engine = Engine(job_of(times, shape, size=size, p=2), capacity=6)
    await finish(engine)
    check(engine, times, shape)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("unaligned", [True, False], ids=["unaligned", "aligned"])
async def test_cut_at_any_moment_and_restored_none_becomes_late(
    shape: str, unaligned: bool
) -> None:
    times = out_of_order(40)
    for turns in moments(4, 130, 41):
        engine = Engine(job_of(times, shape, p=2), capacity=6)
        await cut(engine, turns, unaligned=unaligned)
        for then in (2, 1, 3):
            again = engine.restored(1, job_of(times, shape, p=then), capacity=6)
            await finish(again)
            check(again, times, shape)


TIMES = st.lists(st.lists(st.integers(0, 200), max_size=12), min_size=2, max_size=2)


@settings(max_examples=30, deadline=None)
@given(TIMES, st.integers(1, 6))
def test_whoever_was_on_time_is_on_time_behind_it(times: list[list[int]], size: int) -> None:
    def late(batched: bool) -> list[Click]:
        found: list[Click] = []

        def look(click: Click, seen: Seen, ctx: sc.KeyContext[int]) -> None:
            assert ctx.timestamp == click.ts
            if ctx.timestamp <= ctx.watermark:
                found.append(click)

        job = sc.Job("job")
        marks = sc.Watermarks[Click](lambda click: click.ts, out_of_orderness="5ms")
        read: sc.Stream[Click] = job.source(clicks(times=times), name="in", watermarks=marks)
        if batched:
            read = read.batch(size, "10s", name="batch").unbatch()
        read.key_by(lambda click: 0).process(look, state=Seen, name="look").sink(sc.discard())
        run_job(job)
        return found

    assert set(late(batched=True)) <= set(late(batched=False))


# ---- one subtask


def sent(job: sc.Job) -> list[Any]:
    """What the subtask `batch` sends while the job runs: lists of records, and marks."""
    elements: list[Any] = []

    class Noting(Channel):
        def push(self, element: Element) -> None:
            if self.id.sender.task == "batch" and isinstance(element, Watermark | IdleStatus):
                elements.append(element)
            super().push(element)

        def push_records(self, values: list[Any]) -> None:
            if self.id.sender.task == "batch":
                elements.append([value for value, _ in values])
            super().push_records(values)

    run_job(job, channels=Noting)
    return elements


@sc.source
async def in_turn(position: int = 0, *, times: Sequence[int]) -> AsyncIterator[tuple[int, int]]:
    for number, at in list(enumerate(times))[position:]:
        yield at, number + 1
        await settle(30)


def simple(times: Sequence[int], **options: Any) -> sc.Job:
    job = sc.Job("job")
    marks = sc.Watermarks[int](lambda at: at, **options)
    batches = job.source(in_turn(times=times), name="in", watermarks=marks).batch(
        2, "1h", name="batch"
    )
    batches.rebalance().sink(sc.discard(), name="out")
    return job


def test_watermark_stops_before_an_open_list_and_goes_on_behind_it() -> None:
    assert sent(simple([10, 20, 30, 40, 50])) == [
        Watermark(9),
        [[10, 20]],
        Watermark(19),
        Watermark(29),
        [[30, 40]],
        Watermark(39),
        Watermark(49),
        [[50]],
        Watermark(MAX_TIMESTAMP),
    ]


def test_record_that_is_late_already_holds_nothing_back() -> None:
    assert sent(simple([10, 50, 5, 60])) == [
        Watermark(9),
        [[10, 50]],
        Watermark(49),
        [[5, 60]],
        Watermark(59),
        Watermark(MAX_TIMESTAMP),
    ]


def test_nobody_is_idle_while_a_list_is_open() -> None:
    @sc.source
    async def pausing(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        yield 100, 1
        await asyncio.sleep(60)
        yield 200, 2

    job = sc.Job("job")
    marks = sc.Watermarks[int](lambda at: at, idle_after="1s")
    batches = job.source(pausing(), name="in", watermarks=marks).batch(9, "20s", name="batch")
    batches.rebalance().sink(sc.discard(), name="out")
    told = sent(job)
    assert told.index([[100]]) < told.index(IdleStatus(True))
    assert told[-2:] == [[[200]], Watermark(MAX_TIMESTAMP)]


def test_timers_behind_the_last_list_fire() -> None:
    found: list[Any] = []
    job = sc.Job("job")
    marks = sc.Watermarks[int](lambda at: at)
    read = job.source(in_turn(times=[10, 20, 30]), name="in", watermarks=marks)
    apart = read.batch(2, "1h", name="batch").unbatch()
    counted = apart.key_by(lambda at: 0).window(sc.Tumbling("1s"), name="window").count()
    counted.for_each(lambda result: found.append(result.value))
    run_job(job)
    assert found == [3]


async def test_list_has_the_latest_timestamp_of_its_records() -> None:
    seen: list[tuple[list[int], int]] = []

    def look(batch: list[int], state: Seen, ctx: sc.KeyContext[int]) -> None:
        seen.append((batch, ctx.timestamp))

    job = sc.Job("job", types=[Seen])
    marks = sc.Watermarks[int](lambda at: at, out_of_orderness="1s")
    read = job.source(sc.items([3, 9, 4, 1]), name="in", watermarks=marks)
    read.batch(3, "1h", name="batch").key_by(lambda batch: 0).process(
        look, state=Seen, name="look"
    ).sink(sc.discard(), name="out")
    await finish(Engine(job))
    assert seen == [([3, 9, 4], 9), ([1], 1)]


async def test_list_of_another_length_gives_all_its_timestamp() -> None:
    seen: list[tuple[int, int]] = []

    def look(at: int, state: Seen, ctx: sc.KeyContext[int]) -> None:
        seen.append((at, ctx.timestamp))

    job = sc.Job("job", types=[Seen])
    marks = sc.Watermarks[int](lambda at: at, out_of_orderness="1s")
    read = job.source(sc.items([3, 9, 4]), name="in", watermarks=marks)
    without = read.batch(3, "1h", name="batch").map(lambda batch: [n for n in batch if n != 4])
    without.unbatch().key_by(lambda at: 0).process(look, state=Seen, name="look").sink(
        sc.discard(), name="out"
    )
    await finish(Engine(job))
    assert seen == [(3, 9), (9, 9)]


async def test_open_list_cannot_be_restored_into_a_job_without_event_time() -> None:
    engine = Engine(simple([10, 20, 30]))
    async with engine.running():
        await until(lambda: engine["batch"].chain.has_open_batches)
        engine.trigger(1)
        await engine.until_acknowledged(1)
    job = sc.Job("job")
    batches = (
        job.source(in_turn(times=[10, 20, 30]), name="in").rebalance().batch(2, "1h", name="batch")
    )
    batches.rebalance().sink(sc.discard(), name="out")
    with pytest.raises(RestoreRefused, match="have timestamps"):
        engine.restored(1, job)


def test_loop_with_lists_and_event_time_ends() -> None:
    out: list[int] = []

    def body(stream: sc.Stream[int]) -> tuple[sc.Stream[int], sc.Stream[int]]:
        once = stream.batch(100, "1s", name="batch").unbatch().map(lambda n: n - 1)
        return once.branch(lambda n: n > 0)

    job = sc.Job("job")
    marks = sc.Watermarks[int](lambda at: at)
    read = job.source(sc.items([1, 2, 3]), name="in", watermarks=marks)
    read.iterate(body, name="loop").for_each(out.append)
    run_job(job)
    assert out == [0, 0, 0]
