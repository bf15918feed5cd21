"""The checkpoint that ends a job is in the history like any other."""

from __future__ import annotations

from pathlib import Path

import streamcp as sc
from streamcp.storage.local import LocalStorage


def short_job(directory: Path) -> sc.Job:
    job = sc.Job("short", checkpoints=sc.Checkpoints(to=directory))
    job.source(sc.items(range(10)), name="numbers").sink(sc.discard(), name="nowhere")
    return job


def kinds(directory: Path) -> list[str]:
    return [entry["kind"] for entry in LocalStorage(directory, job="short").read_history()]


async def test_final_checkpoint_is_in_the_history(tmp_path: Path) -> None:
    await short_job(tmp_path).run_async()

    assert kinds(tmp_path) == ["final"]


async def test_stopping_checkpoint_is_in_the_history(tmp_path: Path) -> None:
    async with short_job(tmp_path).start() as running:
        await running.stop()

    assert kinds(tmp_path)[-1] in ("stop", "final")
