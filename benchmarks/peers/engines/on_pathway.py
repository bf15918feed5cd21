"""Pathway: one worker, a source of its own in a thread, results by `subscribe`.

The source commits ten times a second. A table has no order and knows no running count: a commit
updates each key once, so the total is computed from the last count of each key, and the answers of
calls are put in order afterwards; both are favours to Pathway. Its snapshots of operators need a
licence key; without one a checkpoint is a journal of its input, which is what is measured.
"""

from __future__ import annotations

from typing import Any

import pathway as pw

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

COMMIT = 100  # milliseconds


class Number(pw.Schema):
    value: int


class Numbers(pw.io.python.ConnectorSubject):
    def __init__(self, task: Task, results: Results) -> None:
        super().__init__()
        self._task = task
        self._results = results

    def run(self) -> None:
        self._results.begin()
        for value in range(self._task.records):
            self.next(value=value)


def numbers_of(task: Task, results: Results) -> pw.Table:
    return pw.io.python.read(
        Numbers(task, results), schema=Number, autocommit_duration_ms=COMMIT, name="numbers"
    )


def run(results: Results, **options: Any) -> None:
    pw.run(monitoring_level=pw.MonitoringLevel.NONE, **options)
    results.end()


def scaled_and_kept(numbers: pw.Table) -> pw.Table:
    scaled = numbers.select(value=pw.apply_with_type(scale, int, pw.this.value))
    return scaled.filter(pw.apply_with_type(is_kept, bool, pw.this.value))


def stateless(task: Task) -> Results:
    results = Results()
    kept = scaled_and_kept(numbers_of(task, results))
    shifted = kept.select(value=pw.apply_with_type(shift, int, pw.this.value))

    def write(key: Any, row: dict[str, int], time: int, is_addition: bool) -> None:
        results.add(row["value"])

    pw.io.subscribe(shifted, write)
    run(results)
    return results


def _counting(task: Task, **options: Any) -> Results:
    results = Results()
    kept = scaled_and_kept(numbers_of(task, results))
    keyed = kept.select(key=pw.apply_with_type(key_of, int, pw.this.value))
    counts = keyed.groupby(pw.this.key).reduce(pw.this.key, count=pw.reducers.count())
    last: dict[int, int] = {}

    def write(key: Any, row: dict[str, int], time: int, is_addition: bool) -> None:
        if is_addition:
            last[row["key"]] = row["count"]

    pw.io.subscribe(counts, write)
    run(results, **options)
    results.add_last_counts(last.values())
    return results


def count(task: Task) -> Results:
    return _counting(task)


def count_with_checkpoints(task: Task) -> Results:
    backend = pw.persistence.Backend.filesystem(task.folder)
    return _counting(
        task, persistence_config=pw.persistence.Config(backend, snapshot_interval_ms=1000)
    )


def windows(task: Task) -> Results:
    results = Results()
    numbers = numbers_of(task, results).select(
        key=pw.apply_with_type(key_of, int, pw.this.value),
        time=pw.apply_with_type(time_of, int, pw.this.value),
    )
    divided = numbers.windowby(
        pw.this.time,
        window=pw.temporal.tumbling(duration=1000),
        instance=pw.this.key,
        behavior=pw.temporal.exactly_once_behavior(),
    )
    counts = divided.reduce(count=pw.reducers.count())

    def write(key: Any, row: dict[str, int], time: int, is_addition: bool) -> None:
        if is_addition:
            results.add_window(row["count"])

    pw.io.subscribe(counts, write)
    run(results)
    return results


def calls(task: Task) -> Results:
    results = Results()
    called = pw.udf(ask, executor=pw.udfs.async_executor(capacity=CALLS_AT_ONCE), return_type=int)
    answers = numbers_of(task, results).select(answer=called(pw.this.value))
    values: list[int] = []

    def write(key: Any, row: dict[str, int], time: int, is_addition: bool) -> None:
        values.append(row["answer"])

    pw.io.subscribe(answers, write)
    run(results)
    results.add_in_order(sorted(values))
    return results


if __name__ == "__main__":
    serve(
        "pathway",
        {
            "stateless": stateless,
            "count": count,
            "count_with_checkpoints": count_with_checkpoints,
            "windows": windows,
            "calls": calls,
        },
    )
