"""The checkpoints that a run has kept tell where their time went, subtask by subtask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

import streamcp as sc
from streamcp.checkpoint.snapshot import SubtaskStatistics
from streamcp.compare.breakdown import Breakdown, read_breakdowns, typical


@sc.source
async def one_then_nothing(position: int = 0) -> AsyncIterator[tuple[int, int]]:
    if position == 0:
        yield 1, 1
    await asyncio.Event().wait()


async def take(records: Sequence[int]) -> None:
    pass


async def test_breakdown_has_the_subtasks_of_a_checkpoint_in_the_order_of_the_steps(
    tmp_path: Path,
) -> None:
    job = sc.Job("numbers", checkpoints=sc.Checkpoints(to=tmp_path / "checkpoints"))
    numbers = job.source(one_then_nothing(), name="z-numbers").rebalance()
    numbers.sink(take, name="a-sink", parallelism=2)
    async with job.start() as running:
        taken = await running.checkpoint()

    (found,) = [
        one
        for one in await asyncio.to_thread(read_breakdowns, tmp_path)
        if one.checkpoint_id == taken.checkpoint_id
    ]

    assert list(found.subtasks) == ["z-numbers[0]", "a-sink[0]", "a-sink[1]"]
    assert found.barrier_delay == pytest.approx(taken.barrier_delay)
    assert found.as_dict()["subtasks"]["a-sink[0]"]["sync"] >= 0.0


async def test_checkpoints_of_a_job_that_has_ended_are_left_out(tmp_path: Path) -> None:
    job = sc.Job("numbers", checkpoints=sc.Checkpoints(to=tmp_path / "checkpoints"))
    job.source(sc.items([1]), name="one").sink(take, name="out")
    async with job.start() as running:
        await running.wait_finished()

    assert await asyncio.to_thread(read_breakdowns, tmp_path) == ()


def test_run_without_checkpoints_has_none(tmp_path: Path) -> None:
    assert read_breakdowns(tmp_path) == ()


def test_typical_checkpoint_is_the_nearest_to_the_median() -> None:
    found = [
        Breakdown(
            number, {"a[0]": SubtaskStatistics(barrier_delay=delay), "b[0]": SubtaskStatistics()}
        )
        for number, delay in enumerate((0.1, 0.5, 0.9))
    ]

    assert typical(found, 0.6) == found[1]
    assert typical([], 0.6) is None
