"""Savepoints of running jobs, with records in flight, in every mode; jobs that begin from them."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.observability import events
from streamcp.runners.handle import JobHandle
from streamcp.runners.savepoints import Savepoint
from streamcp.storage.savepoints import StoredSavepoint
from tests.recovery.world import Copies, Target, happened, run_job, staged, transactional

N = 200
MODES = ("aligned", "unaligned", "adaptive")
SINKS = {"transactional": transactional, "staged": staged}


@sc.source
async def numbers(position: int = 0) -> AsyncIterator[Any]:
    for i in range(position, N):
        await asyncio.sleep(0.1)
        yield i, i + 1


async def slowly(number: int) -> list[int]:
    await asyncio.sleep(0.5)
    return [number]


class Place:
    """A directory of checkpoints and the target that its job writes to."""

    def __init__(self, root: Path, target: Target | None = None) -> None:
        self.root = root
        self.target = target or Target()

    def job(self, sink: Any = transactional, **checkpoints: Any) -> sc.Job:
        job = sc.Job(
            "words",
            checkpoints=sc.Checkpoints(to=self.root, every="1s", **checkpoints),
            restart=sc.Restart.fixed_delay(attempts=5, delay="2s"),
        )
        stream = job.source(numbers(), name="numbers").rebalance()
        called = stream.map(slowly, name="slowly", concurrency=3)
        called.rebalance().sink(sink(self.target), name="out")
        return job

    def numbers(self) -> Counter[int]:
        return Counter(record[0] for record in self.target.records("out"))


Use = Callable[[JobHandle], Awaitable[Any]]


def stopping(target: Path, found: list[Path | None] | None = None, **options: Any) -> Use:
    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(8)
        result = await handle.stop(savepoint=target, **options)
        assert result.outcome == "stopped"
        if found is not None:
            found.append(result.savepoint)

    return use


def saving(target: Path, found: list[Savepoint], **options: Any) -> Use:
    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(8)
        found.append(await handle.savepoint(target, **options))
        await handle.wait_finished()

    return use


# ---- stopping with a savepoint, and beginning from it


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sink", SINKS)
def test_job_stopped_with_a_savepoint_goes_on_from_it_elsewhere_exactly_once(
    tmp_path: Path, mode: Any, sink: str
) -> None:
    """With records in flight and calls outstanding at the cut (I1, I2)."""
    old, found = Place(tmp_path / "old"), list[Path | None]()
    run_job(old.job(SINKS[sink], mode=mode), use=stopping(tmp_path / "savepoints", found))
    [path] = found
    assert path is not None
    before = old.numbers()
    assert set(before.values()) == {1}
    assert len(before) < N
    shutil.rmtree(tmp_path / "old")

    new = Place(tmp_path / "new", old.target)
    result = run_job(new.job(SINKS[sink], mode=mode), restore=path)
    assert result is not None
    assert result.outcome == "finished"
    assert new.numbers() == Counter(range(N))
    manifest = StoredSavepoint(path).load_manifest()
    assert manifest.statistics["in_flight_records"] > 0
    assert result.restored_from == manifest.checkpoint_id
    assert result.last_checkpoint is not None
    assert result.last_checkpoint > manifest.checkpoint_id


def test_stopped_job_begins_from_the_savepoint_in_its_own_directory_too(tmp_path: Path) -> None:
    place, found = Place(tmp_path / "job"), list[Path | None]()
    run_job(place.job(), use=stopping(tmp_path / "savepoints", found))
    result = run_job(place.job(), restore=found[0])
    assert result is not None
    assert result.outcome == "finished"
    assert place.numbers() == Counter(range(N))


def test_savepoint_replaces_the_damaged_checkpoint_that_it_is_a_copy_of(tmp_path: Path) -> None:
    place, found = Place(tmp_path / "job"), list[Path | None]()
    run_job(place.job(retain=1), use=stopping(tmp_path / "savepoints", found))
    for file in (tmp_path / "job").glob("*/chk-*/*"):
        file.write_bytes(b"?")
    result = run_job(place.job(), restore=found[0])
    assert result is not None
    assert place.numbers() == Counter(range(N))


# ---- a savepoint while the job goes on: two jobs with one past


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sink", SINKS)
def test_job_goes_on_after_a_savepoint_and_neither_touches_what_the_other_writes(
    tmp_path: Path, mode: Any, sink: str
) -> None:
    """Both commit what the savepoint names, once; nobody aborts what is the other's (P30)."""
    old, copies = Place(tmp_path / "old"), Copies()
    new = Place(tmp_path / "new", old.target)

    async def main() -> None:
        handle, task = copies.start(old.job(SINKS[sink]))
        await asyncio.sleep(8)
        taken = await handle.savepoint(tmp_path / "savepoints", mode=mode)
        fork, forked = copies.start(new.job(SINKS[sink]), restore=taken.path)
        await happened(fork, events.JobRestored)
        assert (await task).outcome == (await forked).outcome == "finished"

    copies.run(main)
    names = [set[int](), set[int]()]
    for name, records in old.target.committed.items():
        own = [record[0] for record in records]
        assert len(own) == len(set(own))
        names["~" in name] |= set(own)
    common = names[0] - names[1]
    assert old.numbers() == Counter(range(N)) + Counter(set(range(N)) - common)
    assert names[0] == set(range(N))
    assert 0 < len(common) < N
    # A staged one may be delivered by both: committed once, it stays as it was.
    assert set(old.target.open) <= set(old.target.committed)


