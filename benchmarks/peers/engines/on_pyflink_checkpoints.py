"""PyFlink under backpressure, in thread mode or in process mode, a checkpoint each second.

`options["bundles"]` says how large the bundles of process mode are: the default of 1,000 records or
a second, which a barrier has to wait for, or 100 records or 50 ms. The slow step blocks the thread
of its subtask, as a function of PyFlink does.
"""

from __future__ import annotations

import asyncio
import time

from pyflink.common import Time, Types
from pyflink.datastream import (
    AsyncDataStream,
    AsyncFunction,
    DataStream,
    StreamExecutionEnvironment,
)
from pyflink.datastream.connectors import Sink

from benchmarks.peers.engines import flink_rest
from benchmarks.peers.engines.on_pyflink import environment_of, numbers_of
from benchmarks.peers.work import SLOW_SECONDS, Results, Task, key_of, serve

BUNDLES = {
    "default": {
        "python.fn-execution.bundle.size": "1000",
        "python.fn-execution.bundle.time": "1000",
    },
    "small": {"python.fn-execution.bundle.size": "100", "python.fn-execution.bundle.time": "50"},
}


def slow(value: int) -> int:
    time.sleep(SLOW_SECONDS)
    return value


def discard(stream: DataStream) -> None:
    """To Flink's own sink that drops everything, in Java."""
    sink = "org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink"
    stream.sink_to(Sink(sink))


def _watch(environment: StreamExecutionEnvironment, port: int, task: Task) -> Results:
    """Start the job, and watch its checkpoints. It is never asked to end: the group is killed."""
    results = Results()
    environment.execute_async("peers")
    job = flink_rest.wait_running(port)
    results.begin()
    options = task.options
    results.extra = flink_rest.watch(port, job, options["warm_up"], options["seconds"])
    results.end()
    return results


def backpressure(task: Task) -> Results:
    """source - by key - slow step - dealt out - sink, two subtasks each."""
    port = flink_rest.free_port()
    settings = flink_rest.settings(port, task.options["checkpoints"])
    environment = environment_of(task, 2, settings | BUNDLES[task.options["bundles"]])
    keyed = numbers_of(environment, task).key_by(key_of, Types.LONG())
    discard(keyed.map(slow, Types.LONG()).rebalance())
    return _watch(environment, port, task)


class AskSlowly(AsyncFunction):
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(self._seconds)
        return [value]


def outstanding(task: Task) -> Results:
    """source - calls - sink, one subtask each."""
    port = flink_rest.free_port()
    settings = flink_rest.settings(port, task.options["checkpoints"])
    environment = environment_of(task, settings=settings | BUNDLES[task.options["bundles"]])
    answers = AsyncDataStream.ordered_wait(
        numbers_of(environment, task),
        AskSlowly(task.options["call_seconds"]),
        Time.minutes(10),
        task.options["calls"],
        Types.LONG(),
    )
    discard(answers)
    return _watch(environment, port, task)


if __name__ == "__main__":
    serve("apache-flink", {"backpressure": backpressure, "outstanding": outstanding})
