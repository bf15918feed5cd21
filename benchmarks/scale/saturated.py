"""A job whose queues are full: endless sources, exchanges, and a sink that awaits per record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeAlias

import streamcp as sc

PAYLOAD = 100  # bytes, of an object of its own in each record
Record: TypeAlias = tuple[int, bytes]


class SlowService:
    """Takes a while per record."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def take(self, record: Record) -> None:
        await asyncio.sleep(self._seconds)


def same(record: Record) -> Record:
    return record


def saturated_job(
    parallelism: int, capacity: int, seconds: float, folder: Path | str, *, exchanges: int = 1
) -> sc.Job:
    """The job, with that many subtasks in each step; checkpoints are unaligned."""

    @sc.source(splits=lambda: range(parallelism), batches=True)
    async def records(split: int, position: int = 0) -> AsyncIterator[tuple[list[Record], int]]:
        while True:
            numbers = range(position, position + 64)
            yield [(number, number.to_bytes(PAYLOAD, "big")) for number in numbers], position + 64
            position += 64

    job = sc.Job(
        "saturated",
        checkpoints=sc.Checkpoints(to=folder, mode="unaligned"),
        parallelism=parallelism,
        channel_capacity=capacity,
        restart=sc.Restart.none(),
    )
    spread = job.source(records(), name="records").rebalance()
    for number in range(1, exchanges):
        spread = spread.map(same, name=f"same-{number}").rebalance()
    spread.for_each(SlowService(seconds).take, name="service", concurrency=1)
    return job


async def wait_saturated(running: sc.Running, *, window: float = 0.2) -> float:
    """Return when the sources have waited for room, and the sink for nothing, for 90 % of a moment;
    the result is the share of all channels' room that is taken then."""
    while True:
        before = running.view().tasks
        await asyncio.sleep(window)
        tasks = running.view().tasks
        if not before:
            continue  # the job is only starting
        waited = tasks[0].backpressured - before[0].backpressured
        idle = tasks[-1].idle - before[-1].idle
        if waited >= 0.9 * window and idle <= 0.1 * window:
            return sum(task.queued for task in tasks) / sum(task.capacity for task in tasks)
