"""streamcp, as its documentation says: a source that yields batches, one subtask per step.

Checkpoints are adaptive, which is the default, and durable: every one is synchronised to the disk.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import streamcp as sc
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

BATCH = 2048  # as `sc.items` has it


def numbers_of(task: Task, results: Results) -> Any:
    """The numbers in batches; the first batch starts the clock."""
    numbers = range(task.records)

    @sc.source(batches=True)
    async def source(position: int = 0) -> AsyncIterator[tuple[Sequence[int], int]]:
        results.begin()
        for start in range(position, len(numbers), BATCH):
            batch = numbers[start : start + BATCH]
            yield batch, start + len(batch)

    return source()


def run(job: sc.Job, results: Results) -> Results:
    ended = job.run()
    results.end()
    if job.settings().checkpoints is not None:
        results.extra["checkpoints"] = ended.completed_checkpoints
    return results


def stateless(task: Task) -> Results:
    results = Results()
    job = sc.Job("stateless")
    numbers = job.source(numbers_of(task, results))

    async def sink(values: Sequence[int]) -> None:
        results.add_all(values)

    numbers.map(scale).filter(is_kept).map(shift).sink(sink)
    return run(job, results)


def _counting(job: sc.Job, task: Task) -> Results:
    results = Results()

    async def sink(values: Sequence[tuple[int, int]]) -> None:
        results.add_all([number for _, number in values])

    kept = job.source(numbers_of(task, results), name="numbers").map(scale).filter(is_kept)
    kept.key_by(key_of).count(name="count").sink(sink, name="out")
    return run(job, results)


def count(task: Task) -> Results:
    return _counting(sc.Job("count"), task)


def count_with_checkpoints(task: Task) -> Results:
    every = task.options.get("every", "1s")
    return _counting(sc.Job("count", checkpoints=sc.Checkpoints(to=task.folder, every=every)), task)


def windows(task: Task) -> Results:
    results = Results()
    job = sc.Job("windows")

    async def sink(values: Sequence[sc.WindowResult[int, int]]) -> None:
        for window in values:
            results.add_window(window.value)

    numbers = job.source(numbers_of(task, results), watermarks=sc.Watermarks(time_of))
    numbers.key_by(key_of).window(sc.Tumbling("1s")).count().sink(sink)
    return run(job, results)


def calls(task: Task) -> Results:
    results = Results()
    job = sc.Job("calls")

    async def sink(values: Sequence[int]) -> None:
        results.add_in_order(values)

    numbers = job.source(numbers_of(task, results))
    numbers.map(ask, concurrency=CALLS_AT_ONCE).sink(sink)
    return run(job, results)


WORKLOADS: dict[str, Callable[[Task], Results]] = {
    "stateless": stateless,
    "count": count,
    "count_with_checkpoints": count_with_checkpoints,
    "windows": windows,
    "calls": calls,
}

if __name__ == "__main__":
    serve("", WORKLOADS)
