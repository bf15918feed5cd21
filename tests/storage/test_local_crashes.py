"""Crashes between any two steps on the disk, with and without the loss of what was not synced."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamcp import durable_files
from streamcp.errors import StorageError
from streamcp.storage import layout
from streamcp.storage.local import LocalStorage
from streamcp.testing.storage_checks import complete_example

JOB = "orders"
MAKERS = {"write_file": 0, "make_directory": 0, "make_directories": 0, "link_new": 1}
"""Functions that make a name, and which of their arguments it is."""
OTHERS = ("sync_directory", "remove_file", "remove_directory", "rename", "list_directory")


class Crash(BaseException):
    """The process ends here."""


class Disk:
    """Every function of `durable_files`, counted; ends the process before or after one of them.

    `lose` takes away every name that no fsync of its directory has made durable, as a power
    failure may. Renames are not modelled: they are for figures only.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.crash_at: float | None = None
        self._fragile: list[Path] = []
        for name in (*MAKERS, *OTHERS):
            monkeypatch.setattr(durable_files, name, self._watch(name))
        monkeypatch.setattr("os.fsync", lambda descriptor: None)

    def _watch(self, name: str) -> Callable[..., object]:
        real = getattr(durable_files, name)

        def call(*arguments: Path) -> object:
            self._tick()
            if name in MAKERS and not arguments[MAKERS[name]].exists():
                self._fragile.append(arguments[MAKERS[name]])
            result = real(*arguments)
            if name == "sync_directory":
                self._fragile = [path for path in self._fragile if path.parent != arguments[0]]
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
    storage = LocalStorage(directory, job=JOB)
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
    left = [name for name in durable_files.list_directory(directory / JOB) if "chk" in name]
    assert left == [layout.checkpoint_directory(attempt.next_checkpoint_id)]
    storage.close()


@pytest.mark.parametrize("power_fails", [False, True])
def test_restart_after_a_crash_at_any_step_finds_what_was_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, power_fails: bool
) -> None:
    """Also when the crash came in a second attempt, after a first one with checkpoints (P2)."""
    disk = Disk(monkeypatch)
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


FAILING = ("write_file", "make_directory", "sync_directory", "link_new", "remove_file")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("name", FAILING)
def test_job_goes_on_after_any_single_disk_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, after: bool
) -> None:
    """The n-th call of a function fails, before or after it did its work."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    for failing in range(100):
        directory = tmp_path / str(failing)
        directory.mkdir()
        storage = LocalStorage(directory, job=JOB)
        attempt = storage.start_attempt()
        calls: list[object] = []
        told: list[int] = []
        real = getattr(durable_files, name)

        def fail(
            *arguments: Path,
            calls: list[object] = calls,
            failing: int = failing,
            real: Callable[..., object] = real,
        ) -> object:
            calls.append(arguments)
            due = len(calls) == failing + 1
            result = None if due and not after else real(*arguments)
            if due:
                raise StorageError(f"{name} {arguments}: broken")
            return result

        with monkeypatch.context() as patch:
            patch.setattr(durable_files, name, fail)
            for checkpoint_id in range(1, 5):
                try:
                    complete_example(storage, JOB, checkpoint_id, attempt.number)
                    told.append(checkpoint_id)
                except StorageError:
                    storage.discard(checkpoint_id)
                storage.retain(1)
        assert len(told) >= 3
        assert storage.verify(told[-1]) == []
        storage.close()
        check_restart(directory, told)
        if len(calls) <= failing:
            break
