"""Jobs whose checkpoints hold changes only: stopped, restored, rescaled, saved, and tidied up."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.runners.handle import JobHandle
from streamcp.storage import layout
from streamcp.storage.reading import StoredJob, files_of, referenced_sizes
from streamcp.storage.savepoints import StoredSavepoint
from tests.recovery.world import run_job

KEYS = 200
N = 600  # KEYS of them at once, then one after another


@dataclass
class Seen:
    numbers: list[int] = field(default_factory=list)


@sc.source(batches=True)
async def numbers(position: int = 0) -> AsyncIterator[tuple[list[int], int]]:
    while position < N:
        size = KEYS if position == 0 else 1
        if position:
            await asyncio.sleep(0.05)
        position += size
        yield list(range(position - size, position)), position


def note(number: int, state: Seen, context: sc.KeyContext[int]) -> list[tuple[int, list[int]]]:
    """Every seventh number clears the state of its key."""
    state.numbers.append(number)
    result = (context.key, [*state.numbers])
    if number % 7 == 0:
        context.clear_state()
    return [result]


async def note_later(
    number: int, state: Seen, context: sc.KeyContext[int]
) -> list[tuple[int, list[int]]]:
    await asyncio.sleep(0.01)
    return note(number, state, context)


def expected() -> list[tuple[int, list[int]]]:
    state: dict[int, list[int]] = {}
    results = []
    for number in range(N):
        held = state.setdefault(number % KEYS, [])
        held.append(number)
        results.append((number % KEYS, [*held]))
        if number % 7 == 0:
            del state[number % KEYS]
    return sorted(results)


class Place:
    """A job that writes to `results`, which outlive it."""

    def __init__(self, to: Path, function: Any = note) -> None:
        self.to = to
        self.function = function
        self.results: list[tuple[int, list[int]]] = []

    def job(self, parallelism: int = 2, **settings: Any) -> sc.Job:
        settings.setdefault("every", "1s")
        checkpoints = sc.Checkpoints(to=self.to, incremental=True, **settings)
        job = sc.Job("seen", checkpoints=checkpoints, types=[Seen])
        keyed = job.source(numbers(), name="numbers").key_by(lambda number: number % KEYS)
        noted = keyed.process(self.function, state=Seen, name="note", parallelism=parallelism)
        noted.for_each(self.results.append, name="out", parallelism=parallelism)
        return job

    @property
    def stored(self) -> StoredJob:
        return StoredJob(self.to / "seen")

    def newest(self) -> Any:
        return self.stored.load_manifest(self.stored.completed()[-1].checkpoint_id)


async def stop_soon(handle: JobHandle) -> None:
    await asyncio.sleep(7.5)
    await handle.stop()


@pytest.mark.parametrize("function", [note, note_later])
@pytest.mark.parametrize("parallelism", [2, 3])
def test_stopped_job_goes_on_from_a_chain_of_changes(
    tmp_path: Path, parallelism: int, function: Any
) -> None:
    place = Place(tmp_path, function)
    run_job(place.job(), use=stop_soon)
    manifest = place.newest()
    assert referenced_sizes(manifest)
    assert manifest.statistics["referenced_bytes"] > manifest.statistics["state_bytes"] > 0
    assert place.stored.verify(manifest.checkpoint_id) == []
    run_job(place.job(parallelism))
    assert sorted(place.results) == expected()


@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_first_checkpoint_of_an_attempt_refers_to_none_of_another_one(
    tmp_path: Path, mode: Any
) -> None:
    """Class numbers are given per attempt (P37)."""
    place = Place(tmp_path)
    run_job(place.job(mode=mode), use=stop_soon)
    before = place.stored.completed()[-1].checkpoint_id

    async def two_more(handle: JobHandle) -> None:
        await handle.checkpoint()
        assert not referenced_sizes(place.newest())
        await asyncio.sleep(0.2)
        await handle.checkpoint()
        owners = {layout.checkpoint_of_file(name) or 0 for name in files_of(place.newest())}
        assert min(owners) > before
        assert len(owners) == 2
        await handle.wait_finished()

    run_job(place.job(mode=mode, every=None), use=two_more)
    assert sorted(place.results) == expected()


def test_retention_leaves_the_files_that_kept_checkpoints_need_and_nothing_else(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)
    run_job(place.job(retain=1), use=stop_soon)
    [completed] = place.stored.completed()
    needed = files_of(place.newest())
    own = layout.checkpoint_directory(completed.checkpoint_id)
    directories = place.stored.directory.glob("chk-*/*")
    found = {f"{path.parent.name}/{path.name}" for path in directories}
    assert {name.partition("/")[0] for name in needed} > {own}
    assert found - needed == {f"{own}/{layout.METADATA}"}
    run_job(place.job(retain=1))
    assert sorted(place.results) == expected()
    [completed] = place.stored.completed()
    assert {path.name for path in place.stored.directory.glob("chk-*")} == {
        *(name.partition("/")[0] for name in files_of(place.newest())),
        layout.checkpoint_directory(completed.checkpoint_id),
    }


def test_savepoint_of_a_chain_holds_everything_itself(tmp_path: Path) -> None:
    place = Place(tmp_path / "old")

    async def stop(handle: JobHandle) -> None:
        await asyncio.sleep(7.5)
        await handle.stop(savepoint=tmp_path / "savepoints")

    run_job(place.job(), use=stop)
    assert referenced_sizes(place.newest())
    shutil.rmtree(tmp_path / "old")
    [path] = (tmp_path / "savepoints").iterdir()
    assert StoredSavepoint(path).verify() == []
    assert files_of(StoredSavepoint(path).load_manifest()) == {layout.SAVEPOINT_DATA}
    again = Place(tmp_path / "new")
    run_job(again.job(3), restore=path)
    assert sorted(place.results + again.results) == expected()


def test_checkpoints_that_overlap_build_on_complete_ones_only(tmp_path: Path) -> None:
    place = Place(tmp_path, note_later)
    settings: dict[str, Any] = {
        "every": "20ms",
        "mode": "aligned",
        "max_concurrent": 3,
        "retain": 1,
    }
    run_job(place.job(**settings), use=stop_soon)
    manifest = place.newest()
    assert place.stored.verify(manifest.checkpoint_id) == []
    assert referenced_sizes(manifest)
    run_job(place.job(**settings))
    assert sorted(place.results) == expected()


def test_state_of_a_step_that_is_gone_is_told_without_counting_changes_as_keys(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)
    run_job(place.job(), use=stop_soon)
    other = sc.Job("seen", checkpoints=sc.Checkpoints(to=tmp_path))
    other.source(numbers(), name="numbers").for_each(print, name="out")
    with pytest.raises(sc.RestoreRefused, match=r"step 'note': state of up to \d+ keys"):
        run_job(other)
