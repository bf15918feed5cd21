"""Whole jobs through the public API on the event loops that users have: asyncio and uvloop.

Time is real here, so nothing waits for it: coroutines yield, and what the job must reach is
awaited.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop

import streamcp as sc
from tests.recovery.world import Target, json_records, staged, transactional

Run = Callable[[Callable[[], Awaitable[Any]]], Any]
MODES = ["aligned", "unaligned", "adaptive"]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Run a coroutine function on one of the loops, asyncio's in its debug mode."""
    is_uvloop = request.param == "uvloop"
    make = uvloop.new_event_loop if is_uvloop else asyncio.new_event_loop
    with asyncio.Runner(debug=not is_uvloop, loop_factory=make) as runner:

        async def call(main: Callable[[], Awaitable[Any]]) -> Any:
            return await main()

        yield lambda main: runner.run(call(main))


@dataclass
class Sum:
    count: int = 0
    total: int = 0


def _add(record: int, state: Sum, ctx: sc.KeyContext[int]) -> list[list[int]]:
    state.count += 1
    state.total += record
    return [[ctx.key, state.count, state.total]]


async def _add_later(record: list[int], state: Sum, ctx: sc.KeyContext[int]) -> list[list[int]]:
    state.count += 1
    for _ in range(record[1] % 3):
        await asyncio.sleep(0)
    state.total += record[2]
    return [[ctx.key, state.count, state.total]]


async def _same(record: int) -> int:
    for _ in range(record % 5):
        await asyncio.sleep(0)
    return record


def _expected(count: int, keys: int) -> Counter[tuple[int, ...]]:
    expected: Counter[tuple[int, ...]] = Counter()
    for key in range(keys):
        number, total, outer = 0, 0, 0
        for record in range(key, count, keys):
            number, total = number + 1, total + record
            outer += total
            expected[key, number, outer] += 1
    return expected


def _job(directory: Path, sink: Any, mode: Any, count: int, fail: Callable[[int], int]) -> sc.Job:
    job = sc.Job(
        "loops",
        checkpoints=sc.Checkpoints(
            to=directory, every="1ms", mode=mode, alignment_timeout="1ms", predict=False
        ),
        restart=sc.Restart.fixed_delay(attempts=20, delay="0s"),
        channel_capacity=20,
    )
    stream: Any = job.source(sc.items(range(count)), name="numbers")
    stream = stream.map(_same, name="same", concurrency=8).key_by(lambda n: n % 7)
    stream = stream.process(_add, state=Sum, name="add", parallelism=2)
    stream = stream.map(lambda row: (fail(row[1]), row)[1], parallelism=2)
    stream = stream.key_by(lambda row: row[0]).process(
        _add_later, state=Sum, name="add later", parallelism=2, concurrency=4
    )
    stream.rebalance().sink(sink, name="out", parallelism=2)
    return job


class FailsAt:
    """Raises at some of its calls."""

    def __init__(self, *calls: int) -> None:
        self._calls = calls
        self._count = 0

    def __call__(self, record: int) -> int:
        self._count += 1
        if self._count in self._calls:
            raise ValueError(f"call {self._count}")
        return record


@pytest.mark.parametrize(
    ("mode", "make"),
    [
        ("aligned", transactional),
        ("unaligned", staged),
        ("adaptive", transactional),
        ("adaptive", staged),
    ],
)
def test_job_that_fails_again_and_again_writes_each_result_once(
    run: Run, tmp_path: Path, mode: str, make: Any
) -> None:
    target = Target()
    job = _job(tmp_path, make(target), mode, 400, FailsAt(50, 120, 350))
    result = run(job.run_async)
    assert result.outcome == "finished"
    assert result.attempts > 2
    assert Counter(map(tuple, target.records("out"))) == _expected(400, 7)


@pytest.mark.parametrize("mode", MODES)
def test_json_lines_through_failures_and_a_cancelled_run_hold_each_result_once(
    run: Run, tmp_path: Path, mode: str
) -> None:
    sink = sc.files.json_lines(tmp_path / "out")

    async def cancelled() -> None:
        job = _job(tmp_path / "c", sink, mode, 400, FailsAt())
        async with job.start() as running:
            await running.checkpoint()
            await running.checkpoint()
            raise TimeoutError

    with pytest.raises(TimeoutError):
        run(cancelled)
    result = run(_job(tmp_path / "c", sink, mode, 400, FailsAt(30, 100)).run_async)
    assert result.restored_from is not None
    assert Counter(map(tuple, json_records(tmp_path / "out"))) == _expected(400, 7)


def test_stopped_job_goes_on_in_the_next_run(run: Run, tmp_path: Path) -> None:
    target = Target()

    @sc.source
    async def endless(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        while True:
            await asyncio.sleep(0)
            yield position, position + 1
            position += 1

    def job() -> sc.Job:
        made = sc.Job("endless", checkpoints=sc.Checkpoints(to=tmp_path))
        stream = made.source(endless(), name="numbers").map(lambda n: [n])
        stream.sink(transactional(target), name="out")
        return made

    async def main() -> None:
        async with job().start() as running:
            await running.checkpoint()
            result = await running.stop()
            assert result.outcome == "stopped"

    for _ in range(3):
        before = len(target.records("out"))
        run(main)
        assert len(target.records("out")) > before
    numbers = sorted(record[0] for record in target.records("out"))
    assert numbers == list(range(len(numbers)))


def test_leaving_the_body_stops_the_job_and_leaves_no_task_behind(run: Run, tmp_path: Path) -> None:
    """I8; csp 3f98441 (case 51): no noise about a closed loop either, which would fail here."""

    async def main() -> None:
        before = asyncio.all_tasks()
        job = _job(tmp_path, transactional(Target()), "adaptive", 100_000, FailsAt())
        async with job.start() as running:
            await running.checkpoint()
        assert (await running.wait_finished()).outcome == "stopped"
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before

    run(main)
