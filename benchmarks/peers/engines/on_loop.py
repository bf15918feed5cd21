"""The floor: a bare loop, and a bare pool of coroutines, that call the same functions.

No batches, no steps, no way to stop and go on. Nothing written in Python can be much faster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

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


def stateless(task: Task) -> Results:
    results = Results()
    results.begin()
    count = total = 0
    for value in range(task.records):
        scaled = scale(value)
        if is_kept(scaled):
            count += 1
            total += shift(scaled)
    results.count, results.total = count, total
    results.end()
    return results


def count(task: Task) -> Results:
    results = Results()
    results.begin()
    counts: dict[int, int] = {}
    count = total = 0
    for value in range(task.records):
        scaled = scale(value)
        if is_kept(scaled):
            key = key_of(scaled)
            number = counts[key] = counts.get(key, 0) + 1
            result = (key, number)
            count += 1
            total += result[1]
    results.count, results.total = count, total
    results.end()
    return results


def windows(task: Task) -> Results:
    """Nothing comes out of order, so a second is over when the next one begins."""
    results = Results()
    results.begin()
    counts: dict[int, int] = {}
    current = 0
    for value in range(task.records):
        second = time_of(value) // 1000
        if second != current:
            for number in counts.values():
                results.add_window(number)
            counts.clear()
            current = second
        key = key_of(value)
        counts[key] = counts.get(key, 0) + 1
    for number in counts.values():
        results.add_window(number)
    results.end()
    return results


async def _pool(n: int) -> list[int]:
    answers = [0] * n
    values = iter(range(n))

    async def worker() -> None:
        for value in values:
            answers[value] = await ask(value)

    async with asyncio.TaskGroup() as group:
        for _ in range(CALLS_AT_ONCE):
            group.create_task(worker())
    return answers


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def calls(task: Task) -> Results:
    """On the event loop that streamcp has too, where it is installed."""
    results = Results()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        results.begin()
        answers = runner.run(_pool(task.records))
    results.add_in_order(answers)
    results.end()
    return results


if __name__ == "__main__":
    serve("", {"stateless": stateless, "count": count, "windows": windows, "calls": calls})
