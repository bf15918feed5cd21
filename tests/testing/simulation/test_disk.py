"""The simulated disk against its promises."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.durable_files import DurableFiles
from streamcp.errors import StorageError
from streamcp.file_system import FileSystem, LocalFileSystem
from streamcp.testing.simulation.disk import SimulatedDisk
from streamcp.testing.simulation.disk_faults import DiskFault, Operation, draw_fault
from streamcp.testing.simulation.disk_process import DiskProcess, ProcessEnded

D = Path("/d")
SEEDS = range(60)


def disk_with_directory(seed: int = 0) -> tuple[SimulatedDisk, DiskProcess]:
    disk = SimulatedDisk(random.Random(seed))
    process = disk.process()
    process.files.make_directories(D)
    return disk, process


def write(process: DiskProcess, path: Path, data: bytes, offset: int = 0) -> int:
    descriptor = process.open(path, os.O_WRONLY | os.O_CREAT)
    process.pwrite(descriptor, data, offset)
    return descriptor


def found(seed: int, work: Callable[[DiskProcess], None]) -> DiskProcess:
    """What a restart finds after `work` and a loss of power."""
    disk, process = disk_with_directory(seed)
    work(process)
    return disk.crash().process()


# --- what survives --------------------------------------------------------------------------------


def test_fsynced_file_under_a_fsynced_name_survives_whole() -> None:
    def work(process: DiskProcess) -> None:
        process.files.write_file(D / "a", [b"x" * 2000])
        process.files.sync_directory(D)

    assert {found(seed, work).files.read_file(D / "a") for seed in SEEDS} == {b"x" * 2000}


def test_fsynced_file_without_a_fsynced_name_survives_whole_or_not_at_all() -> None:
    def work(process: DiskProcess) -> None:
        process.files.write_file(D / "a", [b"x" * 2000])

    assert {found(seed, work).files.read_file(D / "a") for seed in SEEDS} == {None, b"x" * 2000}


def test_data_that_was_not_fsynced_may_be_lost_torn_or_there() -> None:
    def work(process: DiskProcess) -> None:
        write(process, D / "a", b"x" * 2000)
        process.files.sync_directory(D)

    left = [found(seed, work).files.read_file(D / "a") for seed in SEEDS]
    assert {b"", b"x" * 2000} < set(left)
    assert any(data is not None and 0 < data.count(b"x") < len(data) for data in left)
    assert any(data is not None and 0 < data.count(b"x") < 2000 for data in left)


def test_fsynced_part_of_a_file_survives_what_is_written_behind_it() -> None:
    def work(process: DiskProcess) -> None:
        descriptor = write(process, D / "a", b"old" * 500)
        process.fsync(descriptor)
        process.files.sync_directory(D)
        process.pwrite(descriptor, b"new" * 500, 1500)

    left = [found(seed, work).files.read_file(D / "a") or b"" for seed in SEEDS]
    assert {data[:1500] for data in left} == {b"old" * 500}
    assert len({len(data) for data in left}) > 3


def test_cut_file_may_come_back_until_it_is_fsynced() -> None:
    def work(process: DiskProcess) -> None:
        descriptor = write(process, D / "a", b"x" * 1000)
        process.fsync(descriptor)
        process.files.sync_directory(D)
        process.truncate(descriptor, 10)

    sizes = {found(seed, work).files.size(D / "a") for seed in SEEDS}
    assert {10, 1000} < sizes


def test_names_that_were_not_fsynced_appear_in_any_combination() -> None:
    def work(process: DiskProcess) -> None:
        for name in ("a", "b", "c"):
            process.files.write_file(D / name, [b"x"])

    left = {tuple(found(seed, work).files.list_directory(D)) for seed in range(300)}
    assert len(left) == 8


def test_removed_name_may_come_back_until_the_directory_is_fsynced() -> None:
    def work(process: DiskProcess) -> None:
        process.files.write_file(D / "a", [b"x"])
        process.files.sync_directory(D)
        process.unlink(D / "a")

    assert {found(seed, work).files.read_file(D / "a") for seed in SEEDS} == {None, b"x"}


def test_replaced_name_has_the_old_or_the_new_file_whole() -> None:
    def work(process: DiskProcess) -> None:
        process.files.write_file(D / "a", [b"old"])
        process.files.sync_directory(D)
        process.files.write_file(D / "b", [b"new"])
        process.replace(D / "b", D / "a")

    left = [found(seed, work).files for seed in SEEDS]
    states = {(files.read_file(D / "a"), files.read_file(D / "b")) for files in left}
    assert states == {(b"old", None), (b"old", b"new"), (b"new", None)}


def test_directory_that_was_not_fsynced_goes_with_everything_in_it() -> None:
    def work(process: DiskProcess) -> None:
        process.mkdir(D / "sub")
        process.files.write_file(D / "sub" / "a", [b"x"])
        process.files.sync_directory(D / "sub")

    left = {found(seed, work).files.read_file(D / "sub" / "a") for seed in SEEDS}
    assert left == {None, b"x"}


def test_linked_names_are_one_file_also_after_a_crash() -> None:
    disk, process = disk_with_directory()
    process.files.write_file(D / "a", [b"x" * 2000])
    assert process.files.link_new(D / "a", D / "b")
    process.files.sync_directory(D)
    files = disk.crash().process().files
    assert files.is_same_file(D / "a", D / "b")


def test_failed_fsync_loses_data_that_the_next_fsync_does_not_miss() -> None:
    def work(process: DiskProcess) -> None:
        descriptor = write(process, D / "a", b"x" * 2000)
        process._disk.plan(DiskFault("fsync", 1))
        with pytest.raises(OSError, match="Input/output error"):
            process.fsync(descriptor)
        process.fsync(descriptor)
        process.files.sync_directory(D)
        assert process.pread(descriptor, 2000, 0) == b"x" * 2000

    left = {found(seed, work).files.read_file(D / "a") for seed in SEEDS}
    assert b"\0" * 2000 in left
    assert len(left) > 3


def test_crash_without_loss_of_power_loses_nothing_but_open_files_and_locks() -> None:
    disk, process = disk_with_directory()
    process.lock(write(process, D / "a", b"x"))
    files = disk.crash(power_fails=False).process()
    assert files.files.read_file(D / "a") == b"x"
    files.lock(files.open(D / "a", os.O_RDWR))


def test_what_an_ended_process_did_not_fsync_is_lost_when_the_power_fails_later() -> None:
    left = set()
    for seed in SEEDS:
        disk, process = disk_with_directory(seed)
        write(process, D / "a", b"x")
        restarted = disk.crash(power_fails=False)
        left.add(restarted.crash().process().files.read_file(D / "a"))
    assert {None, b"", b"x"} <= left


def test_crash_leaves_the_disk_as_it_was_to_who_still_works_on_it() -> None:
    disk, process = disk_with_directory()
    disk.crash().process().files.make_directory(D / "sub")
    write(process, D / "a", b"x")
    assert disk.paths() == ["/d", "/d/a"]


@given(st.integers(0, 2**32))
def test_same_seed_gives_the_same_disk(seed: int) -> None:
    def left() -> tuple[list[str], bytes | None]:
        disk, process = disk_with_directory(seed)
        for name in ("a", "b", "c"):
            write(process, D / name, name.encode() * 3000)
        again = disk.crash()
        return again.paths(), again.process().files.read_file(D / "b")

    assert left() == left()


# --- processes ------------------------------------------------------------------------------------


def test_lock_is_held_against_other_descriptors_until_its_process_ends() -> None:
    disk, first = disk_with_directory()
    second = disk.process("second")
    first.lock(first.open(D / "lock", os.O_RDWR | os.O_CREAT))
    descriptor = second.open(D / "lock", os.O_RDWR)
    with pytest.raises(BlockingIOError):
        second.lock(descriptor)
    assert first.open_paths() == [D / "lock"]
    first.end()
    second.lock(descriptor)


def test_ended_process_changes_nothing_any_more() -> None:
    disk, process = disk_with_directory()
    descriptor = write(process, D / "a", b"x")
    process.end()
    for call in (
        lambda: process.unlink(D / "a"),
        lambda: process.pwrite(descriptor, b"y", 0),
        lambda: process.close(descriptor),
    ):
        with pytest.raises(ProcessEnded):
            call()
    assert disk.process().files.read_file(D / "a") == b"x"


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "left"),
    [
        (DiskFault("write", 1, errno.ENOSPC), 0),
        (DiskFault("write", 1, errno.EDQUOT, "whole"), 2000),
        (DiskFault("open", 1, errno.EACCES), None),
        (DiskFault("open", 1, errno.EIO, "whole"), 0),
        (DiskFault("close", 1, errno.EIO), 2000),
    ],
    ids=str,
)
def test_planned_fault_has_its_effect_and_error(fault: DiskFault, left: int | None) -> None:
    disk, process = disk_with_directory()
    disk.plan(fault)
    with pytest.raises(StorageError) as caught:
        process.files.append(D / "a", b"x" * 2000)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == fault.error
    assert process.files.size(D / "a") == left
    assert process.open_paths() == []
    process.files.append(D / "a", b"again")


def test_write_that_fails_in_part_has_written_a_part() -> None:
    sizes = set()
    for seed in SEEDS:
        disk, process = disk_with_directory(seed)
        disk.plan(DiskFault("write", 1, effect="part"))
        with pytest.raises(StorageError):
            process.files.append(D / "a", b"x" * 2000)
        sizes.add(process.files.size(D / "a"))
    assert len(sizes) > 10


def test_lost_answer_of_a_link_is_settled_by_looking() -> None:
    disk, process = disk_with_directory()
    process.files.write_file(D / "a", [b"x"])
    disk.plan(DiskFault("link", 1, effect="whole"))
    assert process.files.link_new(D / "a", D / "b")


def test_fault_counts_the_calls_on_its_path_only() -> None:
    disk, process = disk_with_directory()
    disk.plan(DiskFault("open", 2, times=2, path="/b"))
    failed = []
    for name in ("a", "b", "a", "b", "b", "b"):
        try:
            process.close(process.open(D / name, os.O_CREAT | os.O_WRONLY))
        except OSError:
            failed.append(name)
    assert failed == ["b", "b"]


def test_full_disk_takes_what_fits_and_works_again_when_something_is_removed() -> None:
    disk, process = disk_with_directory()
    disk.capacity = 100
    process.files.write_file(D / "a", [b"x" * 60])
    with pytest.raises(StorageError, match="disk full"):
        process.files.append(D / "b", b"y" * 50)
    assert process.files.size(D / "b") == 40
    with pytest.raises(StorageError, match="disk full"):
        process.files.make_directory(D / "sub")
    process.unlink(D / "a")
    process.files.make_directory(D / "sub")
    process.files.append(D / "b", b"y" * 10)


def test_drawn_faults_are_of_many_kinds_and_readable() -> None:
    faults = {str(draw_fault(random.Random(seed))) for seed in range(500)}
    assert len(faults) > 400
    assert str(DiskFault("fsync", 3, path="log")) == "fsync 3 of log: EIO, effect none"
    assert str(DiskFault("link", 3, times=2)) == "link 3-4: EIO, effect none"


# --- hooks ----------------------------------------------------------------------------------------


def test_trace_has_a_line_per_operation_with_its_outcome() -> None:
    disk, process = disk_with_directory()
    lines: list[str] = []
    disk.trace = lines.append
    process.files.write_file(D / "a", [b"x" * 20])
    process.files.exists(D / "none")
    disk.plan(DiskFault("unlink", 1, effect="whole"))
    with pytest.raises(OSError, match="error"):
        process.unlink(D / "a")
    assert [line.partition(" ")[2] for line in lines] == [
        "main: open /d/a CREAT EXCL -> 3",
        "main: write /d/a 20 bytes -> 20",
        "main: fsync /d/a -> ok",
        "main: close /d/a -> ok",
        "main: stat /d/none -> ENOENT",
        "main: unlink /d/a -> after whole: EIO",
    ]


def test_delays_add_up() -> None:
    disk, process = disk_with_directory()
    disk.delay = lambda operation: 0.5 if operation.name == "fsync" else 0.25
    process.files.write_file(D / "a", [b"x"])
    assert disk.seconds == 1.25


def test_hook_comes_before_each_operation_and_may_fail_it() -> None:
    disk, process = disk_with_directory()
    numbers = []

    def before(operation: Operation) -> None:
        numbers.append(operation.number - start)
        if operation.name == "fsync":
            raise OSError(errno.EIO, "hook")

    start, disk.before = disk.operations, before
    with pytest.raises(StorageError, match="input/output"):
        process.files.write_file(D / "a", [b"x"])
    assert numbers == [1, 2, 3, 4, 5]
    assert disk.paths() == ["/d"]


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda p, d: p.open(d / "none", os.O_RDONLY), errno.ENOENT),
        (lambda p, d: p.open(d / "none" / "a", os.O_CREAT), errno.ENOENT),
        (lambda p, d: p.open(d / "file" / "a", os.O_CREAT), errno.ENOTDIR),
        (lambda p, d: p.open(d / "file", os.O_DIRECTORY), errno.ENOTDIR),
        (lambda p, d: p.open(d / "file", os.O_CREAT | os.O_EXCL), errno.EEXIST),
        (lambda p, d: p.open(d, os.O_WRONLY), errno.EISDIR),
        (lambda p, d: p.pread(p.open(d, os.O_RDONLY), 1, 0), errno.EISDIR),
        (lambda p, d: p.close(10**6), errno.EBADF),
        (lambda p, d: p.mkdir(d / "file"), errno.EEXIST),
        (lambda p, d: p.rmdir(d), errno.ENOTEMPTY),
        (lambda p, d: p.rmdir(d / "file"), errno.ENOTDIR),
        (lambda p, d: p.unlink(d), errno.EISDIR),
        (lambda p, d: p.unlink(d / "none"), errno.ENOENT),
        (lambda p, d: p.link(d, d / "a"), errno.EPERM),
        (lambda p, d: p.link(d / "file", d / "sub"), errno.EEXIST),
        (lambda p, d: p.replace(d / "file", d / "sub"), errno.EISDIR),
        (lambda p, d: p.replace(d / "none", d / "file"), errno.ENOENT),
        (lambda p, d: p.listdir(d / "file"), errno.ENOTDIR),
    ],
)
def test_impossible_call_fails_as_the_machine_s_own_does(
    tmp_path: Path, call: Callable[[FileSystem, Path], object], code: int
) -> None:
    _, process = disk_with_directory()
    systems: list[tuple[FileSystem, Path]] = [(process, D), (LocalFileSystem(), tmp_path)]
    for system, directory in systems:
        DurableFiles(system).write_file(directory / "file", [b"x"])
        system.mkdir(directory / "sub")
        with pytest.raises(OSError, match=r"\[Errno") as caught:
            call(system, directory)
        assert caught.value.errno == code
