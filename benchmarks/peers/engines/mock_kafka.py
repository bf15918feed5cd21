"""Kafka for engines that cannot do without: librdkafka's mock broker, in this process.

It has topics and consumer groups, and keeps everything in memory; it knows no compacted topics.
"""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Producer

TOPIC = "numbers"


class MockKafka:
    """A broker with one topic; it lives as long as this object."""

    def __init__(self) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": "127.0.0.1:1",
                "test.mock.num.brokers": 1,
                "queue.buffering.max.messages": 10_000_000,
                "log_level": 0,
            }
        )
        (broker,) = self._producer.list_topics(timeout=10).brokers.values()
        self.address = f"{broker.host}:{broker.port}"

    def fill(
        self, n: int, key: Callable[[int], bytes | None], value: Callable[[int], bytes]
    ) -> None:
        """Put `n` records on one partition of the topic, so that they stay in order."""
        for number in range(n):
            while True:
                try:
                    self._producer.produce(TOPIC, value(number), key(number), partition=0)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            if number % 1000 == 0:
                self._producer.poll(0)
        self._producer.flush(60)