def test_restarts_of_both_jobs_abort_their_own_transactions_only(tmp_path: Path) -> None:
    old, found = Place(tmp_path / "old"), list[Savepoint]()
    new = Place(tmp_path / "new", old.target)

    async def killed(handle: JobHandle) -> None:
        await asyncio.sleep(8)
        found.append(await handle.savepoint(tmp_path / "savepoints"))
        await asyncio.sleep(1.55)
        raise asyncio.CancelledError

    async def soon_killed(handle: JobHandle) -> None:
        await asyncio.sleep(3.55)
        raise asyncio.CancelledError

    assert run_job(old.job(), use=killed) is None
    left = set(old.target.open)
    assert left
    assert run_job(new.job(), restore=found[0].path, use=soon_killed) is None
    assert left <= set(old.target.open) | set(old.target.committed), "the fork aborted them"
    forked = {name for name in old.target.open if "~" in name}
    assert forked
    assert run_job(old.job()) is not None
    assert forked <= set(old.target.open), "the job that went on aborted those of the fork"
    assert run_job(new.job()) is not None
    assert old.target.open == {}
    counts = old.numbers()
    assert set(counts) == set(range(N))
    assert set(counts.values()) == {1, 2}


def test_savepoint_does_not_refer_to_the_job_and_is_not_removed_with_it(tmp_path: Path) -> None:
    place, found = Place(tmp_path / "job"), list[Savepoint]()
    result = run_job(place.job(retain=1), use=saving(tmp_path / "savepoints", found))
    assert result is not None
    assert result.completed_checkpoints > 3
    shutil.rmtree(tmp_path / "job")
    [taken] = found
    assert StoredSavepoint(taken.path).verify() == []
    assert taken.path.name == f"words-{taken.statistics.checkpoint_id}"
    assert taken.statistics.outcome == "completed"


@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_savepoint_is_taken_in_the_mode_that_was_asked_for(tmp_path: Path, mode: Any) -> None:
    other: Any = {"aligned": "unaligned", "unaligned": "aligned"}[mode]
    place, found = Place(tmp_path / "job"), list[Savepoint]()
    run_job(place.job(mode=other), use=saving(tmp_path / "savepoints", found, mode=mode))
    assert found[0].statistics.mode == mode
    assert StoredSavepoint(found[0].path).load_manifest().mode == mode


def test_savepoints_asked_for_together_share_an_aligned_checkpoint(tmp_path: Path) -> None:
    place, found = Place(tmp_path / "job"), list[Savepoint]()

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(8)
        target = tmp_path / "savepoints"
        found.extend(
            await asyncio.gather(
                handle.savepoint(target, mode="unaligned"),
                handle.savepoint(target, mode="aligned"),
            )
        )
        await handle.stop()

    run_job(place.job(mode="unaligned"), use=use)
    assert [one.statistics.mode for one in found] == ["aligned", "aligned"]
    assert len({one.statistics.checkpoint_id for one in found}) == 1
    assert len({one.path for one in found}) == 2


# ---- failures


@pytest.mark.parametrize("stop", [False, True])
def test_savepoint_that_cannot_be_written_leaves_the_job_running_and_nothing_behind(
    tmp_path: Path, stop: bool
) -> None:
    """Also when it was to stop: its subtasks go on (P33)."""
    place, sentences = Place(tmp_path / "job"), list[str]()
    (tmp_path / "file").touch()

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(8)
        taking: Any = handle.stop(savepoint=tmp_path / "file") if stop else None
        with pytest.raises(sc.CheckpointFailed) as failed:
            await (taking or handle.savepoint(tmp_path / "file"))
        sentences.append(str(failed.value))
        assert handle.view().state == "running"

    result = run_job(place.job(), use=use)
    assert result is not None
    assert (result.outcome, result.attempts) == ("finished", 1)
    assert result.failed_checkpoints == 0
    assert place.numbers() == Counter(range(N))
    assert "is complete, but no savepoint could be made of it" in sentences[0]
    assert str(tmp_path / "file") in sentences[0]
    assert sorted(os.listdir(tmp_path)) == ["file", "job"]


