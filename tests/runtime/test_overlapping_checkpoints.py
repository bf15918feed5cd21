"""Several aligned checkpoints at a time through one running graph (rules P5, P10)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

import streamcp as sc
from tests.runtime.engine import Engine, Gate, settle, until
from tests.runtime.test_subtask import run_graph


@pytest.mark.parametrize("turns", range(7, 60, 7))
async def test_checkpoints_that_overlap_are_each_exact(turns: int) -> None:
    graph, engine = run_graph()
    gate = graph.gate
    assert gate is not None
    async with engine.running():
        await settle(turns)
        for checkpoint_id in (1, 2, 3):
            engine.trigger(checkpoint_id, unaligned=False)
            await settle(5)
        assert not engine.whole(1)
        while not engine.whole(3):
            gate.open()
            await asyncio.sleep(0)
        assert list(engine.upward.acknowledged) == [1, 2, 3]
    for checkpoint_id in (1, 2, 3):
        counted = _counted(engine, checkpoint_id)
        assert counted == _read(engine, checkpoint_id)
        assert "channel" not in {kind for _, kind in engine.contents(checkpoint_id)}
    assert _counted(engine, 1) <= _counted(engine, 2) <= _counted(engine, 3)


def _counted(engine: Engine, checkpoint_id: int) -> int:
    return sum(
        int(value.seen)
        for (_, kind), frames in engine.contents(checkpoint_id).items()
        if kind == "state"
        for rows in frames
        for _, value, _ in rows
    )


def _read(engine: Engine, checkpoint_id: int) -> int:
    contents = engine.contents(checkpoint_id).items()
    positions = [frames for (_, kind), frames in contents if kind == "position"]
    rests = [frames for (_, kind), frames in contents if kind == "rest"]
    read = sum(int(position) for frames in positions for row in frames for _, position, _ in row)
    return read - sum(len(records) for frames in rests for records in frames)


@pytest.mark.parametrize("cancelled", [1, 2])
@pytest.mark.parametrize("turns", range(0, 40, 7))
async def test_cancelling_one_of_two_leaves_the_other_whole(turns: int, cancelled: int) -> None:
    graph, engine = run_graph()
    gate = graph.gate
    assert gate is not None
    other = 3 - cancelled
    async with engine.running():
        await settle(10)
        engine.trigger(1, unaligned=False)
        engine.trigger(2, unaligned=False)
        await settle(turns)
        engine.work_list.cancel(cancelled)
        while not engine.whole(other):
            gate.open()
            await asyncio.sleep(0)
        assert not engine.whole(cancelled)
        before = _counted(engine, other)
        assert before == _read(engine, other)
        for subtask in engine.subtasks:
            assert not subtask.gate.blocked


async def test_failing_older_checkpoint_does_not_let_a_stop_go_on() -> None:
    """Held still is who has cut for the stop, until the outcome of that very checkpoint."""
    graph, engine = run_graph()
    gate = graph.gate
    assert gate is not None
    async with engine.running():
        await until(lambda: bool(gate.waiting))
        engine.trigger(1, unaligned=False)
        engine.trigger(2, unaligned=False, stopping=True)
        engine.work_list.cancel(1)
        assert engine["first"].held
        assert engine["second"].held
        while not engine.whole(2):
            gate.open()
            await asyncio.sleep(0)
        engine.work_list.cancel(2)
        assert not any(subtask.held for subtask in engine.subtasks)
        graph.gate = None
        gate.open()
        await until(lambda: all(subtask.ended for subtask in engine.subtasks))
    assert sorted(graph.out) == graph.expected


async def test_finished_results_are_in_every_overlapping_snapshot_as_they_were() -> None:
    """Two snapshots hold the same unemitted results; whoever gets these changes them in place."""
    out: list[Any] = []
    gate = Gate()

    @sc.source
    async def numbers(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        for i in range(position, 3):
            yield i, i + 1

    async def boxed(number: int) -> list[int]:
        if number == 0:
            await gate.pass_("first")
        return [number]

    def spoil(box: list[int]) -> list[int]:
        box.append(-1)
        return box

    async def write(records: Sequence[Any]) -> None:
        out.extend(records)

    job = sc.Job("job")
    stream = job.source(numbers(), name="numbers").map(boxed, name="boxed", concurrency=4)
    stream.map(spoil).sink(write, name="out")
    engine = Engine(job)
    freeze, may_freeze = engine.snapshots.run, asyncio.Event()

    async def freeze_late() -> None:
        await may_freeze.wait()
        await freeze()

    engine.snapshots.run = freeze_late  # type: ignore[method-assign]
    async with engine.running():
        await until(lambda: bool(gate.waiting))
        await settle()
        engine.trigger(1, unaligned=False)
        engine.trigger(2, unaligned=False)
        gate.open()
        await until(lambda: len(out) == 3)
        may_freeze.set()
        await engine.until_acknowledged(1)
        await engine.until_acknowledged(2)
    for checkpoint_id in (1, 2):
        (entries,) = engine.contents(checkpoint_id)["boxed[0]", "pending"]
        assert [content for status, content in entries if status == 1] == [[1], [2]]
