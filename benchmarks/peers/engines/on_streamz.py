"""Streamz: synchronous `emit`, one record at a time; `map_async` for the calls.

It has no checkpoints, no keyed state (a dict in a closure) and no event time.
"""

from __future__ import annotations

import asyncio

from streamz import Stream

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
)


def emit_all(source: Stream, task: Task, results: Results) -> Results:
    emit = source.emit
    results.begin()
    for value in range(task.records):
        emit(value)
    results.end()
    return results


def stateless(task: Task) -> Results:
    results = Results()
    source = Stream()
    source.map(scale).filter(is_kept).map(shift).sink(results.add)
    return emit_all(source, task, results)


def count(task: Task) -> Results:
    results = Results()
    counts: dict[int, int] = {}

    def counted(value: int) -> tuple[int, int]:
        key = key_of(value)
        number = counts[key] = counts.get(key, 0) + 1
        return key, number

    def write(result: tuple[int, int]) -> None:
        results.add(result[1])

    source = Stream()
    source.map(scale).filter(is_kept).map(counted).sink(write)
    return emit_all(source, task, results)


async def _calls(task: Task, results: Results) -> None:
    done = asyncio.Event()

    def write(value: int) -> None:
        results.add_in_order((value,))
        if results.count == task.records:
            done.set()

    source = Stream(asynchronous=True)
    source.map_async(ask, parallelism=CALLS_AT_ONCE).sink(write)
    results.begin()
    for value in range(task.records):
        await source.emit(value)
    await done.wait()
    results.end()


def calls(task: Task) -> Results:
    results = Results()
    asyncio.run(_calls(task, results))
    return results


if __name__ == "__main__":
    serve("streamz", {"stateless": stateless, "count": count, "calls": calls})
