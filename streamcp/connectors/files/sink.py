"""Records as JSON lines in a directory, exactly once.

A transaction is a hidden file that gets its name when it is committed, so readers of the directory
see whole transactions only. Knows nothing of checkpoints.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

import orjson

from streamcp.connectors.one_at_a_time import OneAtATime
from streamcp.durable_files import LOCAL_FILES, DurableFiles, explain
from streamcp.errors import SerializationError, StorageError, TransactionLost
from streamcp.file_system import FileSystem
from streamcp.operators.sinks import Transaction

Token: TypeAlias = tuple[str, int] | None
"""Name of the committed file and its length; None for a transaction without records."""

# A few records at a time cost a copy each, and not a way to a thread and back (100 µs).
_BUFFER = 64 * 1024
_OPTIONS = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY


def json_lines(directory: str | Path, /) -> Callable[[], JsonLines]:
    """Write each record as a line of JSON to files in `directory`, exactly once.

    Each subtask writes one file per checkpoint; it appears as `<transaction id>.jsonl`, whole,
    when the checkpoint is complete, and is left where it is for good: a restart right after may
    look for it. Files that begin with a dot are not committed. Several sinks may share a directory.

    A record is what JSON has, a dataclass, a NamedTuple, a datetime, an Enum member or a UUID (or
    holds such); not-a-number becomes null. Anything else fails with a SerializationError."""
    return partial(JsonLines, Path(directory))


class JsonLines:
    """The sink object of one subtask; made by `json_lines`.

    `write` either adds all its records or, when it fails or is cancelled, none."""

    def __init__(self, directory: Path, *, files: DurableFiles = LOCAL_FILES) -> None:
        self._directory = directory
        self._files = files
        self._pending: dict[str, _PendingFile] = {}
        self._thread = OneAtATime()

    async def __aenter__(self) -> JsonLines:
        """Make the directory."""
        try:
            await self._thread.run(self._files.make_directories, self._directory)
        except asyncio.CancelledError:
            await self._thread.wait_idle()  # what was not opened is not closed: nobody else waits
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove what was not prepared: no snapshot names it."""
        for pending in self._pending.values():
            pending.thread.run_last(pending.drop)
        for pending in self._pending.values():
            await pending.thread.wait_idle()
        await self._thread.wait_idle()

    async def write(self, records: Sequence[object], transaction: Transaction, /) -> None:
        """Append `records` to the transaction: all of them or none.

        Raises SerializationError for a record that JSON cannot hold, StorageError if the file
        system refuses (which may be found out at a later write, or by `prepare`), and also if an
        earlier transaction is lost: then the job must go back to its last checkpoint."""
        for pending in self._pending.values():
            pending.raise_if_lost()
        if not records:
            return
        if (found := self._pending.get(transaction.id)) is None:
            found = _PendingFile(self._directory, transaction.id, self._files)
            self._pending[transaction.id] = found
        await found.append(records)

    async def prepare(self, transaction: Transaction, /) -> Token:
        """Make the pending file durable. A transaction without records leaves no file."""
        pending = self._pending.get(transaction.id)
        if pending is None:
            return None
        token = await pending.finish()
        self._pending.pop(transaction.id, None)
        return token

    async def commit(self, transaction: Transaction, token: Token, /) -> None:
        """Give the file its name, durably; nothing happens if it has it already.

        Raises StorageError if neither file is there or the length is wrong."""
        if token is not None:
            path = _pending_path(self._directory, transaction.id)
            await self._thread.run(_commit, self._files, path, *token)

    async def abort(self, transaction: Transaction, /) -> None:
        """Remove the pending file."""
        pending = self._pending.get(transaction.id)
        if pending is None:
            path = _pending_path(self._directory, transaction.id)
            await self._thread.run(self._files.remove_file, path)
        else:
            await pending.thread.run(pending.remove)
            self._pending.pop(transaction.id, None)

    async def abort_others(self, prefix: str, kept: Collection[str]) -> None:
        """Remove the pending files of all transactions that start with `prefix`, except `kept`."""
        await self._thread.run(_remove_others, self._files, self._directory, prefix, kept)


