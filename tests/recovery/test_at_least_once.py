"""At-least-once mode from the outside: nothing blocked, nothing captured, nothing lost (P29)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.runners.handle import JobHandle
from streamcp.storage.local import LocalStorage
from tests.recovery.world import run_job


@sc.source
async def letters(
    position: int = 0, *, name: str, count: int, pause: float
) -> AsyncIterator[tuple[str, int]]:
    for i in range(position, count):
        await asyncio.sleep(pause)
        yield f"{name}{i}", i + 1


def _job(directory: Path, out: list[str], *, slow_call: float = 0.0, **settings: Any) -> sc.Job:
    """A fast and a slow way into one step; the records of the slow way are called with first."""
    checkpoints = sc.Checkpoints(to=directory, **{"mode": "at_least_once", **settings})
    job = sc.Job("loose", checkpoints=checkpoints, channel_capacity=4)
    fast = job.source(letters(name="f", count=200, pause=0.1), name="fast")
    slow = job.source(letters(name="s", count=20, pause=0.1), name="slow")

    async def wait(record: str) -> str:
        await asyncio.sleep(slow_call)
        return record

    async def write(records: Sequence[str]) -> None:
        out.extend(records)

    held_up = slow.map(wait, name="held up", concurrency=1)
    together = fast.union(held_up).rebalance().map(lambda record: record.upper())
    together.sink(write, name="out")
    return job


def test_barrier_on_one_input_does_not_stop_it_while_the_other_has_none(tmp_path: Path) -> None:
    """A barrier in line waits behind the slow calls; the fast way must flow on meanwhile."""
    flowed: dict[str, int] = {}
    for mode in ("at_least_once", "aligned"):
        out: list[str] = []

        async def use(handle: JobHandle, out: list[str] = out, mode: str = mode) -> None:
            await asyncio.sleep(5)
            before = len(out)
            statistics = await handle.checkpoint()
            flowed[mode] = len(out) - before
            assert statistics.mode == mode
            assert statistics.alignment > 1
            raise asyncio.CancelledError

        job = _job(tmp_path / mode, out, slow_call=1.0, mode=mode)
        assert run_job(job, use=use) is None
        manifest = LocalStorage(tmp_path / mode, job="loose").load_manifest(1)
        assert manifest.mode == mode
        kinds = {section.kind for one in manifest.acknowledgements for section in one.sections}
        assert "channel" not in kinds
    assert flowed["at_least_once"] > flowed["aligned"] + 10


def test_records_behind_a_counted_barrier_come_again_after_a_restore_and_none_is_lost(
    tmp_path: Path,
) -> None:
    out: list[str] = []

    async def kill(handle: JobHandle) -> None:
        await asyncio.sleep(5)
        await handle.checkpoint()
        raise asyncio.CancelledError

    assert run_job(_job(tmp_path, out, slow_call=1.0), use=kill) is None
    result = run_job(_job(tmp_path, out))
    assert result is not None
    assert (result.outcome, result.restored_from) == ("finished", 1)
    expected = {f"F{i}" for i in range(200)} | {f"S{i}" for i in range(20)}
    counts = Counter(out)
    assert counts.keys() == expected
    assert max(counts.values()) == 2


@pytest.mark.parametrize(("mode", "wanted"), [("at_least_once", "aligned"), ("aligned", "")])
def test_mode_cannot_be_switched_from_or_to_at_least_once_while_the_job_runs(
    tmp_path: Path, mode: Any, wanted: Any
) -> None:
    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(1)
        with pytest.raises(sc.SettingsError, match=f"the job runs in mode '{mode}'.*stop it"):
            handle.set_mode(wanted or "at_least_once")
        assert handle.view().mode == mode
        assert (await handle.checkpoint()).mode == mode

    assert run_job(_job(tmp_path, [], mode=mode), use=use) is not None


def test_exactly_once_sink_is_refused_before_anything_starts(tmp_path: Path) -> None:
    job = sc.Job("x", checkpoints=sc.Checkpoints(to=tmp_path / "c", mode="at_least_once"))
    stream = job.source(letters(name="x", count=1, pause=0), name="letters")
    stream.sink(sc.files.json_lines(tmp_path / "out"), name="files")
    with pytest.raises(sc.BuildError, match=r"sink 'files' .*at_least_once"):
        job.start()
    assert not (tmp_path / "c").exists()
