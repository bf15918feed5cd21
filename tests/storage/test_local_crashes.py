"""Crashes between any two steps on the disk, with and without the loss of what was not synced."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamcp.durable_files import LOCAL_FILES, DurableFiles
from streamcp.errors import StorageError
from streamcp.file_system import LocalFileSystem
from streamcp.storage import layout
from streamcp.storage.local import LocalStorage
from streamcp.testing.storage_checks import complete_example

JOB = "orders"


class Crash(BaseException):
    """The process ends here."""


class Disk(LocalFileSystem):
    """Every system call, counted; ends the process before or after one of them.

    `lose` takes away every name that no fsync of its directory has made durable, as a power
    failure may. Renames are not modelled: they are for figures only.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.crash_at: float | None = None
        self._fragile: list[Path] = []
        self._directories: dict[int, Path] = {}
        for name in ("open", "write", "fsync", "link", "unlink", "replace", "mkdir", "rmdir"):
            setattr(self, name, self._watch(getattr(self, name)))

    def open(self, path: Path, flags: int) -> int:
        if flags & os.O_CREAT and not path.exists():
            self._fragile.append(path)
        descriptor = super().open(path, flags)
        self._directories[descriptor] = path
        return descriptor

    def mkdir(self, path: Path) -> None:
        super().mkdir(path)
        self._fragile.append(path)

    def link(self, source: Path, target: Path) -> None:
        super().link(source, target)
        self._fragile.append(target)

    def fsync(self, descriptor: int) -> None:
        synced = self._directories[descriptor]
        self._fragile = [path for path in self._fragile if path.parent != synced]

    def _watch(self, real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            self._tick()
            result = real(*arguments)
            self._tick()
            return result

        return call

    def _tick(self) -> None:
        if self.crash_at is not None and self.count >= self.crash_at:
            raise Crash
        self.count += 1

    def lose(self) -> None:
        self.crash_at = None
        for path in reversed(self._fragile):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        self._fragile.clear()

    def keep(self) -> None:
        self.crash_at = None
        self._fragile.clear()


def job(storage: LocalStorage, told: list[int]) -> None:
    """A small life: checkpoints complete, one fails, old ones go. `told` are those announced."""
    attempt = storage.start_attempt()
    for offset in range(4):
        checkpoint_id = attempt.next_checkpoint_id + offset
        if offset == 2:
            storage.write_data(checkpoint_id, [])
            storage.discard(checkpoint_id)
            continue
        complete_example(storage, JOB, checkpoint_id, attempt.number)
        told.append(checkpoint_id)
        storage.retain(1)


def crashed(disk: Disk, directory: Path, at: int, told: list[int]) -> bool:
    """Run the job until it crashes at a step; tell whether it did."""
    storage = LocalStorage(directory, job=JOB, files=DurableFiles(disk))
    disk.count, disk.crash_at = 0, at
    try:
        job(storage, told)
    except Crash:
        return True
    finally:
        disk.crash_at = None
        storage.close()
    return False


def check_restart(directory: Path, told: list[int]) -> None:
    storage = LocalStorage(directory, job=JOB)
    attempt = storage.start_attempt()
    ids = [completed.checkpoint_id for completed in attempt.completed]
    assert not told or max(ids) >= told[-1]
    assert attempt.next_checkpoint_id > max([0, *ids, *told])
    assert storage.verify(max(ids)) == [] if ids else told == []
    for checkpoint_id in ids:
        storage.load_manifest(checkpoint_id)
    complete_example(storage, JOB, attempt.next_checkpoint_id, attempt.number)
    storage.retain(1)
    left = [name for name in LOCAL_FILES.list_directory(directory / JOB) if "chk" in name]
    assert left == [layout.checkpoint_directory(attempt.next_checkpoint_id)]
    storage.close()


@pytest.mark.parametrize("power_fails", [False, True])
def test_restart_after_a_crash_at_any_step_finds_what_was_announced(
    tmp_path: Path, power_fails: bool
) -> None:
    """Also when the crash came in a second attempt, after a first one with checkpoints (P2)."""
    disk = Disk()
    for lives in (1, 2):
        for at in steps():
            directory = tmp_path / f"{lives}-{at}"
            directory.mkdir()
            told: list[int] = []
            for _ in range(lives - 1):
                assert not crashed(disk, directory, 10**6, told)
            disk.keep()
            alive = not crashed(disk, directory, at, told)
            disk.lose() if power_fails else disk.keep()
            check_restart(directory, told)
            if alive:
                break


def steps() -> Iterator[int]:
    """Number all steps; the caller stops behind the last one. A job has a few hundred."""
    yield from range(2000)


FAILING = ("open", "write", "fsync", "close", "mkdir", "link", "unlink", "stat")


class Failing(LocalFileSystem):
    """Fails the n-th call of a function, before or after it did its work."""

    def __init__(self, name: str, *, after: bool) -> None:
        super().__init__()
        self.calls = 0
        self.due: int | None = None
        self._real: Callable[..., object] = getattr(self, name)
        self._after = after
        self.fsync = lambda descriptor: None  # type: ignore[method-assign]
        setattr(self, name, self._fail)

    def _fail(self, *arguments: object) -> object:
        due = self.calls == self.due
        self.calls += 1
        if due and not self._after:
            raise OSError(errno.EIO, "broken")
        result = self._real(*arguments)
        if due:
            raise OSError(errno.EIO, "broken")
        return result


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("name", FAILING)
def test_job_goes_on_after_any_single_disk_error(tmp_path: Path, name: str, after: bool) -> None:
    for failing in range(100):
        directory = tmp_path / str(failing)
        directory.mkdir()
        system = Failing(name, after=after)
        storage = LocalStorage(directory, job=JOB, files=DurableFiles(system))
        attempt = storage.start_attempt()
        told: list[int] = []
        system.calls, system.due = 0, failing
        for checkpoint_id in range(1, 5):
            try:
                complete_example(storage, JOB, checkpoint_id, attempt.number)
                told.append(checkpoint_id)
            except StorageError:
                storage.discard(checkpoint_id)
            storage.retain(1)
        system.due = None
        assert len(told) >= 3
        assert storage.verify(told[-1]) == []
        storage.close()
        check_restart(directory, told)
        if system.calls <= failing:
            break
