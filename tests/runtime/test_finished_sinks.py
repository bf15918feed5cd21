"""A sink that has finished, while others still run, takes part in later checkpoints (rule P7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import streamcp as sc


async def finished(running: sc.Running, task: str) -> None:
    def is_finished() -> bool:
        return any(view.name == task and view.finished for view in running.view().tasks)

    while not is_finished():  # noqa: ASYNC110 - a view has nothing to wait for
        await asyncio.sleep(0)


async def test_checkpoint_completes_after_a_transactional_sink_has_finished(
    tmp_path: Path,
) -> None:
    go_on = asyncio.Event()

    @sc.source
    async def slow(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        await go_on.wait()
        yield 1, 1

    job = sc.Job("two", checkpoints=sc.Checkpoints(to=tmp_path / "checkpoints"))
    short = job.source(sc.items([1, 2, 3]), name="short")
    short.sink(sc.files.json_lines(tmp_path / "short"), name="short-out")
    long = job.source(slow(), name="long")
    long.sink(sc.files.json_lines(tmp_path / "long"), name="long-out")
    async with job.start() as running:
        await finished(running, "short")
        await running.checkpoint()  # commits the short sink, which finishes
        await finished(running, "short-out")
        statistics = await running.checkpoint()
        go_on.set()
        result = await running.wait_finished()
    assert statistics.outcome == "completed"
    assert result.outcome == "finished"
