"""Savepoints on the disk: whole or recognizable, nothing left of failed ones (P4, P35)."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamcp.durable_files import DurableFiles
from streamcp.errors import CheckpointDamaged, Fenced, StorageError
from streamcp.file_system import LocalFileSystem
from streamcp.storage.local import LocalStorage
from streamcp.storage.savepoints import StoredSavepoint, find_savepoints
from streamcp.testing.simulation.disk import SimulatedDisk
from streamcp.testing.simulation.disk_faults import DiskFault
from streamcp.testing.storage_checks import SECTIONS, complete_example

JOB = "orders"


class Storages:
    """A job with one complete checkpoint, 1."""

    def __init__(self, root: Path, system: LocalFileSystem | None = None) -> None:
        self.root, self.target = root / "checkpoints", root / "savepoints"
        self.storage = LocalStorage(self.root, job=JOB, files=DurableFiles(system))
        self.attempt = self.storage.start_attempt()
        self.manifest = complete_example(self.storage, JOB, 1, self.attempt.number)

    def save(self) -> Path:
        return self.storage.write_savepoint(1, self.target)


def read(path: Path) -> list[tuple[bytes, ...]]:
    savepoint = StoredSavepoint(path)
    handles = savepoint.load_manifest().acknowledgements[0].sections
    return [tuple(savepoint.read_section(handle)) for handle in handles]


EXPECTED = [section.frames for section in SECTIONS]


def test_savepoint_is_read_after_it_was_moved_and_the_job_removed(tmp_path: Path) -> None:
    made = Storages(tmp_path)
    path = made.save()
    assert path == made.target / "orders-1"
    made.storage.close()
    shutil.rmtree(made.root)
    moved = path.rename(tmp_path / "elsewhere")
    assert read(moved) == EXPECTED
    assert StoredSavepoint(moved).verify() == []
    manifest = StoredSavepoint(moved).load_manifest()
    assert (manifest.checkpoint_id, manifest.classes) == (1, made.manifest.classes)


def test_name_that_is_taken_is_never_replaced(tmp_path: Path) -> None:
    made = Storages(tmp_path)
    other = made.target / "orders-1"
    other.mkdir(parents=True)
    (other / "mine").touch()
    assert [made.save().name, made.save().name] == ["orders-1-2", "orders-1-3"]
    assert os.listdir(other) == ["mine"]


def test_retention_leaves_a_pinned_checkpoint_until_it_is_unpinned_as_often(
    tmp_path: Path,
) -> None:
    made = Storages(tmp_path)
    made.storage.pin(1)
    made.storage.pin(1)
    complete_example(made.storage, JOB, 2, made.attempt.number)
    assert made.storage.retain(1) == []
    made.storage.unpin(1)
    assert made.storage.retain(1) == []
    assert read(made.save()) == EXPECTED
    made.storage.unpin(1)
    assert made.storage.retain(1) == [1]


def test_removed_checkpoint_cannot_be_copied(tmp_path: Path) -> None:
    made = Storages(tmp_path)
    complete_example(made.storage, JOB, 2, made.attempt.number)
    made.storage.retain(1)
    with pytest.raises(StorageError, match="checkpoint 1 is no longer there"):
        made.save()
    assert not made.target.exists()


def test_damaged_checkpoint_cannot_be_copied_and_nothing_is_left(tmp_path: Path) -> None:
    made = Storages(tmp_path)
    [data] = made.root.glob("*/chk-*/data-*")
    data.write_bytes(data.read_bytes().replace(b"flight", b"fright"))
    with pytest.raises(CheckpointDamaged, match="checksum"):
        made.save()
    assert os.listdir(made.target) == []


def test_fenced_attempt_completes_no_savepoint(tmp_path: Path) -> None:
    made = Storages(tmp_path)
    LocalStorage(made.root, job=JOB).start_attempt(take_over=True)
    with pytest.raises(Fenced):
        made.save()
    assert not made.target.exists()


def test_savepoint_can_be_written_after_the_job_has_ended(tmp_path: Path) -> None:
    made = Storages(tmp_path)
    made.storage.close()
    assert read(made.save()) == EXPECTED


# ---- recognizing and deleting


def test_what_is_no_savepoint_is_refused_and_left_alone(tmp_path: Path) -> None:
    made = Storages(tmp_path)
    (tmp_path / "file").touch()
    foreign = shutil.copytree(made.save(), tmp_path / "orders-7")
    (foreign / "notes.txt").touch()
    [checkpoint] = made.root.glob("*/chk-*")
    for path in (tmp_path / "file", tmp_path / "missing", made.target, made.root, checkpoint):
        with pytest.raises(StorageError, match="is no savepoint"):
            StoredSavepoint(path).load_manifest()
    for path in (tmp_path / "file", tmp_path / "missing", made.root, checkpoint, foreign):
        with pytest.raises(StorageError, match="left alone"):
            StoredSavepoint(path).delete()
    assert (foreign / "_metadata").exists()
    assert checkpoint.exists()


def test_manifest_of_a_checkpoint_makes_no_savepoint(tmp_path: Path) -> None:
    """Its data files may be referred to from elsewhere."""
    made = Storages(tmp_path)
    [metadata] = made.root.glob("*/chk-*/_metadata")
    path = tmp_path / "orders-1"
    path.mkdir()
    shutil.copy(metadata, path)
    with pytest.raises(StorageError, match="is no savepoint"):
        StoredSavepoint(path).load_manifest()


@pytest.mark.parametrize("left", [[], ["data"], ["data", "_metadata.draft"]])
def test_unfinished_savepoint_is_listed_refused_and_deleted(
    tmp_path: Path, left: list[str]
) -> None:
    path = tmp_path / "orders-5"
    path.mkdir()
    for name in left:
        (path / name).touch()
    savepoint = StoredSavepoint(path)
    assert [one.path for one in find_savepoints(tmp_path)] == [path]
    with pytest.raises(StorageError, match=r"never finished.*savepoints delete"):
        savepoint.load_manifest()
    savepoint.delete()
    assert os.listdir(tmp_path) == []


def test_damaged_savepoint_is_named_and_can_be_deleted(tmp_path: Path) -> None:
    path = Storages(tmp_path).save()
    (path / "data").write_bytes((path / "data").read_bytes()[:-1])
    [sentence] = StoredSavepoint(path).verify()
    assert str(path / "data") in sentence
    (path / "_metadata").write_bytes(b"?")
    assert len(StoredSavepoint(path).verify()) == 1
    StoredSavepoint(path).delete()
    assert find_savepoints(tmp_path / "savepoints") == []


def test_listing_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not a directory"):
        find_savepoints(tmp_path / "missing")


# ---- crashes and errors at every step


CALLS = ("open", "write", "fsync", "unlink", "replace", "mkdir", "rmdir", "close")


class Crash(BaseException):
    """The process ends here."""


class Watched(LocalFileSystem):
    """Calls `at_step` before and after every system call."""

    def __init__(self) -> None:
        super().__init__()
        self.at_step: Callable[[str, bool], None] = lambda name, after: None
        for name in CALLS:
            setattr(self, name, self._watch(name, getattr(self, name)))

    def fsync(self, descriptor: int) -> None:
        """Nothing is lost here: the copies are made of what the process sees."""

    def _watch(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.at_step(name, False)
            result = real(*arguments)
            self.at_step(name, True)
            return result

        return call


def test_crash_at_any_step_leaves_a_whole_savepoint_or_a_recognizable_rest(
    tmp_path: Path,
) -> None:
    system = Watched()
    made = Storages(tmp_path / "job", system)
    copies: list[Path] = []

    def copy(name: str, after: bool) -> None:
        copies.append(tmp_path / f"copy-{len(copies)}")
        if made.target.exists():
            shutil.copytree(made.target, copies[-1])

    system.at_step = copy
    made.save()
    whole = 0
    for left in filter(Path.exists, copies):
        found = find_savepoints(left)
        assert [one.path.name for one in found] == os.listdir(left)
        for one in found:
            if one.exists():
                assert one.verify() == []
                assert read(one.path) == EXPECTED
                whole += 1
            else:
                assert one.is_unfinished()
            one.delete()
        assert os.listdir(left) == []
    assert 0 < whole < len(copies), "both kinds of crash were seen"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("failing", ["open", "write", "fsync", "replace", "mkdir"])
def test_savepoint_that_fails_at_any_call_leaves_nothing_behind(
    tmp_path: Path, failing: str, after: bool
) -> None:
    system = Watched()
    made = Storages(tmp_path, system)
    made.target.mkdir()
    for number in range(100):
        calls: list[str] = []

        def fail(name: str, is_after: bool, calls: list[str] = calls, number: int = number) -> None:
            if name == failing and is_after == after:
                calls.append(name)
                if len(calls) == number + 1:
                    raise OSError(errno.ENOSPC, "full")

        system.at_step = fail
        path = saved(made)
        system.at_step = lambda name, after: None
        if path is not None:
            assert read(path) == EXPECTED
            break
        left = os.listdir(made.target)
        assert left == [] or failing == "mkdir", "a name that was never owned may stay"
        shutil.rmtree(made.target)
        made.target.mkdir()
    assert number > 0
    assert made.storage.verify(1) == []


def saved(made: Storages) -> Path | None:
    """Write a savepoint; None if the disk is full."""
    try:
        return made.save()
    except StorageError:
        return None


def test_interrupted_savepoint_leaves_nothing_behind(tmp_path: Path) -> None:
    system = Watched()
    made = Storages(tmp_path, system)

    def interrupt(name: str, after: bool) -> None:
        if name == "replace":
            raise Crash

    system.at_step = interrupt
    with pytest.raises(Crash):
        made.save()
    assert os.listdir(made.target) == []


# ---- power failures


TARGET = Path("/savepoints")


def lives_on(disk: SimulatedDisk) -> tuple[StoredSavepoint, DurableFiles]:
    files = disk.process("reader").files
    return StoredSavepoint(TARGET / "orders-1", files=files), files


@pytest.mark.parametrize("seed", range(3))
def test_power_failure_at_any_step_leaves_a_whole_savepoint_or_none(seed: int) -> None:
    """And what was said to be written is there."""
    disk = SimulatedDisk(random.Random(seed))
    storage = LocalStorage(Path("/checkpoints"), job=JOB, files=disk.process().files)
    complete_example(storage, JOB, 1, storage.start_attempt().number)
    left: list[SimulatedDisk] = []
    disk.before = lambda operation: left.append(disk.crash())
    storage.write_savepoint(1, TARGET)
    disk.before = None
    whole, _ = lives_on(disk.crash())
    assert whole.verify() == []
    for one in left:
        savepoint, files = lives_on(one)
        if savepoint.exists():
            assert savepoint.verify() == []
        elif files.exists(savepoint.path):
            assert savepoint.is_unfinished()
            savepoint.delete()
            assert not files.exists(savepoint.path)


def test_power_failure_while_a_failed_savepoint_is_removed_leaves_a_whole_one_or_none() -> None:
    """Its manifest has its name already: what it needs must not go before that name has."""
    for seed in range(20):
        disk = SimulatedDisk(random.Random(seed))
        storage = LocalStorage(Path("/checkpoints"), job=JOB, files=disk.process().files)
        complete_example(storage, JOB, 1, storage.start_attempt().number)
        in_savepoint = str(TARGET / "orders-1")
        disk.plan(DiskFault("fsync", 4, effect="whole", path=in_savepoint))  # behind the rename
        left: list[SimulatedDisk] = []
        disk.before = lambda operation, disk=disk, left=left: left.append(disk.crash())
        with pytest.raises(StorageError):
            storage.write_savepoint(1, TARGET)
        check_whole_or_none([*left, disk.crash()])


def test_power_failure_while_a_savepoint_is_deleted_leaves_a_whole_one_or_none() -> None:
    for seed in range(20):
        disk = SimulatedDisk(random.Random(seed))
        storage = LocalStorage(Path("/checkpoints"), job=JOB, files=disk.process().files)
        complete_example(storage, JOB, 1, storage.start_attempt().number)
        storage.write_savepoint(1, TARGET)
        left: list[SimulatedDisk] = []
        disk.before = lambda operation, disk=disk, left=left: left.append(disk.crash())
        lives_on_here, _ = lives_on(disk)
        lives_on_here.delete()
        check_whole_or_none([*left, disk.crash()])


def check_whole_or_none(disks: list[SimulatedDisk]) -> None:
    for disk in disks:
        savepoint, _ = lives_on(disk)
        if savepoint.exists():
            assert savepoint.verify() == []
