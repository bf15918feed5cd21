import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamcp.durable_files import LOCAL_FILES, DurableFiles, KeptDirectories
from streamcp.errors import StorageError
from streamcp.file_system import LocalFileSystem
from streamcp.testing.simulation.disk import SimulatedDisk
from streamcp.testing.simulation.disk_faults import DiskFault


def fail_with(code: int, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, function, fail)


def test_written_file_holds_all_chunks_and_tells_its_size(tmp_path: Path) -> None:
    path = tmp_path / "data"
    assert LOCAL_FILES.write_file(path, [b"ab", b"", b"cde"]) == 5
    assert path.read_bytes() == b"abcde"


def test_writing_over_an_existing_file_is_refused_and_leaves_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"old")
    with pytest.raises(StorageError, match=r"data could not be written: it exists already"):
        LOCAL_FILES.write_file(path, [b"new"])
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (errno.ENOSPC, "disk full"),
        (errno.EDQUOT, "quota"),
        (errno.EIO, "input/output error"),
        (errno.EPROTO, "Protocol error"),
    ],
)
def test_failing_fsync_names_path_and_cause_and_leaves_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, cause: str
) -> None:
    fail_with(code, monkeypatch, "fsync")
    with pytest.raises(StorageError, match=cause) as caught:
        LOCAL_FILES.write_file(tmp_path / "data", [b"ab"])
    assert str(tmp_path / "data") in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_chunks_that_raise_leave_no_part_and_their_own_error(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"ab"
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        LOCAL_FILES.write_file(tmp_path / "data", broken())
    assert os.listdir(tmp_path) == []


def test_missing_directory_names_path_and_cause(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such file or directory"):
        LOCAL_FILES.write_file(tmp_path / "none" / "data", [b""])


def test_link_to_a_free_name_is_made(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    assert LOCAL_FILES.link_new(tmp_path / "a", tmp_path / "b")
    assert LOCAL_FILES.is_same_file(tmp_path / "a", tmp_path / "b")


def test_link_to_a_taken_name_is_refused_and_leaves_it_alone(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "b").write_bytes(b"x")
    assert not LOCAL_FILES.link_new(tmp_path / "a", tmp_path / "b")
    assert not LOCAL_FILES.is_same_file(tmp_path / "a", tmp_path / "b")


def test_link_of_a_removed_file_to_a_taken_name_says_taken(tmp_path: Path) -> None:
    """An attempt whose files were swept away by its successor must learn that it is fenced."""
    (tmp_path / "b").write_bytes(b"x")
    assert not LOCAL_FILES.link_new(tmp_path / "a", tmp_path / "b")
    with pytest.raises(StorageError, match="c could not be linked: no such file"):
        LOCAL_FILES.link_new(tmp_path / "a", tmp_path / "c")


@pytest.mark.parametrize("code", [errno.EEXIST, errno.EIO])
def test_link_made_although_an_error_came_back_counts_as_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    (tmp_path / "a").write_bytes(b"x")
    real = os.link

    def link(source: Path, target: Path) -> None:
        real(source, target)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", link)
    assert LOCAL_FILES.link_new(tmp_path / "a", tmp_path / "b")


def test_link_not_made_for_another_reason_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"x")
    fail_with(errno.ENOSPC, monkeypatch, "link")
    with pytest.raises(StorageError, match="b could not be linked: disk full"):
        LOCAL_FILES.link_new(tmp_path / "a", tmp_path / "b")


def test_rename_replaces_the_target(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"new")
    (tmp_path / "b").write_bytes(b"old")
    LOCAL_FILES.rename(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"new"
    assert not LOCAL_FILES.exists(tmp_path / "a")


def test_rename_of_a_missing_file_raises_and_leaves_the_target(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"old")
    with pytest.raises(StorageError, match="a could not be renamed"):
        LOCAL_FILES.rename(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"old"


def test_directories_are_made_with_their_parents(tmp_path: Path) -> None:
    LOCAL_FILES.make_directories(tmp_path / "a" / "b")
    LOCAL_FILES.make_directories(tmp_path / "a" / "b")
    LOCAL_FILES.make_directory(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_permission_denied_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(errno.EACCES, monkeypatch, "mkdir")
    with pytest.raises(StorageError, match="made: permission denied"):
        LOCAL_FILES.make_directory(tmp_path / "a")


def test_what_does_not_exist_reads_as_none_and_removes_as_done(tmp_path: Path) -> None:
    assert LOCAL_FILES.read_file(tmp_path / "a") is None
    assert LOCAL_FILES.read_range(tmp_path / "a", 0, 1) is None
    assert LOCAL_FILES.list_directory(tmp_path / "a") == []
    LOCAL_FILES.remove_file(tmp_path / "a")
    LOCAL_FILES.remove_directory(tmp_path / "a")


def test_range_reads_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abcdef")
    assert LOCAL_FILES.read_range(tmp_path / "a", 1, 3) == b"bcd"
    assert LOCAL_FILES.read_range(tmp_path / "a", 4, 10**15) == b"ef"
    assert LOCAL_FILES.read_range(tmp_path / "a", 9, 3) == b""


def test_range_is_read_whole_although_the_system_gives_it_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"abcdef")
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, at: real(fd, min(length, 2), at))
    assert LOCAL_FILES.read_range(tmp_path / "a", 1, 5) == b"bcdef"


def test_reading_a_directory_as_a_file_names_the_cause(tmp_path: Path) -> None:
    for read in (LOCAL_FILES.read_file, lambda path: LOCAL_FILES.read_range(path, 0, 1)):
        with pytest.raises(StorageError, match="it is a directory"):
            read(tmp_path)
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(StorageError, match="not a directory"):
        LOCAL_FILES.list_directory(tmp_path / "a")


def test_looking_below_a_file_names_the_cause(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(StorageError, match="not a directory"):
        LOCAL_FILES.exists(tmp_path / "a" / "b")
    with pytest.raises(StorageError, match="not a directory"):
        LOCAL_FILES.is_same_file(tmp_path / "a", tmp_path / "a" / "b")


class Counting(LocalFileSystem):
    def __init__(self) -> None:
        super().__init__()
        self.synced: list[Path] = []
        self._opened: dict[int, Path] = {}

    def open(self, path: Path, flags: int) -> int:
        descriptor = super().open(path, flags)
        self._opened[descriptor] = path
        return descriptor

    def fsync(self, descriptor: int) -> None:
        self.synced.append(self._opened[descriptor])


def test_directory_of_a_process_that_died_before_the_fsync_is_made_durable(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    system = Counting()
    DurableFiles(system).make_directories(tmp_path / "a" / "b" / "c")
    assert system.synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]


def test_parent_that_may_not_be_read_does_not_keep_its_directory_from_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(errno.EACCES, monkeypatch, "open")
    DurableFiles().make_directories(tmp_path)
    with pytest.raises(StorageError, match="permission denied"):
        DurableFiles().make_directories(tmp_path / "a")


def test_parent_that_cannot_be_made_durable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(errno.EIO, monkeypatch, "fsync")
    with pytest.raises(StorageError, match="could not be fsynced: the device reported"):
        DurableFiles().make_directories(tmp_path)


def test_replaced_file_loses_its_name_but_not_its_content(tmp_path: Path) -> None:
    """The content may be linked elsewhere: nothing is cut."""
    (tmp_path / "a").write_bytes(b"old")
    os.link(tmp_path / "a", tmp_path / "kept")
    LOCAL_FILES.write_file(tmp_path / "a", [b"new"], replace=True)
    assert [(tmp_path / name).read_bytes() for name in ("a", "kept")] == [b"new", b"old"]


def test_many_small_chunks_are_written_by_few_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    real = os.write

    def write(descriptor: int, data: bytes) -> int:
        sizes.append(len(data))
        return real(descriptor, data[:700_000])

    monkeypatch.setattr(os, "write", write)
    chunks = [b"a" * 10_000] * 150 + [b"b" * 2_000_000]
    assert LOCAL_FILES.write_file(tmp_path / "data", chunks) == 3_500_000
    assert (tmp_path / "data").read_bytes() == b"".join(chunks)
    assert len(sizes) == 6


def test_appended_parts_follow_one_another(tmp_path: Path) -> None:
    for part in (b"one", b"two"):
        LOCAL_FILES.append(tmp_path / "lines", part)
    assert (tmp_path / "lines").read_bytes() == b"onetwo"


def test_directory_that_holds_something_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").touch()
    assert not LOCAL_FILES.remove_directory(tmp_path / "a")
    with pytest.raises(StorageError, match="not a directory"):
        LOCAL_FILES.remove_directory(tmp_path / "a" / "b")


def test_kept_directory_is_opened_once_until_it_is_closed(tmp_path: Path) -> None:
    system = Counting()
    kept = KeptDirectories(DurableFiles(system))
    kept.sync(tmp_path)
    kept.sync(tmp_path)
    assert len(system._opened) == 1
    kept.close()
    kept.sync(tmp_path)
    assert system.synced == [tmp_path] * 3
    kept.close()
    with pytest.raises(StorageError, match="none could not be opened"):
        kept.sync(tmp_path / "none")


def test_failed_fsync_of_the_parent_of_a_made_directory_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(errno.EIO, monkeypatch, "fsync")
    with pytest.raises(StorageError, match="could not be fsynced"):
        LOCAL_FILES.make_directories(tmp_path)


def test_files_written_together_hold_their_content_under_their_names(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"of an earlier try")
    with LOCAL_FILES.open_directory(tmp_path) as directory:
        LOCAL_FILES.write_together(
            {tmp_path / "a": [b"1", b"2"], tmp_path / "b": [b"3"]}, [directory]
        )
    assert (tmp_path / "a").read_bytes() == b"12"
    assert (tmp_path / "b").read_bytes() == b"3"


def test_files_written_together_are_there_after_a_loss_of_power_in_any_order_of_fsyncs() -> None:
    for seed in range(20):
        disk = SimulatedDisk(random.Random(seed))
        files = disk.process().files
        files.make_directories(Path("/d"))
        with files.open_directory(Path("/d")) as directory:
            files.write_together({Path("/d/a"): [b"1" * 2000], Path("/d/b"): [b"2"]}, [directory])
        found = disk.crash().process().files
        assert found.read_file(Path("/d/a")) == b"1" * 2000
        assert found.read_file(Path("/d/b")) == b"2"


@pytest.mark.parametrize("at", [1, 2, 3])
def test_none_of_the_files_stays_if_one_fsync_fails(at: int) -> None:
    disk = SimulatedDisk(random.Random(0))
    process = disk.process()
    process.files.make_directories(Path("/d"))
    disk.plan(DiskFault("fsync", at, errno.EIO))
    with (
        process.files.open_directory(Path("/d")) as directory,
        pytest.raises(StorageError, match=r"could not be fsynced: the device reported"),
    ):
        process.files.write_together({Path("/d/a"): [b"1"], Path("/d/b"): [b"2"]}, [directory])
    assert process.files.list_directory(Path("/d")) == []
    assert process.open_paths() == []


def test_directory_that_cannot_be_opened_names_path_and_cause(tmp_path: Path) -> None:
    with (
        pytest.raises(StorageError, match="none could not be opened: no such file"),
        LOCAL_FILES.open_directory(tmp_path / "none"),
    ):
        pass


def test_forked_process_does_not_wait_for_threads_that_it_has_not_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = LocalFileSystem()
    of_parent = system._own_threads()
    assert system._own_threads() is of_parent
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert system._own_threads() is not of_parent


def test_each_failing_fsync_is_told_apart(tmp_path: Path) -> None:
    system = LocalFileSystem()
    descriptor = system.open(tmp_path / "a", os.O_WRONLY | os.O_CREAT)
    closed = system.open(tmp_path / "b", os.O_WRONLY | os.O_CREAT)
    system.close(closed)
    errors = system.fsync_each([descriptor, closed, descriptor, closed])
    assert [error and error.errno for error in errors] == [None, errno.EBADF, None, errno.EBADF]
    system.close(descriptor)
