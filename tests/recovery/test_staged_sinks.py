"""Staged sinks whose target is slow, away, or waits for a checkpoint."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.runners.handle import JobHandle
from tests.recovery.world import StagedTargetSink, Target, run_job, staged


def _row(number: int) -> list[int]:
    return [number]


def _job(directory: Path, sink: Any, mode: Any, count: int = 200) -> sc.Job:
    job = sc.Job(
        "staged",
        checkpoints=sc.Checkpoints(to=directory, every="1s", mode=mode, tolerable_failures=3),
        channel_capacity=2,
    )
    stream = job.source(sc.items(range(count)), name="numbers").rebalance()
    stream.map(_row, name="rows", parallelism=2).rebalance().sink(sink, name="out")
    return job


@pytest.mark.parametrize("mode", ["aligned", "unaligned", "adaptive"])
def test_staged_sink_that_is_full_goes_on_to_the_barrier_so_that_the_checkpoint_completes(
    tmp_path: Path, mode: str
) -> None:
    # Ten channels of two records are all that it holds: the job needs many checkpoints.
    target = Target()
    result = run_job(_job(tmp_path, staged(target), mode))
    assert result is not None
    assert result.failed_checkpoints == 0
    assert Counter(map(tuple, target.records("out"))) == Counter((n,) for n in range(200))


class NeverReturns(StagedTargetSink):
    """The target has gone away in the middle of a write."""

    async def write(self, records: Sequence[Any], transaction: sc.Transaction, /) -> None:
        await asyncio.get_running_loop().create_future()


def test_staged_sink_whose_write_never_returns_lets_checkpoints_complete(tmp_path: Path) -> None:
    target = Target()
    completed: list[int] = []

    async def use(handle: JobHandle) -> None:
        for _ in range(5):
            statistics = await handle.checkpoint()
            completed.append(statistics.checkpoint_id)
        raise asyncio.CancelledError

    gone = _job(tmp_path, lambda: NeverReturns(target, lambda: None), "unaligned")
    assert run_job(gone, use=use) is None
    assert len(completed) == 5
    assert target.records("out") == []
    run_job(_job(tmp_path, staged(target), "unaligned"))
    assert Counter(map(tuple, target.records("out"))) == Counter((n,) for n in range(200))


@pytest.mark.parametrize("mode", ["unaligned", "adaptive"])
def test_write_that_never_returns_at_least_once_lets_checkpoints_complete(
    tmp_path: Path, mode: str
) -> None:
    written: list[list[int]] = []

    async def never(records: Sequence[list[int]]) -> None:
        await asyncio.get_running_loop().create_future()

    async def write(records: Sequence[list[int]]) -> None:
        written.extend(records)

    completed: list[int] = []

    async def use(handle: JobHandle) -> None:
        for _ in range(5):
            statistics = await handle.checkpoint()
            completed.append(statistics.checkpoint_id)
        raise asyncio.CancelledError

    assert run_job(_job(tmp_path, never, mode), use=use) is None
    assert len(completed) == 5
    run_job(_job(tmp_path, write, mode))
    assert Counter(map(tuple, written)) == Counter((n,) for n in range(200))
