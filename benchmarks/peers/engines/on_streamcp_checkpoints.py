"""streamcp under backpressure: the topologies of the peers, a checkpoint each second.

The slow step awaits, as steps do that wait for a service; the peers' steps block a thread each for
as long. Times are durable delays: from the trigger until the completion is synchronised to disk.
Flink's end at the last acknowledgement, before its metadata is written.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import streamcp as sc
from benchmarks.peers.work import SLOW_SECONDS, Results, Task, key_of, serve
from streamcp.checkpoint.statistics import CheckpointStatistics
from streamcp.config import Mode
from streamcp.observability import events
from streamcp.runners.local import run_blocking

BATCH = 64
PAYLOAD = 1024  # bytes, of Flink's own benchmark


async def slow(value: int) -> int:
    await asyncio.sleep(SLOW_SECONDS)
    return value


def numbers_of(subtasks: int) -> Any:
    """Endless, in as many splits as there are subtasks."""

    @sc.source(splits=lambda: range(subtasks), batches=True)
    async def source(split: int, position: int = 0) -> AsyncIterator[tuple[list[int], int]]:
        while True:
            values = [number * subtasks + split for number in range(position, position + BATCH)]
            position += BATCH
            yield values, position

    return source()


def job_of(task: Task, parallelism: int = 1) -> sc.Job:
    mode: Mode = task.options["checkpoints"]
    return sc.Job(
        "peers",
        parallelism=parallelism,
        checkpoints=sc.Checkpoints(to=task.folder, every=task.options["every"], mode=mode),
        channel_capacity=task.options["capacity"],
        restart=sc.Restart.none(),
    )


class _Enough(Exception):
    """Ends a job at once: to drain it would take minutes."""


async def _watch(job: sc.Job, task: Task) -> Results:
    results = Results()
    triggered: dict[int, float] = {}

    def note(event: events.Event) -> None:
        if isinstance(event, events.CheckpointTriggered):
            triggered[event.checkpoint_id] = time.time() * 1000

    try:
        async with job.start() as running:
            running.events.subscribe(note)
            results.begin()
            await asyncio.sleep(task.options["warm_up"])
            first = time.time() * 1000
            await asyncio.sleep(task.options["seconds"])
            taken = running.view().checkpoints
            results.end()
            results.extra = told(taken, triggered, first, time.time() * 1000)
            raise _Enough
    except _Enough:
        return results


def told(
    taken: Sequence[CheckpointStatistics], triggered: Mapping[int, float], first: float, now: float
) -> dict[str, Any]:
    """Tell the checkpoints triggered from `first` on, as `flink_rest.told` does."""
    late = [one for one in taken if one.triggered_ms >= first]
    ended = {one.checkpoint_id for one in taken if one.outcome != "in_progress"}
    return {
        "checkpoints": [
            {
                "seconds": one.durable_delay,
                "acknowledged": one.end_to_end,
                "bytes": one.in_flight_bytes,
                "records": one.in_flight_records,
            }
            for one in late
            if one.outcome == "completed"
        ],
        "failed": sum(one.outcome not in ("completed", "in_progress") for one in late),
        "unfinished": [
            (now - moment) / 1000 for id, moment in triggered.items() if id not in ended
        ],
    }


def backpressure(task: Task) -> sc.Job:
    """source - by key - slow step - dealt out - sink, two subtasks each."""
    job = job_of(task, 2)
    keyed = job.source(numbers_of(2), name="numbers").key_by(key_of)
    done = keyed.map(slow, concurrency=1, name="slow")
    done.rebalance().sink(sc.discard, name="out")
    return job


def outstanding(task: Task) -> sc.Job:
    """source - calls - sink, one subtask each."""
    seconds: float = task.options["call_seconds"]

    async def ask_slowly(value: int) -> int:
        await asyncio.sleep(seconds)
        return value

    job = job_of(task)
    numbers = job.source(numbers_of(1), name="numbers")
    answers = numbers.map(ask_slowly, concurrency=task.options["calls"], name="calls")
    answers.sink(sc.discard, name="out")
    return job


def with_payload(value: int) -> bytes:
    return value.to_bytes(PAYLOAD, "big")


def five_times(record: bytes) -> list[bytes]:
    """Five objects, since one would be written only once."""
    return [bytes(bytearray(record)) for _ in range(5)]


async def slow_sink(record: bytes) -> None:
    await asyncio.sleep(SLOW_SECONDS)


def flink_topology(task: Task) -> sc.Job:
    """source - dealt out - each record five times - dealt out - slow sink, four subtasks each."""
    job = job_of(task, 4)
    payloads = job.source(numbers_of(4), name="numbers").map(with_payload, name="payload")
    many = payloads.rebalance().flat_map(five_times, name="five times")
    many.rebalance().for_each(slow_sink, concurrency=1, name="slow")
    return job


JOBS: Mapping[str, Callable[[Task], sc.Job]] = {
    "backpressure": backpressure,
    "outstanding": outstanding,
    "flink_topology": flink_topology,
}


def watch(task: Task) -> Results:
    """Run the job of the task, and tell its checkpoints."""
    return run_blocking(lambda: _watch(JOBS[task.workload](task), task))


if __name__ == "__main__":
    serve("", dict.fromkeys(JOBS, watch))
