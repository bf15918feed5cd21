"""A task of synchronous steps: slices, backpressure, and the hand (P12, P15)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import streamcp as sc
from tests.runtime.engine import Engine, Gate, settle, until


def two_tasks(records: int, gate: Gate | None = None) -> tuple[sc.Job, list[Any]]:
    """A source, a step behind an exchange, and a sink."""
    out: list[Any] = []

    async def write(records: Sequence[Any]) -> None:
        if gate is not None:
            await gate.pass_("write")
        out.extend(records)

    job = sc.Job("job")
    (
        job.source(sc.items(range(records)), name="source")
        .rebalance()
        .map(lambda record: record + 1, name="step")
        .sink(write, name="out")
    )
    return job, out


@pytest.mark.parametrize("capacity", [1, 2, 7, 1000])
async def test_all_records_pass_in_order_whatever_the_capacity(capacity: int) -> None:
    job, out = two_tasks(200)
    engine = Engine(job, capacity=capacity)
    async with engine.running():
        await until(lambda: all(subtask.ended for subtask in engine.subtasks))
    assert out == list(range(1, 201))


@pytest.mark.parametrize("capacity", [1, 5, 50])
async def test_queues_never_hold_more_than_their_capacity(capacity: int) -> None:
    gate = Gate()
    job, out = two_tasks(300, gate)
    engine = Engine(job, capacity=capacity)
    async with engine.running():
        while len(out) < 300:
            for subtask in engine.subtasks:
                for channel in subtask.gate.channels:
                    assert channel.occupied <= capacity
            gate.open()
            await settle(2)


async def test_backpressured_step_handles_an_overtaking_barrier_at_once() -> None:
    gate = Gate()
    job, _ = two_tasks(100, gate)
    engine = Engine(job, capacity=10)
    async with engine.running():
        await settle()
        assert not engine["step"].output.writable
        engine.trigger(1)
        await engine.until_acknowledged(1)
    captured = [
        record
        for (_, kind), frames in engine.contents(1).items()
        if kind in ("channel", "pending", "rest")
        for frame in frames
        for record in frame
    ]
    assert len(captured) >= 20


async def test_rest_of_the_hand_is_captured_and_restored_first() -> None:
    gate = Gate()
    job, out = two_tasks(40, gate)
    engine = Engine(job, capacity=16)
    step = engine["step"]
    step.output.channels[0].occupied += 10  # room for a part of the first batch only
    async with engine.running():
        await until(lambda: step.gate.hand is not None and step.gate.hand_offset > 0)
        before = list(out)
        engine.trigger(1)
        await engine.until_acknowledged(1)
    out[:] = before
    again = engine.restored(1)
    async with again.running():
        while not all(subtask.ended for subtask in again.subtasks):
            gate.open()
            await settle(1)
    assert out == list(range(1, 41))