class _PendingFile:
    """A transaction that is being written: `length` bytes in the file, and then `buffer`.

    Both change on the event loop only, when the result of the thread has arrived. What lies in the
    file behind `length` is of a write that failed or was cancelled; the next one overwrites it, and
    `finish` cuts it off (as it does with what a file of that name held before)."""

    def __init__(self, directory: Path, transaction_id: str, files: DurableFiles) -> None:
        self.thread = OneAtATime()
        self._files = files
        self._system = files.system
        self._directory = directory
        self._id = transaction_id
        self._path = _pending_path(directory, transaction_id)
        self._descriptor: int | None = None
        self._length = 0
        self._buffer = b""
        self._token: Token = None
        self._failure: StorageError | None = None
        self._writing = asyncio.Lock()

    async def append(self, records: Sequence[object]) -> None:
        """Add `records` at the end, or raise and change nothing."""
        async with self._writing:
            data = self._buffer + _encoded(records)
            if len(data) >= _BUFFER:
                await self.thread.run(self._write, data)
                self._length += len(data)
                data = b""
            self._buffer, self._token = data, None

    def _write(self, data: bytes) -> int:
        try:
            if self._descriptor is None:
                self._descriptor = self._system.open(self._path, os.O_WRONLY | os.O_CREAT)
            _write_at(self._system, self._descriptor, data, self._length)
            return self._descriptor
        except OSError as error:
            raise explain("written", self._path, error) from error

    async def finish(self) -> Token:
        """Make the file durable and close it; called again, return the same token."""
        async with self._writing:
            return await self.thread.run(self._finish)

    def raise_if_lost(self) -> None:
        """Raise what made this transaction impossible to prepare, if anything did."""
        if self._failure is not None:
            raise self._failure

    def _finish(self) -> Token:
        self.raise_if_lost()
        length = self._length + len(self._buffer)
        if length == 0:
            self.remove()
        elif self._token is None:
            self._make_durable(self._write(self._buffer), length)
            self._token = (_free_name(self._files, self._directory, self._id), length)
            self._close()
        return self._token

    def _make_durable(self, descriptor: int, length: int) -> None:
        try:
            self._system.truncate(descriptor, length)
            self._system.fsync(descriptor)
        except OSError as error:
            # What could not be flushed may be gone from memory too, and a second fsync would say
            # that all is well: this transaction can never be prepared.
            self._failure = TransactionLost(str(explain("fsynced", self._path, error)))
            raise self._failure from error
        self._files.sync_directory(self._directory)

    def remove(self) -> None:
        """Close and remove the file, if there is one."""
        self._close()
        self._files.remove_file(self._path)

    def drop(self) -> None:
        """Remove the file if possible; what stays behind is removed at the next start."""
        with suppress(StorageError):
            self.remove()

    def _close(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            self._system.close(descriptor)


def _pending_path(directory: Path, transaction_id: str) -> Path:
    return directory / f".{transaction_id}.pending"


def _free_name(files: DurableFiles, directory: Path, transaction_id: str) -> str:
    """Name the committed file after its transaction.

    A job whose checkpoints were removed counts from the beginning again: it must not replace what
    it wrote before."""
    name = f"{transaction_id}.jsonl"
    for number in count(2):
        if not files.exists(directory / name):
            break
        name = f"{transaction_id}.{number}.jsonl"
    return name


def _encoded(records: Sequence[object]) -> bytes:
    try:
        return b"".join([orjson.dumps(record, _plain, _OPTIONS) for record in records])
    except orjson.JSONEncodeError as error:
        name = type(_first_refused(records)).__name__
        raise SerializationError(
            f"files.json_lines: a record of type {name} cannot be written as JSON: {error}; "
            "map it to a dict, a dataclass or a plain value before the sink"
        ) from error


def _plain(value: Any) -> Any:
    as_dict = getattr(value, "_asdict", None)  # of a NamedTuple
    if as_dict is None:
        raise TypeError
    return as_dict()


def _first_refused(records: Sequence[object]) -> object:
    for record in records:
        try:
            orjson.dumps(record, _plain, _OPTIONS)
        except orjson.JSONEncodeError:
            return record
    return records[0]


def _write_at(system: FileSystem, descriptor: int, data: bytes, offset: int) -> None:
    rest = memoryview(data)
    place = offset
    try:
        while rest:
            written = system.pwrite(descriptor, rest, place)
            rest, place = rest[written:], place + written
    except OSError:
        with suppress(OSError):  # only to give the space back: `length` says what counts
            system.truncate(descriptor, offset)
        raise


def _commit(files: DurableFiles, pending: Path, name: str, length: int) -> None:
    target = pending.with_name(name)
    found = files.size(pending)
    if found is not None:
        _check_length(pending, found, length)
        files.rename(pending, target)
    elif files.exists(target):
        # The crash may have come between the rename and the moment at which it was durable.
        files.sync_directory(target.parent)
    else:
        raise StorageError(
            f"{target} cannot be committed: neither it nor {pending.name} is there. If the "
            "sink wrote to another directory before, give it that one again; if its records were "
            "taken away after it had been committed, put an empty file there"
        )


def _check_length(pending: Path, found: int, length: int) -> None:
    if found != length:
        raise StorageError(
            f"{pending} has {found} bytes and not the {length} that were prepared; restore the "
            "file, or restore the job from another checkpoint"
        )


def _remove_others(
    files: DurableFiles, directory: Path, prefix: str, kept: Collection[str]
) -> None:
    for name in files.list_directory(directory):
        transaction_id = name.removeprefix(".").removesuffix(".pending")
        is_pending = name == f".{transaction_id}.pending"
        if is_pending and transaction_id.startswith(prefix) and transaction_id not in kept:
            files.remove_file(directory / name)
