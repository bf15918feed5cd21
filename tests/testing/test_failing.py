from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.runners.handle import JobHandle
from streamcp.storage.local import LocalStorage
from streamcp.testing.failing import failing_storage
from streamcp.testing.running import run_job


def _job(directory: Path) -> sc.Job:
    job = sc.Job("x", checkpoints=sc.Checkpoints(to=directory))
    job.source(sc.items(range(5)), name="numbers").sink(sc.collect(), name="out")
    return job


@pytest.mark.parametrize("late", [False, True])
def test_nth_call_fails_and_the_others_do_not(tmp_path: Path, late: bool) -> None:
    real = LocalStorage(tmp_path, job="x")
    storage = failing_storage(real, {"complete": {1}}, late=late)
    told: list[str] = []

    async def use(handle: JobHandle) -> None:
        def note(event: Any) -> None:
            if type(event).__name__.startswith("Checkpoint"):
                told.append(type(event).__name__)

        handle.events.subscribe(note)
        await handle.wait_finished()

    result = run_job(_job(tmp_path), use=use, storage=storage)
    assert result is not None
    assert result.outcome == "finished"
    assert [name for name in told if name != "CheckpointTriggered"] == [
        "CheckpointFailed",
        "CheckpointCompleted",
    ]


def test_method_that_never_raises_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no method retain that may raise"):
        failing_storage(LocalStorage(tmp_path, job="x"), {"retain": {1}})
