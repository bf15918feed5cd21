"""Faust, with librdkafka's mock broker in the same process.

The topic is filled before the clock runs, so the figures include Kafka's fetches, but no producer.
The chain is plain Python in an agent, as Faust has it. The count is in a table in memory, whose
changelog is not sent, since the mock broker has no compacted topics; that is a favour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import faust
from faust.tables.table import Table

from benchmarks.peers.engines.mock_kafka import TOPIC, MockKafka
from benchmarks.peers.work import (
    Results,
    Task,
    expected,
    is_kept,
    key_of,
    scale,
    serve,
    shift,
)

PARTITIONS = 4  # as many as the mock broker makes
NOT_SENT = SimpleNamespace(message=SimpleNamespace(partition=0))


def run(task: Task, make_step: Callable[[faust.App], Callable[[int], int]]) -> Results:
    """`make_step(app)` gives what is done with a scaled and kept number."""
    kafka = MockKafka()
    kafka.fill(task.records, lambda number: None, lambda number: str(number).encode())
    return asyncio.run(_run(task, kafka.address, make_step))


async def _run(
    task: Task, address: str, make_step: Callable[[faust.App], Callable[[int], int]]
) -> Results:
    results = Results()
    count, _ = expected(task.workload, task.records)
    done = asyncio.Event()
    application = faust.App(
        "peers",
        broker=f"kafka://{address}",
        datadir=task.folder,
        web_enabled=False,
        topic_disable_leader=True,
        topic_allow_declare=False,
        topic_partitions=PARTITIONS,
        store="memory://",
        consumer_auto_offset_reset="earliest",
        broker_commit_interval=3600.0,
        stream_wait_empty=False,
    )
    step = make_step(application)
    topic = application.topic(TOPIC, value_type=int, value_serializer="json")

    @application.agent(topic)
    async def numbers(stream: Any) -> None:
        async for value in stream:
            results.begin()
            scaled = scale(value)
            if is_kept(scaled):
                results.add(step(scaled))
                if results.count == count:
                    results.end()
                    done.set()

    await application.start()
    await done.wait()
    await application.stop()
    return results


def stateless(task: Task) -> Results:
    return run(task, lambda application: shift)


def count(task: Task) -> Results:
    def make_step(application: faust.App) -> Callable[[int], int]:
        # Not `application.Table`: that would wait for a changelog that is not there.
        counts = Table(application, name="counts", default=int, partitions=PARTITIONS)
        counts.send_changelog = lambda *arguments, **options: NOT_SENT

        def counted(value: int) -> int:
            key = key_of(value)
            number: int = counts[key] + 1
            counts[key] = number
            return number

        return counted

    return run(task, make_step)


if __name__ == "__main__":
    serve("faust-streaming", {"stateless": stateless, "count": count})
