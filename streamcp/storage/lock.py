"""The lock that keeps a second copy of a job from starting by mistake.

It is courtesy, not safety: exactly-once rests on the completion log alone (rule P34). The lock is
a held `flock`, which the system releases however the process ends; what the file holds (process,
host, last sign of life) is for the message only, so a stale one never keeps a job from starting.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

import orjson

from streamcp import durable_files
from streamcp.clock import Clock
from streamcp.errors import StorageError

_SIZE = 4096  # more than any holder writes


class JobLock:
    """The lock of one job; held by at most one object at a time, in whichever process."""

    def __init__(self, path: Path, *, job: str, clock: Clock) -> None:
        """Describe the lock at `path`; nothing is touched yet."""
        self._path = path
        self._job = job
        self._clock = clock
        self._descriptor: int | None = None

    def acquire(self, *, take_over: bool) -> None:
        """Hold the lock from now on.

        Raises StorageError naming the holder if there is one. With `take_over` the holder is left
        with a file that has no name any more, and the lock is a new one."""
        if not self._is_held():
            self.release()
            while not self._try():
                if not take_over:
                    raise StorageError(self._refusal())
                durable_files.remove_file(self._path)
        self.touch()

    def touch(self) -> None:
        """Write a sign of life; never raises, since it only serves a message."""
        if self._descriptor is None:
            return
        holder = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "heartbeat": self._clock.wall_ms(),
        }
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, orjson.dumps(holder).ljust(256) + b"\n", 0)

    def release(self) -> None:
        """Let go of the lock; nothing happens if it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _is_held(self) -> bool:
        return self._descriptor is not None and self._is_current(self._descriptor)

    def _try(self) -> bool:
        """Try to take the lock, and tell whether that worked."""
        while True:
            try:
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise durable_files.explain("opened", self._path, error) from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return False
            except OSError as error:
                os.close(descriptor)
                raise durable_files.explain("locked", self._path, error) from error
            if self._is_current(descriptor):
                self._descriptor = descriptor
                return True
            os.close(descriptor)  # somebody took over between open and flock

    def _is_current(self, descriptor: int) -> bool:
        """Tell whether the lock's name still belongs to the open file."""
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self._path))
        except FileNotFoundError:
            return False

    def _refusal(self) -> str:
        return (
            f"another copy of job {self._job!r} is running ({describe_holder(self._path)}); "
            "stop it, or start with take_over"
        )


def describe_holder(path: Path) -> str:
    """Say who wrote the lock file at `path` last, as far as it can be read."""
    try:
        holder = orjson.loads(durable_files.read_range(path, 0, _SIZE) or b"")
        beat = datetime.fromtimestamp(holder["heartbeat"] / 1000, UTC)
        when = beat.isoformat(sep=" ", timespec="seconds")
        return f"pid {holder['pid']} on {holder['host']}, last heartbeat {when}"
    except (StorageError, ValueError, KeyError, TypeError, OverflowError):
        return f"{path} does not say which process"
