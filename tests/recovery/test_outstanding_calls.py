"""Coroutines that wait when a barrier comes, or when the job is killed (P20 to P22)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.runners.handle import JobHandle
from tests.recovery.world import Target, run_job, staged

Kind = str
KINDS = ["ordered", "unordered", "keyed"]


@dataclass
class Count:
    n: int = 0


@dataclass
class Order:
    number: int
    note: str = ""


class Service:
    """Calls of a coroutine; those of `slow` return only when `may_return`."""

    def __init__(self, slow: Callable[[int], bool]) -> None:
        self.calls: list[int] = []
        self.may_return = False
        self._slow = slow

    async def ask(self, number: int) -> None:
        self.calls.append(number)
        await asyncio.sleep(3600 if self._slow(number) and not self.may_return else 0.001)


def _job(
    directory: Path,
    kind: Kind,
    service: Service,
    target: Target,
    *,
    count: int = 20,
    concurrency: int = 8,
    **checkpoints: Any,
) -> sc.Job:
    async def call(order: Order) -> list[Any]:
        await service.ask(order.number)
        order.note += "!"  # a record is kept as it came, whatever its call makes of it
        return [order.number, order.note]

    async def keyed(order: Order, state: Count, ctx: sc.KeyContext[int]) -> list[list[Any]]:
        state.n += 1
        result = await call(order)
        return [[*result, state.n]]

    job = sc.Job(
        "calls",
        checkpoints=sc.Checkpoints(to=directory / "checkpoints", **checkpoints),
        channel_capacity=5,
        types=[Order],
    )
    stream: Any = job.source(sc.items(range(count)), name="numbers").map(Order)
    if kind == "keyed":
        stream = stream.key_by(lambda order: order.number).process(
            keyed, state=Count, name="call", concurrency=concurrency
        )
    else:
        stream = stream.map(call, name="call", concurrency=concurrency, ordered=kind == "ordered")
    stream.sink(staged(target), name="out")
    return job


def _numbers(target: Target) -> list[int]:
    return [record[0] for record in target.records("out")]


@pytest.mark.parametrize("kind", KINDS)
def test_restored_calls_are_made_again_and_captured_results_are_not(
    tmp_path: Path, kind: Kind
) -> None:
    """faust#606 (case 1), but with everything that was finished kept: the lowest unfinished
    record is called again after a kill, the finished ones behind it are not."""
    service, target = Service(lambda number: number == 1), Target()

    async def until_killed(handle: JobHandle) -> None:
        await asyncio.sleep(10)
        await handle.checkpoint()
        raise asyncio.CancelledError

    job = _job(tmp_path, kind, service, target, concurrency=2, count=5)
    assert run_job(job, use=until_killed) is None
    assert Counter(service.calls) == Counter(range(5))

    service.calls.clear()
    service.may_return = True
    run_job(_job(tmp_path, kind, service, target, concurrency=2, count=5))
    assert service.calls == [1]
    assert sorted(_numbers(target)) == list(range(5))
    assert all(record[1:] in (["!"], ["!", 1]) for record in target.records("out"))
    if kind == "ordered":
        assert _numbers(target) == list(range(5))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["unaligned", "aligned"])
def test_pool_full_of_slow_calls_lets_the_barrier_pass_in_no_time(
    tmp_path: Path, kind: Kind, mode: str
) -> None:
    """FLINK-39680 = flink#28304 (case 32), FLINK-7949 = flink#4924 (case 31): an aligned barrier
    waits for queued data only, so its queue is kept short here."""
    count = 20 if mode == "unaligned" else 6
    service, target = Service(lambda number: True), Target()
    passed: list[float] = []

    async def until_killed(handle: JobHandle) -> None:
        await asyncio.sleep(1)
        for _ in range(3):
            statistics = await handle.checkpoint()
            passed.append(statistics.barrier_delay)
        raise asyncio.CancelledError

    job = _job(tmp_path, kind, service, target, mode=mode, concurrency=2, count=count)
    assert run_job(job, use=until_killed) is None
    assert len(passed) == 3
    assert max(passed) < 0.05, "virtual seconds: the calls take an hour"
    assert len(service.calls) == 2

    service.calls.clear()
    service.may_return = True
    run_job(_job(tmp_path, kind, service, target, mode=mode, concurrency=2, count=count))
    assert Counter(service.calls) == Counter(range(count))
    assert sorted(_numbers(target)) == list(range(count))


def test_equal_records_in_an_unordered_step_are_all_kept_across_a_restore(tmp_path: Path) -> None:
    """hz#23271 (case 34) without watermarks."""
    calls: list[str] = []
    target = Target()
    may_return = False

    async def ask(record: str) -> list[str]:
        calls.append(record)
        await asyncio.sleep(0 if may_return or len(calls) == 2 else 3600)
        return [record]

    def job() -> sc.Job:
        made = sc.Job("equal", checkpoints=sc.Checkpoints(to=tmp_path))
        stream = made.source(sc.items(["a", "a", "b", "a"]), name="letters")
        stream.map(ask, name="ask", ordered=False, concurrency=3).sink(staged(target), name="out")
        return made

    async def until_killed(handle: JobHandle) -> None:
        await asyncio.sleep(1)
        await handle.checkpoint()
        raise asyncio.CancelledError

    assert run_job(job(), use=until_killed) is None
    assert calls == ["a", "a", "b", "a"]
    calls.clear()
    may_return = True
    run_job(job())
    assert calls == ["a", "b", "a"]
    assert Counter(map(tuple, target.records("out"))) == Counter({("a",): 3, ("b",): 1})


def test_filter_that_drops_records_still_moves_the_position(tmp_path: Path) -> None:
    """faust#208, rh-faust#625 (case 3)."""
    calls: list[int] = []
    target = Target()

    def even(number: int) -> bool:
        calls.append(number)
        return number % 2 == 0

    def job(count: int) -> sc.Job:
        made = sc.Job("filtered", checkpoints=sc.Checkpoints(to=tmp_path))
        stream = made.source(_open_end(count), name="numbers").filter(even)
        stream.map(lambda n: [n]).sink(staged(target), name="out")
        return made

    async def until_killed(handle: JobHandle) -> None:
        await asyncio.sleep(1)
        await handle.checkpoint()
        raise asyncio.CancelledError

    assert run_job(job(10), use=until_killed) is None
    assert run_job(job(14), use=until_killed) is None
    assert calls == list(range(14))
    run_job(job(14), use=until_killed)
    assert sorted(target.records("out")) == [[n] for n in range(0, 14, 2)]


@sc.source
async def _open_end(position: int = 0, count: int = 0) -> Any:
    for i in range(position, count):
        yield i, i + 1
    await asyncio.sleep(3600)