def test_stop_that_failed_can_be_repeated(tmp_path: Path) -> None:
    place, found = Place(tmp_path / "job"), list[Path | None]()
    (tmp_path / "file").touch()

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(8)
        with pytest.raises(sc.CheckpointFailed):
            await handle.stop(savepoint=tmp_path / "file")
        await stopping(tmp_path / "savepoints", found)(handle)

    run_job(place.job(), use=use)
    run_job(place.job(), restore=found[0])
    assert place.numbers() == Counter(range(N))


def test_cancelled_stop_with_a_savepoint_lets_the_job_go_on(tmp_path: Path) -> None:
    place = Place(tmp_path / "job")

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(8)
        stop = asyncio.ensure_future(handle.stop(savepoint=tmp_path / "savepoints"))
        await asyncio.sleep(0)
        stop.cancel()
        await handle.wait_finished()

    result = run_job(place.job(retain=1), use=use)
    assert result is not None
    assert result.outcome == "finished"
    assert place.numbers() == Counter(range(N))
    assert not (tmp_path / "savepoints").exists()


def test_stop_without_a_savepoint_wins_over_one_that_fails(tmp_path: Path) -> None:
    place = Place(tmp_path / "job")
    (tmp_path / "file").touch()

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(8)
        plain, saved = await asyncio.gather(
            handle.stop(), handle.stop(savepoint=tmp_path / "file"), return_exceptions=True
        )
        assert getattr(plain, "outcome", None) == "stopped"
        assert isinstance(saved, sc.CheckpointFailed)

    result = run_job(place.job(), use=use)
    assert result is not None
    assert result.outcome == "stopped"


def test_copy_that_was_taken_over_from_makes_no_savepoint(tmp_path: Path) -> None:
    place, copies = Place(tmp_path / "job"), Copies()

    async def main() -> None:
        old, old_task = copies.start(place.job())
        await asyncio.sleep(5)
        new, new_task = copies.start(place.job(), take_over=True)
        await happened(new, events.JobRestored)
        with pytest.raises((sc.Fenced, sc.CheckpointFailed)):
            await old.savepoint(tmp_path / "savepoints")
        with pytest.raises(sc.Fenced):
            await old_task
        await new_task

    copies.run(main)
    assert not (tmp_path / "savepoints").exists()
    assert place.numbers() == Counter(range(N))


def test_job_without_checkpoints_has_no_savepoints(tmp_path: Path) -> None:
    job = sc.Job("words")
    job.source(numbers(), name="numbers").sink(sc.discard(), name="out")

    async def use(handle: JobHandle) -> None:
        for taking in (handle.savepoint(tmp_path), handle.stop(savepoint=tmp_path)):
            with pytest.raises(sc.StreamcpError, match="has no checkpoints"):
                await taking

    run_job(job, use=use)


def test_wrong_mode_is_an_error_at_the_call(tmp_path: Path) -> None:
    wrong: Any = "sideways"

    async def use(handle: JobHandle) -> None:
        for taking in (
            handle.savepoint(tmp_path, mode=wrong),
            handle.stop(savepoint=tmp_path, mode=wrong),
            handle.savepoint(tmp_path, mode="at_least_once"),
            handle.stop(mode="aligned"),
        ):
            with pytest.raises(sc.SettingsError, match=r"mode|choose one of"):
                await taking

    run_job(Place(tmp_path / "job").job(), use=use)


# ---- beginning


def saved_job(tmp_path: Path) -> tuple[Place, Path]:
    """A job that was killed a while after its savepoint."""
    place, found = Place(tmp_path / "job"), list[Savepoint]()

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(8)
        found.append(await handle.savepoint(tmp_path / "savepoints"))
        await asyncio.sleep(3)
        raise asyncio.CancelledError

    assert run_job(place.job(), use=use) is None
    return place, found[0].path


def stopped_job(tmp_path: Path) -> tuple[Place, Path]:
    """A new place that shares the target of a job that was stopped with a savepoint."""
    old, found = Place(tmp_path / "old"), list[Path | None]()
    run_job(old.job(), use=stopping(tmp_path / "savepoints", found))
    assert found[0] is not None
    return Place(tmp_path / "new", old.target), found[0]


