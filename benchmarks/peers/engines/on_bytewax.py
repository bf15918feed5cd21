"""Bytewax: one worker, a source that gives 100,000 records at a time.

Bytewax runs its own `map` and `filter` as list comprehensions over a batch, so the size of the
batches decides; the operators must be the built-in ones. Keys must be text: they come from a
table. The running count is a `stateful_batch` that gets all records of a key in a batch at once.
It has no step for coroutines: calls are gathered by hand, a batch of 100 at a time. Checkpoints are
its snapshots in SQLite, an epoch a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

from benchmarks.peers.work import (
    CALLS_AT_ONCE,
    FIRST,
    KEYS,
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

BATCH = 100_000
WINDOW_BATCH = 1_000  # of the window workload: larger ones made it slower
# Its watermark also moves with the system's clock: without a wait, records would be late whenever
# the machine makes a pause.
WAIT = timedelta(seconds=5)
TEXTS = [str(key) for key in range(KEYS)]


class Numbers(StatefulSourcePartition[int, int]):
    def __init__(self, task: Task, results: Results, batch: int, position: int) -> None:
        self._records = task.records
        self._results = results
        self._batch = batch
        self._position = position

    def next_batch(self) -> Iterable[int]:
        self._results.begin()
        start = self._position
        if start >= self._records:
            raise StopIteration
        self._position = min(start + self._batch, self._records)
        return range(start, self._position)

    def snapshot(self) -> int:
        self._results.extra["checkpoints"] = self._results.extra.get("checkpoints", 0) + 1
        return self._position


class NumberSource(FixedPartitionedSource[int, int]):
    def __init__(self, task: Task, results: Results, batch: int) -> None:
        self._arguments = task, results, batch

    def list_parts(self) -> list[str]:
        return ["all"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Numbers:
        return Numbers(*self._arguments, resume_state or 0)


class Part(StatelessSinkPartition[Any]):
    def __init__(self, write: Callable[[list[Any]], None]) -> None:
        self._write = write

    def write_batch(self, items: list[Any]) -> None:
        self._write(items)


class Out(DynamicSink[Any]):
    def __init__(self, write: Callable[[list[Any]], None]) -> None:
        self._write = write

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Part:
        return Part(self._write)


def run(flow: Dataflow, results: Results, recovery: RecoveryConfig | None = None) -> Results:
    cluster_main(
        flow,
        [],
        0,
        epoch_interval=timedelta(seconds=1 if recovery else 10),
        recovery_config=recovery,
    )
    results.end()
    if recovery is None:
        results.extra.clear()  # it takes snapshots also when it drops them
    return results


def stateless(task: Task) -> Results:
    results = Results()
    flow = Dataflow("stateless")
    numbers = op.input("in", flow, NumberSource(task, results, BATCH))
    kept = op.filter("filter", op.map("scale", numbers, scale), is_kept)
    op.output("out", op.map("shift", kept, shift), Out(results.add_all))
    return run(flow, results)


def with_key(value: int) -> tuple[str, int]:
    return TEXTS[key_of(value)], value


class Count(op.StatefulBatchLogic[int, int, int]):
    def __init__(self, count: int | None) -> None:
        self._count = count or 0

    def on_batch(self, values: list[int]) -> tuple[Iterable[int], bool]:
        first = self._count + 1
        self._count += len(values)
        return range(first, self._count + 1), False

    def snapshot(self) -> int:
        return self._count


def _counting(task: Task, recovery: RecoveryConfig | None) -> Results:
    results = Results()
    flow = Dataflow("count")
    numbers = op.input("in", flow, NumberSource(task, results, BATCH))
    kept = op.filter("filter", op.map("scale", numbers, scale), is_kept)
    counts = op.stateful_batch("count", op.map("key", kept, with_key), Count)

    def write(values: list[tuple[str, int]]) -> None:
        results.add_all([number for _, number in values])

    op.output("out", counts, Out(write))
    return run(flow, results, recovery)


def count(task: Task) -> Results:
    return _counting(task, None)


def count_with_checkpoints(task: Task) -> Results:
    folder = Path(task.folder)
    init_db_dir(folder, 1)
    return _counting(task, RecoveryConfig(folder))


def moment_of(value: int) -> datetime:
    return datetime.fromtimestamp(time_of(value) / 1000, UTC)


def windows(task: Task) -> Results:
    results = Results()
    flow = Dataflow("windows")
    numbers = op.input("in", flow, NumberSource(task, results, WINDOW_BATCH))
    clock = win.EventClock(moment_of, wait_for_system_duration=WAIT)
    start = datetime.fromtimestamp(FIRST / 1000, UTC)
    windower = win.TumblingWindower(length=timedelta(seconds=1), align_to=start)
    counts = win.count_window("count", numbers, clock, windower, lambda value: TEXTS[key_of(value)])

    def write(values: list[tuple[str, tuple[int, int]]]) -> None:
        for _, (_, number) in values:
            results.add_window(number)

    op.output("out", counts.down, Out(write))
    return run(flow, results)


def calls(task: Task) -> Results:
    results = Results()
    flow = Dataflow("calls")
    numbers = op.input("in", flow, NumberSource(task, results, CALLS_AT_ONCE))
    loop = asyncio.new_event_loop()

    async def gather(values: list[int]) -> list[int]:
        return await asyncio.gather(*map(ask, values))

    def ask_all(values: list[int]) -> list[int]:
        return loop.run_until_complete(gather(values))

    op.output("out", op.flat_map_batch("ask", numbers, ask_all), Out(results.add_in_order))
    return run(flow, results)


if __name__ == "__main__":
    serve(
        "bytewax",
        {
            "stateless": stateless,
            "count": count,
            "count_with_checkpoints": count_with_checkpoints,
            "windows": windows,
            "calls": calls,
        },
    )
