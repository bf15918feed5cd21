"""Files that survive a crash: write, fsync, link, rename, fsync of the directory.

Invariant: what a method here promises as durable is on the disk when it returns, and every
failure is a `StorageError` whose sentence names the path and the cause. It must not know what the
files mean; used by checkpoint storage and by file connectors, nowhere else. Every method blocks.

Each system call costs a thread that works beside a busy event loop a hand-over of the interpreter
lock, so there are as few as the promises allow.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamcp.errors import StorageError
from streamcp.file_system import FileSystem, LocalFileSystem

# Many small frames become few system calls; larger chunks are not copied.
_BUFFER = 1 << 20

_CAUSES = {
    errno.ENOSPC: "disk full (free some space)",
    errno.EDQUOT: "disk quota used up (free some space)",
    errno.EACCES: "permission denied (check owner and mode)",
    errno.EPERM: "operation not permitted (check owner, mode and file system)",
    errno.EROFS: "the file system is read-only",
    errno.ENOENT: "no such file or directory",
    errno.EEXIST: "it exists already",
    errno.ENOTDIR: "a part of the path is a file, not a directory",
    errno.EISDIR: "it is a directory",
    errno.EIO: "the device reported an input/output error",
    errno.EMFILE: "too many open files (raise the limit with ulimit -n)",
    errno.ENFILE: "too many open files on this machine",
    errno.EMLINK: "too many links to one file",
    errno.ENAMETOOLONG: "the name is too long",
}


def explain(action: str, path: Path, error: OSError) -> StorageError:
    """Make the error that says which `path` could not be `action` (a past participle) and why."""
    cause = _CAUSES.get(error.errno or 0) or error.strerror or str(error)
    return StorageError(f"{path} could not be {action}: {cause}")


@contextlib.contextmanager
def explained(action: str, path: Path) -> Iterator[None]:
    """Turn an OSError inside into the StorageError that `explain` makes."""
    try:
        yield
    except OSError as error:
        raise explain(action, path, error) from error


@dataclass(frozen=True, slots=True)
class Opened:
    """An open file or directory."""

    path: Path
    descriptor: int


class DurableFiles:
    """The files of one process on one file system. May be called from several threads."""

    def __init__(self, system: FileSystem | None = None) -> None:
        """Use the calls of `system`, the machine's own by default."""
        self.system: FileSystem = system or LocalFileSystem()
        self._serials = itertools.count(1)

    def unique_name(self) -> str:
        """Make a part of a file name that nobody else makes, in no process that is alive."""
        return f"{self.system.process_name()}-{next(self._serials)}"

    # --- writing --------------------------------------------------------------------------------

    def write_file(self, path: Path, chunks: Iterable[bytes], *, replace: bool = False) -> int:
        """Write `chunks` to a new file, fsync it, return its size.

        The content is durable; its name is only after `sync_directory` of the parent. Raises
        StorageError if the file exists (which is left alone, unless `replace` takes its name
        away), or if anything fails: then no part of it stays behind, so far as the file system
        lets it be removed. What `chunks` raises is passed on."""
        with explained("written", path):
            descriptor = self._create(path, replace=replace)
            try:
                with self._closing(descriptor):
                    size = sum(self._write(descriptor, each) for each in _joined(chunks))
                    self.system.fsync(descriptor)
                return size
            except BaseException:
                # After a failed fsync pages may be lost, and a second one would not tell: no retry.
                with contextlib.suppress(OSError):
                    self.system.unlink(path)
                raise

    def write_together(
        self, contents: Mapping[Path, Iterable[bytes]], directories: Sequence[Opened]
    ) -> None:
        """Write new files, and make them and all names in `directories` durable, side by side.

        When this returns all of it is durable; before, any part of it may survive a crash without
        any other. A file that has one of the names loses it. Raises StorageError if anything fails:
        then no file stays behind, so far as the file system lets it be removed."""
        with contextlib.ExitStack() as closing:
            try:
                files = [self._written(path, each, closing) for path, each in contents.items()]
                self._sync_each([*files, *directories])
            except BaseException:
                for path in contents:
                    with contextlib.suppress(OSError):
                        self.system.unlink(path)
                raise

    def _written(
        self, path: Path, chunks: Iterable[bytes], closing: contextlib.ExitStack
    ) -> Opened:
        with explained("written", path):
            descriptor = self._create(path, replace=True)
            closing.callback(_let_go, self.system, descriptor)
            for each in _joined(chunks):
                self._write(descriptor, each)
        return Opened(path, descriptor)

    def _sync_each(self, opened: Sequence[Opened]) -> None:
        """No second try after an error: pages may be lost, and it would not tell."""
        errors = self.system.fsync_each([one.descriptor for one in opened])
        for one, error in zip(opened, errors, strict=True):
            if error is not None:
                raise explain("fsynced", one.path, error) from error

    def append(self, path: Path, data: bytes) -> None:
        """Append `data` to a file, which is made if need be; not durable.

        Raises StorageError; then a part of it may have been written."""
        with explained("written", path):
            descriptor = self.system.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            with self._closing(descriptor):
                self._write(descriptor, data)

    def _create(self, path: Path, *, replace: bool) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            return self.system.open(path, flags)
        except FileExistsError:
            if not replace:
                raise
        self.system.unlink(path)
        return self.system.open(path, flags)

    def _write(self, descriptor: int, data: bytes) -> int:
        return _write_all(self.system, descriptor, data)

    # --- names ----------------------------------------------------------------------------------

    def link_new(self, source: Path, target: Path) -> bool:
        """Give `source` the second name `target` if that name is free; one atomic step.

        Returns False if the name belongs to another file. An unclear answer (an error although the
        link was made, as network file systems give) is settled by looking at `target` (rule P34).
        Raises StorageError if the name stayed free, or if that cannot be told."""
        try:
            self.system.link(source, target)
        except OSError as error:
            if self.is_same_file(source, target):
                return True
            if self.exists(target):
                return False
            raise explain("linked", target, error) from error
        return True

    def rename(self, source: Path, target: Path) -> None:
        """Move `source` to `target` in one atomic step, replacing it, and make the new name
        durable.

        Raises StorageError if `source` is missing; then `target` is untouched. After an error of
        the last fsync the rename may or may not survive a crash."""
        with explained("renamed", source):
            self.system.replace(source, target)
        self.sync_directory(target.parent)

    def sync_directory(self, path: Path) -> None:
        """Make the names in directory `path` durable: creations, renames and removals so far."""
        with explained("fsynced", path):
            self._sync_directory(path)

    def _sync_directory(self, path: Path) -> None:
        descriptor = _open_directory(self.system, path)
        with self._closing(descriptor):
            self.system.fsync(descriptor)

    @contextlib.contextmanager
    def open_directory(self, path: Path) -> Iterator[Opened]:
        """Keep directory `path` open, to be made durable. Raises StorageError."""
        with explained("opened", path):
            descriptor = _open_directory(self.system, path)
        try:
            yield Opened(path, descriptor)
        finally:
            _let_go(self.system, descriptor)

    def make_directory(self, path: Path) -> None:
        """Make directory `path` if it is not there; durable after `sync_directory` of its parent.

        Raises StorageError, also if `path` is a file."""
        with explained("made", path):
            try:
                self.system.mkdir(path)
            except FileExistsError:
                if not self.is_directory(path):
                    raise

    def make_new_directory(self, path: Path) -> bool:
        """Make directory `path`; False if the name is taken. Durable after `sync_directory` of its
        parent."""
        with explained("made", path):
            try:
                self.system.mkdir(path)
            except FileExistsError:
                return False
        return True

    def make_directories(self, path: Path) -> None:
        """Make directory `path` and its missing parents, durably."""
        if self.exists(path):
            # Perhaps by a process that died before the name was durable. Who may not read the
            # parent has not made it either.
            with explained("fsynced", path.parent), contextlib.suppress(PermissionError):
                self._sync_directory(path.parent)
            return
        self.make_directories(path.parent)
        self.make_directory(path)
        self.sync_directory(path.parent)

    def remove_file(self, path: Path) -> None:
        """Remove `path`; nothing happens if it does not exist."""
        with explained("removed", path), contextlib.suppress(FileNotFoundError):
            self.system.unlink(path)

    def remove_directory(self, path: Path) -> bool:
        """Remove directory `path`; False if something lies in it, True also if it did not exist."""
        with explained("removed", path), contextlib.suppress(FileNotFoundError):
            try:
                self.system.rmdir(path)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                return False
        return True

    # --- looking --------------------------------------------------------------------------------

    def exists(self, path: Path) -> bool:
        """Tell whether `path` exists; raises StorageError if that cannot be told."""
        return self._look(path) is not None

    def is_directory(self, path: Path) -> bool:
        """Tell whether `path` is a directory; raises StorageError if that cannot be told."""
        found = self._look(path)
        return found is not None and stat.S_ISDIR(found.st_mode)

    def size(self, path: Path) -> int | None:
        """Tell how many bytes `path` has; None if it does not exist."""
        found = self._look(path)
        return found.st_size if found is not None else None

    def is_same_file(self, one: Path, other: Path) -> bool:
        """Tell whether both names exist and belong to one file; raises StorageError if that cannot
        be told."""
        first, second = self._look(one), self._look(other)
        return first is not None and second is not None and os.path.samestat(first, second)

    def list_directory(self, path: Path) -> list[str]:
        """Name what lies in directory `path`, sorted; nothing if it does not exist."""
        with explained("listed", path), contextlib.suppress(FileNotFoundError):
            return sorted(self.system.listdir(path))
        return []

    def _look(self, path: Path) -> os.stat_result | None:
        with explained("looked at", path), contextlib.suppress(FileNotFoundError):
            return self.system.stat(path)
        return None

    # --- reading --------------------------------------------------------------------------------

    def read_file(self, path: Path) -> bytes | None:
        """Read the whole of `path`; None if it does not exist."""
        return self.read_range(path, 0, None)

    def read_range(self, path: Path, offset: int, length: int | None) -> bytes | None:
        """Read `length` bytes (None: all) from `offset`, fewer if the file is short; None if it
        does not exist."""
        with explained("read", path), contextlib.suppress(FileNotFoundError):
            descriptor = self.system.open(path, os.O_RDONLY)
            with self._closing(descriptor):
                # Asked first: a wrong length from a damaged file must not reserve that much memory.
                available = max(0, self.system.fstat(descriptor).st_size - offset)
                wanted = available if length is None else min(length, available)
                return self._read_at(descriptor, offset, wanted)
        return None

    def _read_at(self, descriptor: int, offset: int, length: int) -> bytes:
        parts = []
        while length > 0:
            part = self.system.pread(descriptor, length, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @contextlib.contextmanager
    def _closing(self, descriptor: int) -> Iterator[None]:
        try:
            yield
        finally:
            self.system.close(descriptor)


class GrowingFile:
    """A new file that grows at its end, durably each time, and is kept open meanwhile."""

    def __init__(self, files: DurableFiles, path: Path) -> None:
        """Make the file; its name is durable after `sync_directory` of the parent.

        Raises StorageError, also if the name is taken."""
        self._system = files.system
        self._path = path
        with explained("made", path):
            self._descriptor = files.system.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)

    def append(self, data: bytes) -> None:
        """Append `data`; durable when this returns.

        Raises StorageError; then a part of it may be there, and nothing more may be appended: a
        later fsync would not tell what was lost."""
        with explained("written", self._path):
            _write_all(self._system, self._descriptor, data)
            self._system.fsync(self._descriptor)

    def close(self) -> None:
        """Close it; what was appended is durable already."""
        _let_go(self._system, self._descriptor)


