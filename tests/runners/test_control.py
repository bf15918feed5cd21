"""Asking a running job for things from another process."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

import streamcp as sc
from streamcp.runners.control import answered, ask
from streamcp.runners.handle import JobHandle
from streamcp.storage.savepoints import StoredSavepoint
from tests.runtime.engine import until

pytestmark = pytest.mark.asyncio


@sc.source
async def endless(position: int = 0) -> AsyncIterator[tuple[int, int]]:
    yield position, position + 1
    await asyncio.Event().wait()


def make_job(directory: Path, **options: Any) -> sc.Job:
    job = sc.Job("words", checkpoints=sc.Checkpoints(to=directory, **options))
    job.source(endless(), name="in").sink(sc.discard(), name="out")
    return job


@asynccontextmanager
async def running(directory: Path, **options: Any) -> AsyncIterator[JobHandle]:
    """A job that can be asked."""
    async with make_job(directory).start(**options) as handle:
        await until((directory / "words" / "control" / "socket").exists)
        yield handle


async def asked(directory: Path, command: str, **arguments: Any) -> Any:
    return await asyncio.to_thread(partial(ask, directory / "words", command, **arguments))


async def test_checkpoint_is_taken_and_its_figures_are_answered(tmp_path: Path) -> None:
    async with running(tmp_path) as handle:
        figures = await asked(tmp_path, "checkpoint")
        assert figures["outcome"] == "completed"
        assert handle.view().last_checkpoint == figures["checkpoint_id"]


async def test_savepoint_is_taken_in_the_mode_that_is_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path):
        target = str(tmp_path / "saved")
        saved = await asked(tmp_path, "savepoint", target=target, mode="unaligned")
        assert StoredSavepoint(Path(saved["path"])).load_manifest().mode == "unaligned"
        assert saved["statistics"]["mode"] == "unaligned"


async def test_stop_answers_with_the_result_and_removes_the_socket(tmp_path: Path) -> None:
    async with running(tmp_path) as handle:
        result = await asked(tmp_path, "stop", savepoint=str(tmp_path / "saved"))
        assert result["outcome"] == "stopped"
        assert result["savepoint"] == str(tmp_path / "saved" / "words-1")
        await handle.wait_finished()
    assert not (tmp_path / "words" / "control").exists()
    with pytest.raises(sc.StreamcpError, match="no job runs in"):
        await asked(tmp_path, "checkpoint")


async def test_mode_is_changed_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as handle:
        assert await asked(tmp_path, "mode", mode="aligned") == {"mode": "aligned"}
        assert handle.view().mode == "aligned"
        with pytest.raises(sc.SettingsError, match="choose one of"):
            await asked(tmp_path, "mode", mode="sideways")


async def test_failure_is_answered_and_the_job_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    async with running(tmp_path) as handle:
        for command, name in (("savepoint", "target"), ("stop", "savepoint")):
            with pytest.raises(sc.StreamcpError, match="no savepoint could be made"):
                await asked(tmp_path, command, **{name: str(tmp_path / "file")})
        assert handle.view().state == "running"


@pytest.mark.parametrize("line", [b"?", b"[]", b'{"command": "fly"}', b'{"command": "mode"}'])
async def test_whatever_is_sent_gets_an_error_as_answer(tmp_path: Path, line: bytes) -> None:
    async with make_job(tmp_path).start() as handle:
        assert set(await answered(handle, line)) == {"error", "kind"}


async def test_several_requests_go_over_one_connection(tmp_path: Path) -> None:
    async with running(tmp_path):
        path = str(tmp_path / "words" / "control" / "socket")
        reader, writer = await asyncio.open_unix_connection(path)
        for _ in range(2):
            writer.write(b'{"command": "checkpoint"}\n')
            assert "result" in orjson.loads(await reader.readline())
        writer.close()


async def test_idle_connection_does_not_keep_a_job_from_its_end(tmp_path: Path) -> None:
    async with running(tmp_path) as handle:
        path = str(tmp_path / "words" / "control" / "socket")
        reader, writer = await asyncio.open_unix_connection(path)
        await handle.stop()
    assert await reader.read() == b""
    writer.close()


async def test_only_the_owner_may_enter(tmp_path: Path) -> None:
    async with running(tmp_path):
        mode = (tmp_path / "words" / "control").stat().st_mode
        assert stat.S_IMODE(mode) == 0o700


async def test_socket_of_a_killed_job_is_told_from_a_running_one_and_replaced(
    tmp_path: Path,
) -> None:
    place = tmp_path / "words" / "control"
    place.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(place / "socket"))
    with pytest.raises(sc.StreamcpError, match="no job runs in"):
        await asked(tmp_path, "checkpoint")
    async with make_job(tmp_path).start() as handle:
        await handle.checkpoint()
        assert (await asked(tmp_path, "checkpoint"))["checkpoint_id"] == 2


async def test_long_path_is_no_obstacle(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100) / ("y" * 100)
    deep.mkdir(parents=True)
    async with running(deep):
        assert (await asked(deep, "checkpoint"))["outcome"] == "completed"
    assert not (deep / "words" / "control").exists()


async def test_socket_that_cannot_be_made_does_not_harm_the_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "control").touch()
    async with make_job(tmp_path).start() as handle:
        await handle.checkpoint()
    assert "cannot be asked for anything" in caplog.text


async def test_copy_that_took_over_keeps_its_socket_when_the_old_one_ends(tmp_path: Path) -> None:
    path = tmp_path / "words" / "control" / "socket"
    taken_over = asyncio.Event()

    async def old_copy() -> None:
        async with running(tmp_path) as old:
            await taken_over.wait()
            await old.checkpoint()

    old = asyncio.ensure_future(old_copy())
    await until(path.exists)
    first = path.stat().st_ino
    async with make_job(tmp_path).start(take_over=True):
        await until(lambda: path.exists() and path.stat().st_ino != first)
        taken_over.set()
        with pytest.raises((sc.Fenced, sc.CheckpointFailed)):
            await old
        assert (await asked(tmp_path, "checkpoint"))["outcome"] == "completed"


async def test_job_without_checkpoints_has_no_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = sc.Job("words")
    job.source(endless(), name="in").sink(sc.discard(), name="out")
    async with job.start() as handle:
        await handle.stop()
    assert os.listdir(tmp_path) == []
