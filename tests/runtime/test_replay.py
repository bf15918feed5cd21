"""Stage by stage after the restore of a changed job (rule P41)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

import streamcp as sc
from tests.runtime.engine import Engine, Gate, settle, until

virtual_time = pytest.mark.asyncio(loop_factories=["asyncio"])


class Pipeline:
    """source -> (by key) count -> ask -> out, all of whose steps wait for the test."""

    def __init__(self) -> None:
        self.asked = Gate()
        self.written = Gate()
        self.read: list[int] = []
        self.out: list[Any] = []
        self.counted: list[int] = []

    def job(self, parallelism: int) -> sc.Job:
        @sc.source
        async def numbers(position: int = 0) -> AsyncIterator[tuple[int, int]]:
            for i in range(position, 6):
                self.read.append(i)
                yield i, i + 1

        def keyed(number: int, state: list[int], ctx: sc.KeyContext[int]) -> list[int]:
            self.counted.append(number)
            return [number]

        async def ask(number: int) -> int:
            await self.asked.pass_(number)
            return number

        async def write(records: Sequence[int]) -> None:
            await self.written.pass_("write")
            self.out += records

        job = sc.Job("job")
        (
            job.source(numbers(), name="source")
            .key_by(lambda number: number % 2)
            .process(keyed, state=list, name="keyed", parallelism=parallelism)
            .map(ask, name="ask", concurrency=1, parallelism=parallelism)
            .rebalance()
            .sink(write, name="out")
        )
        return job


async def filled(pipeline: Pipeline, **options: Any) -> Engine:
    """One record at the sink, one with a coroutine, others before each step; captured by 1."""
    engine = Engine(pipeline.job(2), **options)
    async with engine.running():
        await until(lambda: 0 in pipeline.asked.waiting)
        pipeline.asked.open(0)
        await until(lambda: "write" in pipeline.written.waiting)
        engine.trigger(1)
        await engine.until_acknowledged(1)
    return engine


@virtual_time
async def test_nothing_is_read_before_restored_data_is_worked_off() -> None:
    pipeline = Pipeline()
    engine = await filled(pipeline, capacity=2)
    read, counted = [*pipeline.read], [*pipeline.counted]
    pipeline.asked, pipeline.written = Gate(), Gate()
    again = engine.restored(1, pipeline.job(1), capacity=2)
    async with again.running():
        await until(lambda: "write" in pipeline.written.waiting)
        await settle()
        # Behind what is being written nothing moves: no call, no keyed step, no source.
        assert not pipeline.asked.waiting
        assert (pipeline.read, pipeline.counted) == (read, counted)
        assert again.replay.under_way
        pipeline.written.open()
        await until(lambda: bool(pipeline.asked.waiting))
        await settle()
        assert pipeline.read == read
        await _drain(pipeline, again)
        assert not again.replay.under_way
    assert sorted(pipeline.out) == list(range(6))


async def _drain(pipeline: Pipeline, engine: Engine) -> None:
    while not engine["out"].finished:
        pipeline.asked.open()
        pipeline.written.open()
        await asyncio.sleep(0)


@virtual_time
async def test_unchanged_job_replays_at_once() -> None:
    pipeline = Pipeline()
    engine = await filled(pipeline, capacity=2)
    pipeline.asked, pipeline.written = Gate(), Gate()
    again = engine.restored(1, pipeline.job(2), capacity=2)
    assert not again.replay.under_way
    async with again.running():
        await until(lambda: bool(pipeline.asked.waiting) and bool(pipeline.written.waiting))
        await _drain(pipeline, again)


@virtual_time
@pytest.mark.parametrize("unaligned", [True, False])
async def test_checkpoint_during_the_replay_is_exact(unaligned: bool) -> None:
    """P40: whatever is closed, its barrier passes; aligned, behind the restored data."""
    pipeline = Pipeline()
    engine = await filled(pipeline, capacity=2)
    pipeline.asked, pipeline.written = Gate(), Gate()
    again = engine.restored(1, pipeline.job(3), capacity=2)
    async with again.running():
        await until(lambda: "write" in pipeline.written.waiting)
        again.trigger(2, unaligned=unaligned)
        if unaligned:
            await again.until_acknowledged(2)
        else:
            while not again.whole(2):
                pipeline.asked.open()
                pipeline.written.open()
                await asyncio.sleep(0)
    written = [] if unaligned else [*pipeline.out]
    pipeline.out, pipeline.asked, pipeline.written = written, Gate(), Gate()
    last = again.restored(2, pipeline.job(1), capacity=2)
    async with last.running():
        await _drain(pipeline, last)
    assert set(pipeline.out) == set(range(6))


@virtual_time
async def test_stop_that_fails_during_the_replay_opens_nothing_early() -> None:
    pipeline = Pipeline()
    engine = await filled(pipeline, capacity=2)
    pipeline.asked, pipeline.written = Gate(), Gate()
    again = engine.restored(1, pipeline.job(1), capacity=2)
    async with again.running():
        await until(lambda: "write" in pipeline.written.waiting)
        again.trigger(2, stopping=True)
        again.work_list.cancel(2)
        await settle()
        assert not pipeline.asked.waiting
        assert again.replay.under_way
        await _drain(pipeline, again)
    assert sorted(pipeline.out) == list(range(6))
