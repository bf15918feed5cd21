"""The lock that keeps a second copy of a job from starting by mistake.

It is courtesy, not safety: exactly-once rests on the completion log alone (rule P34). The lock is
a held `flock`, which the system releases however the process ends; what the file holds (process,
host, last sign of life) is for the message only, so a stale one never keeps a job from starting.
"""

from __future__ import annotations

import contextlib
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

import orjson

from streamcp.clock import Clock
from streamcp.durable_files import LOCAL_FILES, DurableFiles, explained
from streamcp.errors import StorageError

_SIZE = 4096  # more than any holder writes
_HEARTBEAT = 1.0  # seconds between two signs of life at least: they serve a message only


class JobLock:
    """The lock of one job; held by at most one object at a time, in whichever process."""

    def __init__(
        self, path: Path, *, job: str, clock: Clock, files: DurableFiles = LOCAL_FILES
    ) -> None:
        """Describe the lock at `path`; nothing is touched yet."""
        self._path = path
        self._job = job
        self._clock = clock
        self._files = files
        self._system = files.system
        self._descriptor: int | None = None
        self._touched = 0.0

    def acquire(self, *, take_over: bool) -> None:
        """Hold the lock from now on.

        Raises StorageError naming the holder if there is one. With `take_over` the holder is left
        with a file that has no name any more, and the lock is a new one."""
        if not self._is_held():
            self.release()
            while not self._try():
                if not take_over:
                    raise StorageError(self._refusal())
                self._files.remove_file(self._path)
        self._write_holder()

    def touch(self) -> None:
        """Write a sign of life if the last one is a second old; never raises."""
        if self._clock.monotonic() - self._touched >= _HEARTBEAT:
            self._write_holder()

    def _write_holder(self) -> None:
        if self._descriptor is None:
            return
        self._touched = self._clock.monotonic()
        holder = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "heartbeat": self._clock.wall_ms(),
        }
        with contextlib.suppress(OSError):
            self._system.pwrite(self._descriptor, orjson.dumps(holder).ljust(256) + b"\n", 0)

    def release(self) -> None:
        """Let go of the lock; nothing happens if it is not held."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            self._close(descriptor)

    def _is_held(self) -> bool:
        return self._descriptor is not None and self._is_current(self._descriptor)

    def _try(self) -> bool:
        """Try to take the lock, and tell whether that worked."""
        with explained("opened", self._path):
            descriptor = self._system.open(self._path, os.O_RDWR | os.O_CREAT)
        try:
            is_locked = self._lock(descriptor)
            is_current = is_locked and self._is_current(descriptor)
        except BaseException:
            self._close(descriptor)
            raise
        if is_current:
            self._descriptor = descriptor
            return True
        self._close(descriptor)
        # Locked, but not current: somebody took over between open and flock.
        return is_locked and self._try()

    def _lock(self, descriptor: int) -> bool:
        with explained("locked", self._path):
            try:
                self._system.lock(descriptor)
            except BlockingIOError:
                return False
        return True

    def _is_current(self, descriptor: int) -> bool:
        """Tell whether the lock's name still belongs to the open file."""
        with explained("looked at", self._path), contextlib.suppress(FileNotFoundError):
            opened, named = self._system.fstat(descriptor), self._system.stat(self._path)
            return os.path.samestat(opened, named)
        return False

    def _close(self, descriptor: int) -> None:
        # The lock goes with the descriptor, whether closing it succeeds or not.
        with contextlib.suppress(OSError):
            self._system.close(descriptor)

    def _refusal(self) -> str:
        holder = describe_holder(self._path, self._files)
        return (
            f"another copy of job {self._job!r} is running ({holder}); "
            "stop it, or start with take_over=True (--take-over)"
        )


def describe_holder(path: Path, files: DurableFiles = LOCAL_FILES) -> str:
    """Say who wrote the lock file at `path` last, as far as it can be read."""
    try:
        holder = orjson.loads(files.read_range(path, 0, _SIZE) or b"")
        beat = datetime.fromtimestamp(holder["heartbeat"] / 1000, UTC)
        when = beat.isoformat(sep=" ", timespec="seconds")
        return f"pid {holder['pid']} on {holder['host']}, last heartbeat {when}"
    except (StorageError, ValueError, KeyError, TypeError, OverflowError):
        return f"{path} does not say which process"