def test_job_with_newer_checkpoints_of_its_own_refuses_and_says_what_to_do(tmp_path: Path) -> None:
    place, path = saved_job(tmp_path)
    with pytest.raises(sc.RestoreRefused, match=r"checkpoints of its own.*--from.*--fresh"):
        run_job(place.job(), restore=path)
    result = run_job(place.job())
    assert result is not None
    assert place.numbers() == Counter(range(N)), "the refusal changed nothing"


def test_fresh_goes_back_to_the_savepoint_and_ids_keep_increasing(tmp_path: Path) -> None:
    place, path = saved_job(tmp_path)
    cut = set(place.numbers())
    before = StoredSavepoint(path).load_manifest().checkpoint_id
    result = run_job(place.job(), restore=path, fresh=True)
    assert result is not None
    assert (result.outcome, result.restored_from) == ("finished", before)
    assert place.target.open == {}, "what the job itself had left open is aborted"
    counts = place.numbers()
    assert set(counts) == set(range(N))
    assert {n for n, count in counts.items() if count == 2} <= cut, "written again, as told"
    ids = [int(one.name[4:]) for one in (tmp_path / "job").glob("*/chk-*")]
    assert min(ids) > before


def test_own_later_checkpoints_win_on_the_next_restart(tmp_path: Path) -> None:
    new, path = stopped_job(tmp_path)

    async def fail(handle: JobHandle) -> None:
        await asyncio.sleep(5)
        raise asyncio.CancelledError

    assert run_job(new.job(), restore=path, use=fail) is None
    with pytest.raises(sc.RestoreRefused, match="checkpoints of its own"):
        run_job(new.job(), restore=path)
    result = run_job(new.job())
    assert result is not None
    saved = StoredSavepoint(path).load_manifest().checkpoint_id
    assert result.restored_from is not None
    assert result.restored_from > saved
    assert new.numbers() == Counter(range(N))


def test_failed_job_restarts_from_the_savepoint_until_it_has_a_checkpoint(tmp_path: Path) -> None:
    new, path = stopped_job(tmp_path)
    failures = ["first", "second"]

    class Failing:
        def __init__(self, sink: Any) -> None:
            self._sink = sink

        async def write(self, records: Any, transaction: Any) -> None:
            if failures:
                failures.pop()
                raise ConnectionError("away")
            await self._sink.write(records, transaction)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._sink, name)

        async def prepare(self, transaction: Any) -> Any:
            return await self._sink.prepare(transaction)

        async def commit(self, transaction: Any, token: Any) -> None:
            await self._sink.commit(transaction, token)

        async def abort(self, transaction: Any) -> None:
            await self._sink.abort(transaction)

    def sink(target: Target) -> Any:
        return lambda: Failing(transactional(target)())

    result = run_job(new.job(sink), restore=path)
    assert result is not None
    assert (result.outcome, result.attempts) == ("finished", 3)
    assert new.numbers() == Counter(range(N))


def test_job_that_forgets_its_savepoint_is_told_so(tmp_path: Path) -> None:
    """It has begun from one and completed nothing since: it must not begin from nothing."""
    new, path = stopped_job(tmp_path)

    async def kill(handle: JobHandle) -> None:
        await happened(handle, events.JobRestored)
        raise asyncio.CancelledError

    assert run_job(new.job(), restore=path, use=kill) is None
    with pytest.raises(sc.RestoreRefused, match=rf"{path}.*--from {path}.*--fresh"):
        run_job(new.job())
    assert run_job(new.job(), restore=path) is not None
    assert new.numbers() == Counter(range(N))


@pytest.mark.parametrize("other", ["nothing", "checkpoint"])
def test_what_is_no_savepoint_is_refused_before_anything_is_touched(
    tmp_path: Path, other: str
) -> None:
    _, path = saved_job(tmp_path)
    wrong = path.parent if other == "nothing" else next((tmp_path / "job").glob("*/chk-*"))
    with pytest.raises(sc.StorageError, match="is no savepoint"):
        run_job(Place(tmp_path / "new").job(), restore=wrong)
    assert not (tmp_path / "new").exists()


def test_job_without_checkpoints_begins_from_a_savepoint(tmp_path: Path) -> None:
    place, path = stopped_job(tmp_path)
    job = sc.Job("words")
    stream = job.source(numbers(), name="numbers").rebalance()
    called = stream.map(slowly, name="slowly", concurrency=3)
    called.rebalance().sink(transactional(place.target), name="out")
    result = run_job(job, restore=path)
    assert result is not None
    assert result.outcome == "finished"
    assert place.numbers() == Counter(range(N))
