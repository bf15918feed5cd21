"""The system calls that durable files are made of, and the machine's own.

Invariant: one method is one system call, with its errors (`OSError`) and nothing around it, so that
a test can stand in for a disk at every point where a real one may fail or a process may end. It
must not know which sequence of calls promises what: that is `durable_files`. Every method blocks.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol

# So many fsyncs wait for the disk beside that of whoever asks for several; more take turns.
_BESIDE = 3


class FileSystem(Protocol):
    """What a file system can do for one process. Each method raises OSError like its namesake in
    `os`; descriptors are numbers that mean something to this object only."""

    def open(self, path: Path, flags: int) -> int:
        """Open `path` with the `os.O_` flags; return a descriptor."""
        ...

    def close(self, descriptor: int) -> None:
        """Close a descriptor; a lock that was taken with it is released."""
        ...

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        """Write at the descriptor's place; return how many bytes were taken, at least one."""
        ...

    def pwrite(self, descriptor: int, data: bytes | memoryview, offset: int) -> int:
        """Write at `offset`; return how many bytes were taken, at least one."""
        ...

    def pread(self, descriptor: int, length: int, offset: int) -> bytes:
        """Read up to `length` bytes from `offset`; nothing at the end of the file."""
        ...

    def truncate(self, descriptor: int, length: int) -> None:
        """Cut or extend the file to `length` bytes."""
        ...

    def fsync(self, descriptor: int) -> None:
        """Make a file's content, or a directory's names, survive a loss of power."""
        ...

    def fsync_each(self, descriptors: Sequence[int]) -> list[OSError | None]:
        """Do `fsync` of each, in no order; return what went wrong with each."""
        ...

    def fstat(self, descriptor: int) -> os.stat_result:
        """Describe an open file: its identity, kind and size."""
        ...

    def stat(self, path: Path) -> os.stat_result:
        """Describe what `path` names: its identity, kind and size."""
        ...

    def link(self, source: Path, target: Path) -> None:
        """Give a file another name, in one atomic step that fails if the name exists."""
        ...

    def unlink(self, path: Path) -> None:
        """Remove a name of a file."""
        ...

    def replace(self, source: Path, target: Path) -> None:
        """Move a name, replacing what has the new one, in one atomic step."""
        ...

    def mkdir(self, path: Path) -> None:
        """Make a directory."""
        ...

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""
        ...

    def listdir(self, path: Path) -> list[str]:
        """Name what lies in a directory, in no order."""
        ...

    def lock(self, descriptor: int) -> None:
        """Take the exclusive lock of an open file, which ends with the descriptor or the process;
        raises BlockingIOError if another descriptor has it."""
        ...

    def process_name(self) -> str:
        """Name this object in this process, as no other one that uses the same disk is named;
        no system call."""
        ...


class LocalFileSystem:
    """The machine's file system. Looked up in `os` at each call, so that tests can break it."""

    def __init__(self) -> None:
        """Take a name at random: processes of other machines may use the same disk."""
        self._name = os.urandom(8).hex()
        self._threads: tuple[int, ThreadPoolExecutor] | None = None

    def open(self, path: Path, flags: int) -> int:
        """Open; files are made with the permissions that the process's umask leaves."""
        return os.open(path, flags, 0o666)

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        os.close(descriptor)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        """Write at the descriptor's place."""
        return os.write(descriptor, data)

    def pwrite(self, descriptor: int, data: bytes | memoryview, offset: int) -> int:
        """Write at `offset`."""
        return os.pwrite(descriptor, data, offset)

    def pread(self, descriptor: int, length: int, offset: int) -> bytes:
        """Read from `offset`, 2 GiB at most."""
        return os.pread(descriptor, length, offset)

    def truncate(self, descriptor: int, length: int) -> None:
        """Cut or extend."""
        os.ftruncate(descriptor, length)

    def fsync(self, descriptor: int) -> None:
        """Make durable."""
        os.fsync(descriptor)

    def fsync_each(self, descriptors: Sequence[int]) -> list[OSError | None]:
        """Make all durable side by side: what a disk is asked for at once it does in one go."""
        threads = self._own_threads()
        others = [threads.submit(self.fsync, descriptor) for descriptor in descriptors[1:]]
        first = [error_of(partial(self.fsync, descriptor)) for descriptor in descriptors[:1]]
        return first + [error_of(other.result) for other in others]

    def _own_threads(self) -> ThreadPoolExecutor:
        """The threads that wait for the disk. A forked process has none of its parent's."""
        if self._threads is None or self._threads[0] != os.getpid():
            threads = ThreadPoolExecutor(_BESIDE, thread_name_prefix="streamcp fsync")
            self._threads = os.getpid(), threads
        return self._threads[1]

    def fstat(self, descriptor: int) -> os.stat_result:
        """Describe an open file."""
        return os.fstat(descriptor)

    def stat(self, path: Path) -> os.stat_result:
        """Describe what `path` names."""
        return os.stat(path)

    def link(self, source: Path, target: Path) -> None:
        """Give a file another name."""
        os.link(source, target)

    def unlink(self, path: Path) -> None:
        """Remove a name of a file."""
        os.unlink(path)

    def replace(self, source: Path, target: Path) -> None:
        """Move a name."""
        os.replace(source, target)

    def mkdir(self, path: Path) -> None:
        """Make a directory."""
        os.mkdir(path)

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def listdir(self, path: Path) -> list[str]:
        """Name what lies in a directory."""
        return os.listdir(path)

    def lock(self, descriptor: int) -> None:
        """Take the exclusive `flock`."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def process_name(self) -> str:
        """Name this process; a forked one has the same name at random, but another number."""
        return f"{os.getpid()}-{self._name}"


def error_of(call: Callable[[], None]) -> OSError | None:
    """Make a call; raises what is no error of the file system."""
    try:
        call()
    except OSError as error:
        return error
    return None
