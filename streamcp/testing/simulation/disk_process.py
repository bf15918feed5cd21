"""The system calls of one process on a simulated disk.

Invariant: each method behaves like the call of the same name, errors included, and takes place as
a whole or, where a fault is planned, as the fault says. It must not know what survives a crash.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from streamcp.durable_files import DurableFiles
from streamcp.file_system import error_of
from streamcp.testing.simulation.disk_faults import Effect
from streamcp.testing.simulation.disk_nodes import DirectoryNode, FileNode, Node
from streamcp.testing.simulation.disk_tree import DiskTree, os_error

if TYPE_CHECKING:
    from streamcp.testing.simulation.disk import SimulatedDisk

T = TypeVar("T")

_FIRST_DESCRIPTOR = 3
_DEVICE = 1


def _nothing() -> None:
    pass


Failing: TypeAlias = Mapping[Effect, Callable[[], object]]
_ALL_OR_NOTHING: Failing = {}


@dataclass(slots=True)
class _Opened:
    node: Node
    path: Path
    append: bool
    place: int = 0


class ProcessEnded(BaseException):
    """The process of this call is no more: whatever still runs of it must change nothing."""


class DiskProcess:
    """A process that uses a disk; implements `FileSystem`. `files` is what storage is given."""

    def __init__(self, disk: SimulatedDisk, name: str, number: int) -> None:
        """Begin with nothing open; `number` is no other process's of this disk."""
        self.name = name
        self.files = DurableFiles(self)
        self._disk = disk
        self._opened: dict[int, _Opened] = {}
        self._ended = False
        self._number = number

    @property
    def _tree(self) -> DiskTree:
        return self._disk.tree

    def open_paths(self) -> list[Path]:
        """Name what is open, in the order of opening."""
        return [opened.path for opened in self._opened.values()]

    def end(self) -> None:
        """End the process: its files are closed and its locks are free.

        Whatever it still calls raises ProcessEnded."""
        self._ended = True
        for opened in self._opened.values():
            _unlock(opened)
        self._opened.clear()

    # --- open files -----------------------------------------------------------------------------

    def open(self, path: Path, flags: int) -> int:
        """Open, and make if asked to."""
        words = [word for word in ("CREAT", "EXCL", "APPEND") if flags & getattr(os, f"O_{word}")]
        return self._call(
            "open",
            path,
            lambda: self._descriptor(path, flags),
            {"whole": lambda: self._open(path, flags)},
            detail=" ".join(words),
        )

    def _descriptor(self, path: Path, flags: int) -> int:
        node = self._open(path, flags)
        descriptor = max(self._opened, default=_FIRST_DESCRIPTOR - 1) + 1
        self._opened[descriptor] = _Opened(node, path, bool(flags & os.O_APPEND))
        return descriptor

    def _open(self, path: Path, flags: int) -> Node:
        node = self._tree.find(path)
        if node is not None and flags & os.O_CREAT and flags & os.O_EXCL:
            raise os_error(errno.EEXIST, path)
        if isinstance(node, DirectoryNode) and flags & (os.O_WRONLY | os.O_RDWR):
            raise os_error(errno.EISDIR, path)
        if isinstance(node, FileNode) and flags & os.O_DIRECTORY:
            raise os_error(errno.ENOTDIR, path)
        if node is None:
            if not flags & os.O_CREAT:
                raise os_error(errno.ENOENT, path)
            node = self._tree.make_file(path)
        return node

    def close(self, descriptor: int) -> None:
        """Close; also when that fails, as the real one does."""
        opened = self._get(descriptor)
        _unlock(opened)
        del self._opened[descriptor]
        self._call("close", opened.path, _nothing)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        """Write at the descriptor's place; as much as there is room for."""
        opened, node = self._file(descriptor)

        def action(part: bytes | memoryview) -> int:
            offset = len(node.content) if opened.append else opened.place
            written = self._write(opened, node, part, offset)
            opened.place = offset + written
            return written

        return self._call_writing("write", opened.path, data, action)

    def pwrite(self, descriptor: int, data: bytes | memoryview, offset: int) -> int:
        """Write at `offset`; as much as there is room for."""
        opened, node = self._file(descriptor)
        return self._call_writing(
            "pwrite", opened.path, data, lambda part: self._write(opened, node, part, offset)
        )

    def _call_writing(
        self,
        name: str,
        path: Path,
        data: bytes | memoryview,
        action: Callable[[bytes | memoryview], int],
    ) -> int:
        return self._call(
            name,
            path,
            lambda: action(data),
            {"part": lambda: action(data[: self._disk.rnd.randint(0, len(data))])},
            detail=f"{len(data)} bytes",
        )

    def _write(self, opened: _Opened, node: FileNode, data: bytes | memoryview, offset: int) -> int:
        growth = max(0, offset + len(data) - len(node.content))
        missing = int(max(0, growth - self._tree.room())) if growth else 0
        fitting = data[: max(0, len(data) - missing)]
        if missing and not fitting:
            raise os_error(errno.ENOSPC, opened.path)
        node.write(fitting, offset)
        return len(fitting)

    def pread(self, descriptor: int, length: int, offset: int) -> bytes:
        """Read from `offset`."""
        opened, node = self._file(descriptor)
        return self._call(
            "pread", opened.path, lambda: bytes(node.content[offset : offset + length])
        )

    def truncate(self, descriptor: int, length: int) -> None:
        """Cut or extend."""
        opened, node = self._file(descriptor)
        detail = f"to {length} bytes"
        self._call("truncate", opened.path, lambda: node.truncate(length), detail=detail)

    def fsync(self, descriptor: int) -> None:
        """Make durable. After a failure of a file's fsync the next one tells nothing of it."""
        opened = self._get(descriptor)
        node = opened.node
        failing: Failing = {}
        if isinstance(node, FileNode):
            failing = dict.fromkeys(("none", "part"), partial(node.fail_sync, self._disk.rnd))
        self._call("fsync", opened.path, node.sync, failing)

    def fsync_each(self, descriptors: Sequence[int]) -> list[OSError | None]:
        """Make durable, one after another in any order, so that a crash finds any of them done."""
        order = self._disk.rnd.sample(descriptors, len(descriptors))
        errors = {descriptor: error_of(partial(self.fsync, descriptor)) for descriptor in order}
        return [errors[descriptor] for descriptor in descriptors]

    def fstat(self, descriptor: int) -> os.stat_result:
        """Describe an open file."""
        opened = self._get(descriptor)
        return self._call("fstat", opened.path, lambda: _described(opened.node))

    def lock(self, descriptor: int) -> None:
        """Take the exclusive lock."""
        opened, node = self._file(descriptor)
        self._call("lock", opened.path, lambda: _lock(opened, node))

    def process_name(self) -> str:
        """Name this process."""
        return f"{self.name}-{self._number}"

    # --- names ----------------------------------------------------------------------------------

    def stat(self, path: Path) -> os.stat_result:
        """Describe what `path` names."""
        return self._call("stat", path, lambda: _described(self._tree.existing(path)))

    def link(self, source: Path, target: Path) -> None:
        """Give a file another name."""
        detail = f"to {target}"
        self._call("link", source, lambda: self._tree.link(source, target), detail=detail)

    def unlink(self, path: Path) -> None:
        """Remove a name of a file."""
        self._call("unlink", path, lambda: self._tree.unlink(path))

    def replace(self, source: Path, target: Path) -> None:
        """Move a name within its directory."""
        detail = f"to {target}"
        self._call("replace", source, lambda: self._tree.replace(source, target), detail=detail)

    def mkdir(self, path: Path) -> None:
        """Make a directory."""
        self._call("mkdir", path, lambda: self._tree.make_directory(path))

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""
        self._call("rmdir", path, lambda: self._tree.remove_directory(path))

    def listdir(self, path: Path) -> list[str]:
        """Name what lies in a directory, in any order."""
        return self._call("listdir", path, lambda: self._shuffled(path))

    def _shuffled(self, path: Path) -> list[str]:
        names = sorted(self._tree.directory(path).names)
        self._disk.rnd.shuffle(names)
        return names

    # --- open descriptors ----------------------------------------------------------------------

    def _get(self, descriptor: int) -> _Opened:
        if self._ended:
            raise ProcessEnded(self.name)
        if descriptor not in self._opened:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._opened[descriptor]

    def _file(self, descriptor: int) -> tuple[_Opened, FileNode]:
        opened = self._get(descriptor)
        if isinstance(opened.node, DirectoryNode):
            raise os_error(errno.EISDIR, opened.path)
        return opened, opened.node

    # --- carrying out ---------------------------------------------------------------------------

    def _call(
        self,
        name: str,
        path: Path,
        action: Callable[[], T],
        failing: Failing = _ALL_OR_NOTHING,
        *,
        detail: str = "",
    ) -> T:
        """Carry out one operation, or fail as planned. `failing` says what a failing call does all
        the same, for effects for which that is not `action` or nothing."""
        if self._ended:
            raise ProcessEnded(self.name)
        operation = self._disk.begin(self.name, name, path, detail)
        outcome = "ok"
        try:
            fault = self._disk.due_fault(operation)
            if fault is None:
                result = action()
                outcome = _shown(result)
                return result
            {"whole": action, **failing}.get(fault.effect, _nothing)()
            outcome = f"after {fault.effect}: "
            raise os_error(fault.error, path)
        except OSError as error:
            before = outcome.removesuffix("ok")
            outcome = before + errno.errorcode.get(error.errno or 0, str(error))
            raise
        finally:
            if self._disk.trace is not None:
                self._disk.trace(f"{operation} -> {outcome}")


def _shown(result: object) -> str:
    if isinstance(result, os.stat_result):
        return f"file {result.st_ino}, {result.st_size} bytes"
    return f"{len(result)} bytes" if isinstance(result, bytes) else str(result or "ok")


def _described(node: Node) -> os.stat_result:
    is_file = isinstance(node, FileNode)
    mode = (stat.S_IFREG if is_file else stat.S_IFDIR) | 0o755
    size = len(node.content) if isinstance(node, FileNode) else 0
    return os.stat_result((mode, node.number, _DEVICE, 1, 0, 0, size, 0, 0, 0))


def _lock(opened: _Opened, node: FileNode) -> None:
    if node.holder is not None and node.holder is not opened:
        raise os_error(errno.EWOULDBLOCK, opened.path)
    node.holder = opened


def _unlock(opened: _Opened) -> None:
    if isinstance(opened.node, FileNode) and opened.node.holder is opened:
        opened.node.holder = None
