"""Timers at the end of a job and across restores."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.runners.handle import JobHandle
from tests.recovery.world import Target, copy_directory, run_job, staged


@dataclass
class Fired:
    count: int = 0


def _set(record: int, state: Fired, ctx: sc.KeyContext[int]) -> None:
    for i in range(3):
        ctx.set_timer(record * 3 + i)  # long past: due at once


async def _set_later(record: int, state: Fired, ctx: sc.KeyContext[int]) -> None:
    await asyncio.sleep(0)
    _set(record, state, ctx)


def _fire(timestamp: int, state: Fired, ctx: sc.KeyContext[int]) -> list[int]:
    state.count += 1
    return [timestamp]


def _mod(record: int) -> int:
    return record % 3


async def _same(record: int) -> int:
    return record


@pytest.mark.parametrize("kind", ["plain", "coroutine", "fused behind a coroutine"])
def test_timers_that_are_due_when_the_input_ends_fire_although_there_is_no_room(kind: str) -> None:
    written: list[int] = []

    async def slow(records: Sequence[int]) -> None:
        await asyncio.sleep(1)
        written.extend(records)

    job = sc.Job("timers", channel_capacity=1)
    stream: Any = job.source(sc.items(range(30)), name="numbers")
    if kind == "plain":
        stream = stream.key_by(_mod).process(
            _set, state=Fired, on_timer=_fire, name="timed", parallelism=2
        )
    elif kind == "coroutine":
        stream = stream.key_by(_mod).process(
            _set_later, state=Fired, on_timer=_fire, name="timed", parallelism=2
        )
    else:
        stream = stream.map(_same, name="same").key_by(_mod)
        stream = stream.process(_set, state=Fired, on_timer=_fire, name="timed")
    stream.rebalance().sink(slow, name="out")
    run_job(job)
    assert sorted(written) == list(range(90))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_timer_that_comes_due_while_the_job_is_down_fires_once_after_the_restore(
    tmp_path: Path, kind: str, seed: int
) -> None:
    """P43; bytewax#138 (case 6) without windows."""
    target = Target()

    @sc.source
    async def open_end(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        for i in range(position, 6):
            yield i, i + 1
        await asyncio.sleep(3600 if target.committed else 7200)

    def later(record: int, state: Fired, ctx: sc.KeyContext[int]) -> None:
        ctx.set_timer(1_700_000_000_000 + 60_000 + record)

    async def later_still(record: int, state: Fired, ctx: sc.KeyContext[int]) -> None:
        later(record, state, ctx)

    def job() -> sc.Job:
        made = sc.Job("timers", checkpoints=sc.Checkpoints(to=tmp_path / "checkpoints"))
        keyed = made.source(open_end(), name="numbers").key_by(_mod)
        fn: Any = later if kind == "plain" else later_still
        timed = keyed.process(fn, state=Fired, on_timer=_fire, name="timed", parallelism=2)
        timed.map(lambda n: [n], parallelism=2).rebalance().sink(staged(target), name="out")
        return made

    async def until_killed(handle: JobHandle) -> None:
        await asyncio.sleep(1)
        await handle.checkpoint()
        raise asyncio.CancelledError

    assert run_job(job(), use=until_killed, seed=seed) is None
    assert target.records("out") == []

    async def until_due(handle: JobHandle) -> None:
        await asyncio.sleep(100)
        await handle.checkpoint()
        await handle.checkpoint()
        raise asyncio.CancelledError

    assert run_job(job(), use=until_due, seed=seed) is None
    due = sorted(row[0] - 1_700_000_060_000 for row in target.records("out"))
    assert due == list(range(6))


def test_due_timers_whose_coroutines_are_outstanding_fire_once_after_a_kill(
    tmp_path: Path,
) -> None:
    """A due timer is in the state and among what is pending: after the restore it is one timer."""
    fired: Counter[int] = Counter()
    target = Target()
    may_return = False

    async def on_timer(timestamp: int, state: Fired, ctx: sc.KeyContext[int]) -> list[list[int]]:
        fired[timestamp] += 1
        await asyncio.sleep(0 if may_return else 3600)
        return [[timestamp, state.count]]

    def job() -> sc.Job:
        made = sc.Job("timers", checkpoints=sc.Checkpoints(to=tmp_path / "checkpoints"))
        keyed = made.source(sc.items(range(6)), name="numbers").key_by(lambda n: n % 3)
        timed: Any = keyed.process(
            _set_later, state=Fired, on_timer=on_timer, name="timed", concurrency=2
        )
        timed.sink(staged(target), name="out")
        return made

    async def until_killed(handle: JobHandle) -> None:
        await asyncio.sleep(1)
        await handle.checkpoint()
        raise asyncio.CancelledError

    assert run_job(job(), use=until_killed) is None
    copy_directory(tmp_path / "checkpoints", tmp_path / "kept")
    assert sum(fired.values()) == 2  # as many as may run at once
    fired.clear()
    may_return = True
    run_job(job())
    assert fired == Counter(range(18))
    assert sorted(row[0] for row in target.records("out")) == list(range(18))


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_timers_of_a_step_that_joins_the_task_of_an_ended_source_still_fire(
    tmp_path: Path, kind: str
) -> None:
    """The source had come to the end of event time, the keyed step behind it had not: fused, they
    begin with what the slower of both had reached (P42)."""
    written: set[int] = set()
    is_stuck = True

    async def slow(records: Sequence[int]) -> None:
        await asyncio.sleep(3600 if is_stuck else 0)
        written.update(records)

    def job(parallelism: int) -> sc.Job:
        to = sc.Checkpoints(to=tmp_path / "checkpoints", mode="unaligned")
        made = sc.Job("timers", checkpoints=to, channel_capacity=1)
        times = sc.Watermarks[int](lambda n: 1_700_000_000_000 + n)
        numbers = made.source(sc.items(range(30)), name="numbers", watermarks=times)
        fn: Any = _set if kind == "plain" else _set_later
        timed: Any = numbers.key_by(_mod).process(
            fn, state=Fired, on_timer=_fire, name="timed", parallelism=parallelism
        )
        timed.rebalance().sink(slow, name="out")
        return made

    async def until_killed(handle: JobHandle) -> None:
        await asyncio.sleep(1)
        await handle.checkpoint()
        raise asyncio.CancelledError

    assert run_job(job(2), use=until_killed) is None
    is_stuck = False
    run_job(job(1))
    assert written == set(range(90))
