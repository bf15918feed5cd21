"""A stop does not wait for ever for a sink that cannot commit: its output is in the checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

import streamcp as sc
from streamcp.coordinator import coordinator


class Staged:
    """A staged sink whose target does not answer while it is `stuck`."""

    def __init__(self, stuck: bool) -> None:
        self._stuck = stuck
        self.written: list[int] = []

    async def write(self, records: Sequence[int], transaction: sc.Transaction, /) -> None:
        if self._stuck:
            await asyncio.Event().wait()
        self.written += records

    async def prepare(self, transaction: sc.Transaction, /) -> str:
        return transaction.id

    async def commit(self, transaction: sc.Transaction, token: str, /) -> None:
        pass


@sc.source
async def hundred_and_wait(position: int = 0) -> AsyncIterator[tuple[int, int]]:
    while position < 100:
        yield position, position + 1
        position += 1
    await asyncio.Event().wait()


def make_job(directory: Path, sink: Staged) -> sc.Job:
    job = sc.Job("stuck", checkpoints=sc.Checkpoints(to=directory))
    job.source(hundred_and_wait(), name="numbers").sink(sink, name="target")
    return job


async def test_stop_ends_and_the_next_run_delivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(coordinator, "COMMIT_TIME", 0.01, raising=False)
    async with make_job(tmp_path, Staged(stuck=True)).start() as running:
        await running.checkpoint()
        async with asyncio.timeout(3):
            result = await running.stop()

    assert result.outcome == "stopped"
    assert "next start" in caplog.text
    sink = Staged(stuck=False)
    async with make_job(tmp_path, sink).start() as running:
        await running.stop()
    assert sorted(sink.written) == list(range(100))
