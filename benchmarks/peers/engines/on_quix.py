"""Quix Streams, with librdkafka's mock broker in the same process.

The topic is filled before the clock runs, so the figures include Kafka's fetches, but no producer.
The records carry the key that the count needs, which saves Quix Streams a second topic. Its state
is in RocksDB, as always, without changelog topics, which the mock broker does not have; with
checkpoints it commits each second.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quixstreams import Application
from quixstreams.dataframe import StreamingDataFrame
from quixstreams.models import TopicAdmin, TopicConfig

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

NEVER = 3600.0


def inspect_topics(
    self: TopicAdmin, topic_names: list[str], timeout: float | None = None
) -> dict[str, TopicConfig]:
    """What the mock broker cannot be asked for: it has no controller."""
    topics = self.list_topics(timeout=10)
    settings = {"retention.ms": "-1", "cleanup.policy": "delete"}
    return {name: TopicConfig(len(topics[name].partitions), 1, settings) for name in topic_names}


def run(task: Task, steps: Any, commit_interval: float) -> Results:
    """`steps(stream, results)` draws what is done with the scaled and kept numbers."""
    results = Results()
    TopicAdmin.inspect_topics = inspect_topics
    kafka = MockKafka()
    kafka.fill(
        task.records,
        lambda number: str(key_of(scale(number))).encode(),
        lambda number: str(number).encode(),
    )
    application = Application(
        broker_address=kafka.address,
        consumer_group="peers",
        auto_offset_reset="earliest",
        commit_interval=commit_interval,
        state_dir=Path(task.folder, "state"),
        use_changelog_topics=False,
        auto_create_topics=False,
        loglevel="WARNING",
    )
    topic = application.topic(TOPIC, value_deserializer="json", key_deserializer="str")

    def first(value: int) -> int:
        results.begin()
        return scale(value)

    steps(application.dataframe(topic).apply(first).filter(is_kept), results)
    count, _ = expected(task.workload, task.records)
    application.run(count=count, collect=False)
    return results


def stateless(task: Task) -> Results:
    def steps(kept: StreamingDataFrame, results: Results) -> None:
        def out(value: int) -> None:
            results.add(value)
            results.end()

        kept.apply(shift).update(out)

    return run(task, steps, NEVER)


def counting(kept: StreamingDataFrame, results: Results) -> None:
    def counted(value: int, state: Any) -> int:
        number: int = state.get("count", 0) + 1
        state.set("count", number)
        return number

    def out(value: int) -> None:
        results.add(value)
        results.end()

    kept.apply(counted, stateful=True).update(out)


def count(task: Task) -> Results:
    return run(task, counting, NEVER)


def count_with_checkpoints(task: Task) -> Results:
    return run(task, counting, 1.0)


if __name__ == "__main__":
    serve(
        "quixstreams",
        {
            "stateless": stateless,
            "count": count,
            "count_with_checkpoints": count_with_checkpoints,
        },
    )
