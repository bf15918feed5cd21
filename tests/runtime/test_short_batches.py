"""A task with many senders, each of which has few records for it: what is worked off together, and
how long results wait to be handed on."""

from __future__ import annotations

import asyncio
from typing import Any

import streamcp as sc
from streamcp.elements import Batch, CheckpointBarrier
from streamcp.runtime.subtask import BUFFER_TIMEOUT
from streamcp.testing.clock import ManualClock
from tests.runtime.engine import Engine

SENDERS = 8


def new_engine() -> tuple[Engine, list[list[int]]]:
    """A step behind eight senders, not running, and the lists that it is called with."""
    lists: list[list[int]] = []

    def batch(record: int) -> int:
        lists[-1].append(record)
        return record

    job = sc.Job("job")
    numbers = job.source(sc.items([1]), name="source", parallelism=SENDERS).rebalance()
    numbers.map(batch, name="step", parallelism=1).rebalance().sink(sc.discard(), name="out")
    engine = Engine(job)
    push = engine["step"]._pushes[0]

    def noted(records: list[Any]) -> None:
        lists.append([])
        push(records)

    engine["step"]._pushes = [noted] * SENDERS
    return engine, lists


def work(step: Any) -> None:
    assert step._have_work()
    step._work_slice()


def test_short_batches_of_many_senders_are_one_slice() -> None:
    engine, lists = new_engine()
    step = engine["step"]
    batches = [Batch([sender, sender]) for sender in range(SENDERS)]
    for channel, batch in zip(step.gate.channels, batches, strict=True):
        channel.push(batch)
    work(step)
    assert lists == [[sender for sender in range(SENDERS) for _ in range(2)]]
    assert step.gate.queued_records == 0
    assert [batch.values for batch in batches] == [[sender] * 2 for sender in range(SENDERS)]


def test_slice_has_no_more_records_than_outputs_have_room_for() -> None:
    engine, lists = new_engine()
    step = engine["step"]
    for channel in step.gate.channels:
        channel.push(Batch([0] * 300))
    step.slices.records = 10_000
    work(step)
    assert list(map(len, lists)) == [900]
    assert step.gate.queued_records == (SENDERS - 3) * 300


def test_barrier_behind_a_batch_ends_the_slice() -> None:
    engine, lists = new_engine()
    step = engine["step"]
    step.gate.channels[0].push(Batch([0]))
    step.gate.channels[1].push(CheckpointBarrier(1))
    step.gate.channels[2].push(Batch([2]))
    work(step)
    assert lists == [[0]]


async def test_buffer_timeout_begins_when_the_wait_is_over() -> None:
    engine, _ = new_engine()
    step, clock = engine["step"], engine.clock
    assert isinstance(clock, ManualClock)
    waiting = asyncio.create_task(step.wait("idle"))
    await asyncio.sleep(0)
    clock.advance(100 * BUFFER_TIMEOUT)
    step.wakeup.set()
    await waiting
    step.gate.channels[0].push(Batch([1]))
    work(step)
    assert step.output.has_partials
    clock.advance(BUFFER_TIMEOUT)
    step.gate.channels[0].push(Batch([2]))
    work(step)
    assert not step.output.has_partials