class KeptDirectories:
    """Directories that are made durable again and again: each is opened once, and kept open."""

    def __init__(self, files: DurableFiles) -> None:
        """Nothing is opened yet."""
        self._system = files.system
        self._descriptors: dict[Path, int] = {}

    def opened(self, path: Path) -> Opened:
        """Directory `path`, open until `close`. Raises StorageError."""
        if path not in self._descriptors:
            with explained("opened", path):
                self._descriptors[path] = _open_directory(self._system, path)
        return Opened(path, self._descriptors[path])

    def sync(self, path: Path) -> None:
        """Make the names in directory `path` durable, as `DurableFiles.sync_directory` does."""
        with explained("fsynced", path):
            self._system.fsync(self.opened(path).descriptor)

    def close(self) -> None:
        """Let go of them; a later `sync` opens anew."""
        while self._descriptors:
            _let_go(self._system, self._descriptors.popitem()[1])


def _open_directory(system: FileSystem, path: Path) -> int:
    return system.open(path, os.O_RDONLY | os.O_DIRECTORY)


def _let_go(system: FileSystem, descriptor: int) -> None:
    """Close what is durable, or of no use: an error can mean no loss."""
    with contextlib.suppress(OSError):
        system.close(descriptor)


def _write_all(system: FileSystem, descriptor: int, data: bytes) -> int:
    rest = memoryview(data)
    while rest:
        rest = rest[system.write(descriptor, rest) :]
    return len(data)


def _joined(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Make few large pieces of many small ones."""
    small: list[bytes] = []
    size = 0
    for chunk in chunks:
        if size and size + len(chunk) > _BUFFER:
            yield b"".join(small)
            small, size = [], 0
        small.append(chunk)
        size += len(chunk)
    if size:
        yield b"".join(small)


LOCAL_FILES = DurableFiles()
"""The files of this process on the machine's own file system."""
