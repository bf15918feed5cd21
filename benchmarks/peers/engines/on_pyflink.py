"""PyFlink, in thread mode or in process mode (`options["mode"]`), on its local mini cluster.

Thread mode runs the functions inside the JVM, process mode beside it. Process mode sends bundles of
50,000 records, or what a second brings: each key of a bundle is read and written once over RPC, so
the default of 1,000 records makes keyed state several times slower. The numbers come from Flink's
own source, in Java, since there are no sources in Python: a favour to PyFlink. Steps next to each
other run in one operator, without serialisation between them. Coroutines work in process mode
alone. Checkpoints go to files; the heap holds the state.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyflink.common import Configuration, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    AsyncDataStream,
    AsyncFunction,
    DataStream,
    FlatMapFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.functions import AggregateFunction
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.datastream.window import TumblingEventTimeWindows

from benchmarks.peers.work import (
    CALLS_AT_ONCE,
    Results,
    Task,
    ask,
    is_kept,
    key_of,
    scale,
    serve,
    shift,
    time_of,
)

BUNDLE_RECORDS = "50000"


def environment_of(
    task: Task, parallelism: int = 1, settings: dict[str, str] | None = None
) -> StreamExecutionEnvironment:
    """The mini cluster with the settings of the task."""
    configuration = Configuration()
    chosen = {
        "python.execution-mode": task.options["mode"],
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "python.fn-execution.bundle.size": BUNDLE_RECORDS,
        "execution.checkpointing.dir": Path(task.folder, "checkpoints").as_uri(),
    }
    for name, value in (chosen | (settings or {})).items():
        configuration.set_string(name, value)
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(parallelism)
    return environment


class First(MapFunction):
    """The first step: notes when the first record comes."""

    def __init__(self, fn: Callable[[int], int], folder: str) -> None:
        self._fn = fn
        self._folder = folder
        self._noted = False

    def map(self, value: int) -> int:
        if not self._noted:
            Path(self._folder, "started").write_text(repr(time.perf_counter()), encoding="utf-8")
            self._noted = True
        return self._fn(value)


class Last(FlatMapFunction):
    """The last step: adds the results up, and notes them at the end. Emits nothing."""

    def __init__(self, add: Callable[[Results, Any], None], folder: str) -> None:
        self._add = add
        self._folder = folder
        self._results = Results()

    def flat_map(self, value: Any) -> Iterator[int]:
        self._add(self._results, value)
        return iter(())

    def close(self) -> None:
        self._results.end()
        noted = [self._results.count, self._results.total, self._results.ended]
        Path(self._folder, "results").write_text(json.dumps(noted), encoding="utf-8")


def numbers_of(environment: StreamExecutionEnvironment, task: Task) -> DataStream:
    return environment.from_source(
        NumberSequenceSource(0, task.records - 1),
        WatermarkStrategy.no_watermarks(),
        "numbers",
        Types.LONG(),
    )


def run(stream: DataStream, task: Task, add: Callable[[Results, Any], None]) -> Results:
    """Add the last step, run the job, and read what was noted."""
    stream.flat_map(Last(add, task.folder), Types.LONG())
    stream.get_execution_environment().execute("peers")
    count, total, ended = json.loads(Path(task.folder, "results").read_text(encoding="utf-8"))
    started = float(Path(task.folder, "started").read_text(encoding="utf-8"))
    return Results(count, total, started, ended)


def add_number(results: Results, value: int) -> None:
    results.add(value)


def add_count(results: Results, value: tuple[int, int]) -> None:
    results.add(value[1])


def add_window(results: Results, value: int) -> None:
    results.add_window(value)


def add_in_order(results: Results, value: int) -> None:
    results.add_in_order((value,))


def stateless(task: Task) -> Results:
    numbers = numbers_of(environment_of(task), task)
    scaled = numbers.map(First(scale, task.folder), Types.LONG())
    return run(scaled.filter(is_kept).map(shift, Types.LONG()), task, add_number)


class Count(MapFunction):
    """A number for each record of a key, in keyed state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def map(self, value: int) -> tuple[int, int]:
        number = (self._count.value() or 0) + 1
        self._count.update(number)
        return key_of(value), number


def _counting(task: Task, settings: dict[str, str]) -> Results:
    numbers = numbers_of(environment_of(task, settings=settings), task)
    kept = numbers.map(First(scale, task.folder), Types.LONG()).filter(is_kept)
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    return run(kept.key_by(key_of, Types.LONG()).map(Count(), pair), task, add_count)


def count(task: Task) -> Results:
    return _counting(task, {})


def count_with_checkpoints(task: Task) -> Results:
    settings = {
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.num-retained": "100",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    results = _counting(task, settings)
    kept = Path(task.folder).glob("checkpoints/*/chk-*")
    results.extra["checkpoints"] = len(list(kept))
    return results


class Times(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return time_of(value)


class CountOfWindow(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, a: int, b: int) -> int:
        return a + b


def same(value: int) -> int:
    return value


def windows(task: Task) -> Results:
    numbers = numbers_of(environment_of(task), task).map(First(same, task.folder), Types.LONG())
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Times())
    timed = numbers.assign_timestamps_and_watermarks(strategy)
    keyed = timed.key_by(key_of, Types.LONG())
    divided = keyed.window(TumblingEventTimeWindows.of(Time.seconds(1)))
    counts = divided.aggregate(
        CountOfWindow(), accumulator_type=Types.LONG(), output_type=Types.LONG()
    )
    return run(counts, task, add_window)


class Ask(AsyncFunction):
    async def async_invoke(self, value: int) -> list[int]:
        return [await ask(value)]


def calls(task: Task) -> Results:
    numbers = numbers_of(environment_of(task), task).map(First(same, task.folder), Types.LONG())
    answers = AsyncDataStream.ordered_wait(
        numbers, Ask(), Time.seconds(30), CALLS_AT_ONCE, Types.LONG()
    )
    return run(answers, task, add_in_order)


if __name__ == "__main__":
    serve(
        "apache-flink",
        {
            "stateless": stateless,
            "count": count,
            "count_with_checkpoints": count_with_checkpoints,
            "windows": windows,
            "calls": calls,
        },
    )
