"""Checkpoints that fail, each for its own reason: the job goes on, and a later one completes."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import streamcp as sc
from streamcp.durable_files import LOCAL_FILES, explain
from streamcp.observability import events
from streamcp.runners.handle import JobHandle
from tests.recovery.world import Target, happened, run_job, staged, transactional


@sc.source
async def numbers(position: int = 0, *, count: int, pause: float = 0.0) -> AsyncIterator[Any]:
    for i in range(position, count):
        if pause:
            await asyncio.sleep(pause)
        yield i, i + 1


def _job(directory: Path, sink: Any, *, pause: float = 0.1, **settings: Any) -> sc.Job:
    checkpoints = sc.Checkpoints(to=directory / "checkpoints", **settings)
    job = sc.Job("failing", checkpoints=checkpoints, channel_capacity=10)
    stream = job.source(numbers(count=100, pause=pause), name="numbers")
    stream.map(lambda n: [n]).rebalance().sink(sink, name="out")
    return job


def _expect_each_once(records: Sequence[Any]) -> None:
    assert Counter(record[0] for record in records) == Counter(range(100))


class FailingDisk:
    """Fails calls of one method of `DurableFiles` while `failing`."""

    def __init__(self, function: str, number: int) -> None:
        self.failing = False
        self._error = number
        self._real: Callable[..., Any] = getattr(LOCAL_FILES, function)

    def __call__(self, path: Path, *arguments: Any, **options: Any) -> Any:
        if self.failing and "checkpoints" in str(path):
            raise explain("written", path, OSError(self._error, "injected"))
        return self._real(path, *arguments, **options)


@pytest.mark.parametrize("make", [transactional, staged])
@pytest.mark.parametrize(
    ("function", "number", "cause"),
    [
        ("_create", errno.ENOSPC, "disk full"),
        ("_create", errno.EACCES, "permission denied"),
        ("make_directory", errno.EROFS, "read-only"),
        ("link_new", errno.EIO, "input/output error"),
        ("open_directory", errno.EIO, "input/output error"),
    ],
)
def test_disk_that_fails_for_a_while_fails_checkpoints_by_name_and_the_job_goes_on(
    tmp_path: Path, make: Any, function: str, number: int, cause: str
) -> None:
    target, disk = Target(), FailingDisk(function, number)

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(1)
        disk.failing = True
        for _ in range(2):
            with pytest.raises(sc.CheckpointFailed, match=cause):
                await handle.checkpoint()
            await asyncio.sleep(1)
        disk.failing = False
        await handle.checkpoint()
        await asyncio.sleep(0.5)
        assert target.committed

    with mock.patch.object(LOCAL_FILES, function, disk):
        result = run_job(_job(tmp_path, make(target)), use=use)
    assert result is not None
    assert result.failed_checkpoints == 2
    assert result.attempts == 1
    _expect_each_once(target.records("out"))


def test_more_failures_in_a_row_than_are_tolerable_fail_the_job_which_recovers(
    tmp_path: Path,
) -> None:
    target, disk = Target(), FailingDisk("_create", errno.ENOSPC)

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(1)
        await handle.checkpoint()
        disk.failing = True
        await happened(handle, events.JobRestarting)
        disk.failing = False

    job = _job(tmp_path, transactional(target), every="500ms", tolerable_failures=2)
    with mock.patch.object(LOCAL_FILES, "_create", disk):
        result = run_job(job, use=use, restart=sc.Restart.fixed_delay(attempts=1, delay="3s"))
    assert result is not None
    assert result.attempts == 2
    assert result.failed_checkpoints >= 3
    _expect_each_once(target.records("out"))


def test_aligned_checkpoint_that_expires_ends_and_an_unaligned_one_completes(
    tmp_path: Path,
) -> None:
    """FLINK-23201 = flink#16361 (case 28): a barrier that is cancelled on its way leaves no odd
    figures behind."""
    written: list[Any] = []

    async def slow(records: Sequence[Any]) -> None:
        await asyncio.sleep(30)
        written.extend(records)

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(10)
        with pytest.raises(sc.CheckpointFailed, match=r"longer than the checkpoint timeout.*out"):
            await handle.checkpoint()
        handle.set_mode("unaligned")
        statistics = await handle.checkpoint()
        assert statistics.mode == "unaligned"
        assert 0 <= statistics.barrier_delay < 1

    job = _job(tmp_path, slow, pause=0.0, mode="aligned", timeout="5s")
    result = run_job(job, use=use)
    assert result is not None
    assert result.failed_checkpoints == 1
    _expect_each_once(written)


class NotDeclared:
    """Neither a data class nor known to the job."""

    def __init__(self, number: int) -> None:
        self.number = number


def test_record_that_could_not_be_read_back_declines_the_checkpoint_naming_step_and_class(
    tmp_path: Path,
) -> None:
    written: list[int] = []

    async def write(records: Sequence[NotDeclared]) -> None:
        await asyncio.sleep(5)
        written.extend(record.number for record in records)

    def wrap(number: Any) -> Any:
        return NotDeclared(number)

    job = sc.Job("odd", checkpoints=sc.Checkpoints(to=tmp_path, mode="unaligned"), strict=False)
    stream = job.source(numbers(count=10), name="numbers").map(wrap)
    stream.sink(write, name="out")

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(1)
        with pytest.raises(sc.CheckpointFailed) as caught:
            await handle.checkpoint()
        for part in ("'out'", "NotDeclared", "codec"):
            assert part in str(caught.value)
        await asyncio.sleep(10)
        await handle.checkpoint()  # nothing of it is in flight any more

    result = run_job(job, use=use)
    assert result is not None
    assert result.attempts == 1
    assert written == list(range(10))


def _damage(directory: Path) -> str:
    """Change a byte in the newest data file; return its name."""
    files = sorted(
        (file for file in directory.rglob("*") if file.is_file() and file.stat().st_size > 0),
        key=lambda file: (file.parent.name, file.name),
    )
    newest = [file for file in files if file.name.startswith("data")][-1]
    raw = bytearray(newest.read_bytes())
    raw[-3] ^= 0xFF
    newest.write_bytes(raw)
    return newest.name


async def _two_checkpoints(handle: JobHandle) -> None:
    for _ in range(2):
        await asyncio.sleep(2)
        await handle.checkpoint()
    await asyncio.sleep(0.05)
    raise asyncio.CancelledError


@pytest.mark.parametrize("make", [transactional, staged])
def test_damaged_newest_checkpoint_is_refused_where_output_would_be_doubled(
    tmp_path: Path, make: Any
) -> None:
    target = Target()
    assert run_job(_job(tmp_path, make(target)), use=_two_checkpoints) is None
    _damage(tmp_path / "checkpoints")
    with pytest.raises(sc.RestoreRefused, match=r"'out'.*accept_duplicates"):
        run_job(_job(tmp_path, make(target)))
    result = run_job(_job(tmp_path, make(target)), accept_duplicates=True)
    assert result is not None
    assert result.restored_from == 1
    counts = Counter(record[0] for record in target.records("out"))
    assert counts.keys() == set(range(100))
    assert max(counts.values()) == 2


def test_damaged_newest_checkpoint_is_passed_over_where_sinks_write_at_least_once(
    tmp_path: Path,
) -> None:
    written: list[Any] = []

    async def write(records: Sequence[Any]) -> None:
        written.extend(records)

    assert run_job(_job(tmp_path, write), use=_two_checkpoints) is None
    _damage(tmp_path / "checkpoints")
    result = run_job(_job(tmp_path, write))
    assert result is not None
    assert result.restored_from == 1
    assert {record[0] for record in written} == set(range(100))
