"""Questions that are asked before the job runs, and whose asker wakes when it has failed again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, Literal

import pytest

import streamcp as sc
from streamcp.runners.handle import JobHandle, JobResult
from streamcp.testing.running import VirtualRuns

Late = Literal["restarting", "starting", "running"]


@sc.source
async def numbers(position: int = 0) -> AsyncIterator[tuple[int, int]]:
    for n in range(position, 200):
        await asyncio.sleep(0.01)
        yield n, n + 1


def _failing_job(directory: Path) -> sc.Job:
    """The first attempt fails at once."""
    failures = iter([True])

    @sc.source
    async def failing(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        if next(failures, False):
            raise ValueError("once")
        return
        yield position, position

    job = sc.Job(
        "early",
        checkpoints=sc.Checkpoints(to=directory),
        restart=sc.Restart.fixed_delay(attempts=3, delay="1ms"),
    )
    job.source(numbers(), name="numbers").sink(sc.discard(), name="out")
    job.source(failing(), name="failing").sink(sc.discard(), name="none")
    return job


def _ask(
    directory: Path, late: Late, question: Callable[[JobHandle], Coroutine[Any, Any, Any]]
) -> tuple[JobResult, Any]:
    """How the job ended, and the answer, or the error; None if there was none. Whoever asks waits
    for the job to run, and makes its next step only when the job has failed, and then is `late`."""
    runs = VirtualRuns()

    async def main() -> tuple[JobResult, Any]:
        handle, running = runs.start(_failing_job(directory))
        has_failed = asyncio.Event()
        handle.events.subscribe(
            lambda event: has_failed.set() if type(event).__name__ == "JobRestarting" else None
        )
        asking = question(handle)
        asking.send(None)  # waits
        await has_failed.wait()
        while handle.view().state != late:  # noqa: ASYNC110 (no event tells of each state)
            await asyncio.sleep(0)
        asked = asyncio.get_running_loop().create_task(asking)  # goes on
        await asyncio.wait([running])
        await asyncio.wait([asked], timeout=60)
        if not asked.done():
            asked.cancel()
            return running.result(), None
        return running.result(), asked.exception() or asked.result()

    return runs.run(main)


@pytest.mark.parametrize("late", ["restarting", "starting", "running"])
def test_checkpoint_is_taken_of_the_next_attempt(tmp_path: Path, late: Late) -> None:
    _, answer = _ask(tmp_path, late, lambda handle: handle.checkpoint())
    assert answer.checkpoint_id > 0


@pytest.mark.parametrize("late", ["restarting", "starting", "running"])
def test_savepoint_is_taken_of_the_next_attempt(tmp_path: Path, late: Late) -> None:
    target = tmp_path / "savepoints"
    _, answer = _ask(tmp_path, late, lambda handle: handle.savepoint(target))
    assert answer.path.parent == target


@pytest.mark.parametrize("late", ["restarting", "starting", "running"])
def test_next_attempt_is_drained(tmp_path: Path, late: Late) -> None:
    result, answer = _ask(tmp_path, late, lambda handle: handle.stop(drain=True))
    assert answer.outcome == "finished"
    assert result.duration < 1.0, "all that could be read takes two seconds"
