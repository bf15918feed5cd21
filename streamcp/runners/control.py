"""Asking a running job for things from another process: JSON lines over a socket in its directory.

The socket is a file below the job's directory of checkpoints, in a directory that only its owner
may enter; it is made when the job runs, thus by the one who holds the job's lock, and removed at
the end. A request is one line, `{"command": ..., <arguments>}`, and so is the answer:
`{"result": ...}`, or `{"error": text, "kind": class of the error}`. A socket that cannot be made
never harms the job.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from streamcp.errors import SettingsError, StreamcpError
from streamcp.runners.handle import JobHandle, JobResult
from streamcp.runners.life import JobLife
from streamcp.storage import layout

_logger = logging.getLogger(__name__)

# What fits into the address of a socket, on every system.
_LONGEST_ADDRESS = 100


# ---- the job's side


async def serve(life: JobLife, handle: JobHandle, task: asyncio.Task[JobResult]) -> None:
    """Answer requests from when the job runs until it has ended, and those that it ends by."""
    await life.wait_running()
    if life.directory is None or task.done():
        return
    place = life.directory / layout.CONTROL
    try:
        listening = _listen(place)
    except OSError as error:
        _logger.warning("job %s cannot be asked for anything: %s: %s", life.job, place, error)
        return
    inode = (place / layout.SOCKET).stat().st_ino
    try:
        await _Server(handle).run(listening, task)
    finally:
        _remove(place, inode)


def _listen(place: Path) -> socket.socket:
    """Make the socket anew: whoever made the one that is there no longer has the job's lock."""
    place.mkdir(mode=0o700, exist_ok=True)
    place.chmod(0o700)
    (place / layout.SOCKET).unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    try:
        with _address(place) as address:
            listening.bind(address)
    except OSError:
        listening.close()
        raise
    return listening


@contextlib.contextmanager
def _address(place: Path) -> Iterator[str]:
    """Name the socket, however long the path is: the address of a socket must be short."""
    path = str(place / layout.SOCKET)
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        yield path
        return
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{layout.SOCKET}"
    finally:
        os.close(descriptor)


def _remove(place: Path, inode: int) -> None:
    """Remove the socket, unless another copy of the job has made its own."""
    path = place / layout.SOCKET
    with contextlib.suppress(OSError):
        if path.stat().st_ino == inode:
            path.unlink()
            place.rmdir()


class _Server:
    """Answers the connections to one job."""

    def __init__(self, handle: JobHandle) -> None:
        self._handle = handle
        self._waiting: set[asyncio.StreamWriter] = set()
        self._answering: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def run(self, listening: socket.socket, job: asyncio.Task[JobResult]) -> None:
        """Serve until the job has ended and every request is answered."""
        server = await asyncio.start_unix_server(self._connected, sock=listening)
        try:
            await asyncio.wait([job])
            if self._answering:
                await asyncio.wait(self._answering)
        finally:
            server.close()
            self._closed = True
            for writer in self._waiting:
                writer.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:  # accepted in the moment in which the job ended
            writer.close()
            return
        self._waiting.add(writer)
        try:
            # A client that goes away has its request carried out all the same.
            with contextlib.suppress(ConnectionError, ValueError):
                while line := await reader.readline():
                    await self._answer(line, writer)
        finally:
            self._waiting.discard(writer)
            writer.close()

    async def _answer(self, line: bytes, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        try:
            answer = await answered(self._handle, line)
            writer.write(orjson.dumps(answer, default=str, option=orjson.OPT_APPEND_NEWLINE))
            await writer.drain()
        finally:
            self._answering.discard(task)


async def answered(handle: JobHandle, line: bytes) -> dict[str, Any]:
    """Carry out the request `line` and make its answer; raises nothing."""
    try:
        request = orjson.loads(line)
        carry_out = _COMMANDS[request.pop("command")]
        return {"result": await carry_out(handle, **request)}
    except StreamcpError as error:
        return {"error": str(error), "kind": type(error).__name__}
    # What another process sends may be anything; what ends the job is shown there.
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "kind": "StreamcpError"}


async def _checkpoint(handle: JobHandle) -> dict[str, Any]:
    return (await handle.checkpoint()).as_dict()


async def _savepoint(handle: JobHandle, *, target: str, mode: Any = None) -> dict[str, Any]:
    saved = await handle.savepoint(target, mode=mode)
    return {"path": str(saved.path), "statistics": saved.statistics.as_dict()}


async def _stop(
    handle: JobHandle, *, savepoint: str | None = None, mode: Any = None, drain: bool = False
) -> dict[str, Any]:
    return dataclasses.asdict(await handle.stop(savepoint=savepoint, mode=mode, drain=drain))


async def _mode(handle: JobHandle, *, mode: Any) -> dict[str, Any]:
    handle.set_mode(mode)
    return {"mode": mode}


_COMMANDS: Mapping[str, Callable[..., Awaitable[dict[str, Any]]]] = {
    "checkpoint": _checkpoint,
    "savepoint": _savepoint,
    "stop": _stop,
    "mode": _mode,
}


# ---- the other side


def ask(directory: Path, command: str, **arguments: Any) -> dict[str, Any]:
    """Ask the job whose checkpoints are in `directory`, and wait for its answer; blocks.

    Raises StreamcpError if no job runs there, if it ends before it answers, or with what the job
    answers; SettingsError if that is about a value."""
    request = orjson.dumps({"command": command, **arguments}, option=orjson.OPT_APPEND_NEWLINE)
    with _connected_to(directory) as connection, connection.makefile("rb") as answers:
        try:
            connection.sendall(request)
            line = answers.readline()
        except ConnectionError:
            line = b""
    if not line:
        raise StreamcpError(f"the job in {directory} ended before it answered")
    answer = orjson.loads(line)
    if "error" in answer:
        kind = SettingsError if answer["kind"] == "SettingsError" else StreamcpError
        raise kind(answer["error"])
    result: dict[str, Any] = answer["result"]
    return result


@contextlib.contextmanager
def _connected_to(directory: Path) -> Iterator[socket.socket]:
    place = directory / layout.CONTROL
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            with _address(place) as address:
                connection.connect(address)
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            raise StreamcpError(
                f"no job runs in {directory}, or it is still starting: start it with "
                "streamcp run, or name the directory of one that runs"
            ) from None
        except PermissionError:
            raise StreamcpError(
                f"the job in {directory} belongs to another user: only its owner may ask it"
            ) from None
        yield connection
