"""Requests that come when the job has ended, or is about to, are answered."""

from __future__ import annotations

from pathlib import Path

import pytest

import streamcp as sc
from streamcp.errors import CheckpointFailed


def short_job(directory: Path) -> sc.Job:
    job = sc.Job("short", checkpoints=sc.Checkpoints(to=directory))
    job.source(sc.items([1, 2, 3]), name="numbers").sink(sc.discard(), name="nowhere")
    return job


async def test_checkpoint_after_the_end_is_refused(tmp_path: Path) -> None:
    async with short_job(tmp_path).start() as running:
        await running.wait_finished()
        with pytest.raises(CheckpointFailed, match="has ended"):
            await running.checkpoint()


async def test_checkpoint_of_a_job_that_finished_long_ago_is_refused(tmp_path: Path) -> None:
    await short_job(tmp_path).run_async()
    async with short_job(tmp_path).start() as running:
        assert (await running.wait_finished()).outcome == "already_finished"
        with pytest.raises(CheckpointFailed, match="has ended"):
            await running.checkpoint()
