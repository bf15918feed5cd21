import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamcp.checkpoint.snapshot import Section
from streamcp.durable_files import LOCAL_FILES, DurableFiles, explain
from streamcp.errors import CheckpointDamaged, Fenced, StorageError
from streamcp.file_system import LocalFileSystem
from streamcp.storage import layout
from streamcp.storage.contract import CheckpointStorage
from streamcp.storage.local import LocalStorage
from streamcp.testing.storage_checks import (
    SECTIONS,
    SUBTASK,
    check_checkpoint_storage,
    complete_example,
    example_manifest,
)

JOB = "orders"
DATA = [(SUBTASK, SECTIONS[0])]


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[LocalStorage]:
    storage = LocalStorage(tmp_path, job=JOB)
    yield storage
    storage.close()


def names(directory: Path) -> list[str]:
    return [name for name in LOCAL_FILES.list_directory(directory / JOB) if "chk" in name]


def test_local_storage_keeps_the_contract(tmp_path: Path) -> None:
    def make(job: str) -> CheckpointStorage:
        return LocalStorage(tmp_path, job=job)

    check_checkpoint_storage(make)


class Tracing(LocalFileSystem):
    """Notes the calls that change something or take long."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.trace: list[str] = []
        self._directory = directory
        self._paths: dict[int, Path] = {}
        for name in ("write", "fsync", "link", "unlink", "mkdir", "rmdir"):
            setattr(self, name, self._traced(name, getattr(self, name)))

    def open(self, path: Path, flags: int) -> int:
        descriptor = super().open(path, flags)
        self._paths[descriptor] = path
        return descriptor

    def _traced(self, name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(where: int | Path, *rest: object) -> object:
            path = self._paths[where] if isinstance(where, int) else where
            self.trace.append(f"{name} {os.path.relpath(path, self._directory)}")
            return real(where, *rest)

        return call


@pytest.mark.parametrize("defer", [False, True])
def test_completing_makes_all_durable_side_by_side_before_the_link(
    tmp_path: Path, defer: bool
) -> None:
    """Data, manifest and names, then the link, then the log's directory."""
    system = Tracing(tmp_path / JOB)
    storage = LocalStorage(tmp_path, job=JOB, files=DurableFiles(system))
    storage.start_attempt()
    complete_example(storage, JOB, 1, 1)
    system.trace.clear()
    complete_example(storage, JOB, 2, 1, defer=defer)
    storage.retain(1)
    data = ["write chk-00000002/data-1-2", "fsync chk-00000002/data-1-2"]
    side_by_side = ["fsync chk-00000002/_metadata", "fsync chk-00000002", "fsync ."]
    written = data if not defer else data[:1]
    synced = side_by_side if not defer else [*side_by_side, data[1]]
    link = system.trace.index("link chk-00000002/_metadata")
    assert system.trace[: link - len(synced)] == [
        "mkdir chk-00000002",
        *written,
        "write chk-00000002/_metadata",
    ]
    assert sorted(system.trace[link - len(synced) : link]) == sorted(synced)
    assert system.trace[link + 1 :] == [
        "fsync log",
        "unlink log/000000000002",
        "unlink chk-00000001/_metadata",
        "unlink chk-00000001/data-1-1",
        "rmdir chk-00000001",
    ]
    storage.close()


def test_data_that_is_not_small_is_not_deferred(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path, job=JOB, small_data=22)
    storage.start_attempt()
    assert storage.defer_data(1, [(SUBTASK, Section("rest", "read", (b"a" * 20, b"bb"), 2))])
    assert (
        storage.defer_data(1, [(SUBTASK, Section("rest", "read", (b"a" * 20, b"bbb"), 2))]) is None
    )
    storage.close()


def test_deferred_data_of_an_ended_checkpoint_is_refused_and_never_written(
    storage: LocalStorage, tmp_path: Path
) -> None:
    storage.start_attempt()
    handles = storage.defer_data(1, DATA) or []
    assert len(handles) == 1
    storage.discard(1)
    assert storage._running is not None
    assert storage._running.deferred == {}
    with pytest.raises(StorageError, match="has ended already"):
        storage.defer_data(1, DATA)
    with pytest.raises(StorageError, match="has ended already"):
        storage.complete(example_manifest(JOB, 1, 1, handles))
    assert names(tmp_path) == []
    storage.close()
    with pytest.raises(StorageError, match="call start_attempt first"):
        storage.defer_data(2, DATA)


def test_deferred_data_of_an_earlier_attempt_is_refused(
    storage: LocalStorage, tmp_path: Path
) -> None:
    first = storage.start_attempt().next_checkpoint_id
    handles = storage.defer_data(first, DATA) or []
    storage.start_attempt()
    with pytest.raises(StorageError, match="belongs to an earlier attempt"):
        storage.defer_data(first, DATA)
    with pytest.raises(Fenced, match="attempt 2 has begun"):
        storage.complete(example_manifest(JOB, first, 1, handles))
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", ["data-1-1", "_metadata", "chk-00000001", JOB])
def test_completing_again_writes_deferred_data_that_was_not_made_durable(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    storage.start_attempt()
    manifest = example_manifest(JOB, 1, 1, storage.defer_data(1, DATA) or [])
    with monkeypatch.context() as failing:
        fail_sync_of(failing, name)
        with pytest.raises(StorageError, match=f"{name} could not be fsynced"):
            storage.complete(manifest)
        assert LOCAL_FILES.list_directory(tmp_path / JOB / "chk-00000001") == []
    storage.complete(manifest)
    assert storage.verify(1) == []
    assert storage._running is not None
    assert storage._running.deferred == {}


def test_storage_keeps_no_file_open_when_it_is_closed(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    storage = LocalStorage(tmp_path, job=JOB)
    complete_example(storage, JOB, 1, storage.start_attempt().number)
    assert len(os.listdir("/proc/self/fd")) > len(before)
    storage.close()
    assert os.listdir("/proc/self/fd") == before


def test_checkpoint_whose_directory_a_newer_attempt_removed_is_fenced(
    storage: LocalStorage, tmp_path: Path
) -> None:
    storage.start_attempt()
    handles = storage.write_data(1, DATA)
    newer = LocalStorage(tmp_path, job=JOB)
    newer.start_attempt(take_over=True)
    with pytest.raises(Fenced):
        storage.write_data(1, DATA)
    with pytest.raises(Fenced):
        storage.complete(example_manifest(JOB, 1, 1, handles))
    assert names(tmp_path) == []
    newer.close()


def test_using_storage_before_an_attempt_is_refused(storage: LocalStorage) -> None:
    with pytest.raises(StorageError, match="call start_attempt first"):
        storage.write_data(1, DATA)
    storage.discard(1)
    assert storage.retain(1) == []


def test_several_data_files_of_one_checkpoint_are_kept_apart(storage: LocalStorage) -> None:
    storage.start_attempt()
    files = {storage.write_data(1, DATA)[0].file for _ in range(3)}
    assert len(files) == 3


def test_leftovers_of_a_dead_attempt_are_removed_at_start(
    storage: LocalStorage, tmp_path: Path
) -> None:
    first = storage.start_attempt()
    complete_example(storage, JOB, 1, first.number)
    storage.write_data(2, DATA)
    log = tmp_path / JOB / "log"
    (log / ".draft-000000000002-77-1").write_bytes(b"left")
    (log / ".draft-000000000009-77-1").write_bytes(b"of an attempt that begins after this one")
    storage.start_attempt()
    assert names(tmp_path) == [layout.checkpoint_directory(1)]
    assert [name for name in os.listdir(log) if "draft" in name] == [".draft-000000000009-77-1"]


def test_leftovers_of_a_newer_attempt_are_never_removed(
    storage: LocalStorage, tmp_path: Path
) -> None:
    first = storage.start_attempt()
    newer = LocalStorage(tmp_path, job=JOB)
    second = newer.start_attempt(take_over=True)
    newer.write_data(second.next_checkpoint_id, DATA)
    storage.discard(second.next_checkpoint_id)
    storage.discard(first.next_checkpoint_id)
    assert names(tmp_path) == [layout.checkpoint_directory(second.next_checkpoint_id)]
    newer.close()


def test_late_data_of_an_earlier_attempt_is_refused(storage: LocalStorage) -> None:
    first = storage.start_attempt()
    storage.start_attempt()
    with pytest.raises(StorageError, match="belongs to an earlier attempt"):
        storage.write_data(first.next_checkpoint_id, DATA)
    with pytest.raises(Fenced, match="attempt 2 has begun"):
        storage.complete(example_manifest(JOB, first.next_checkpoint_id, first.number))


def test_data_of_an_ended_checkpoint_is_refused(storage: LocalStorage, tmp_path: Path) -> None:
    storage.start_attempt()
    storage.write_data(1, DATA)
    storage.discard(1)
    with pytest.raises(StorageError, match="has ended already"):
        storage.write_data(1, DATA)
    assert names(tmp_path) == []


@pytest.mark.parametrize("end", ["discard", "start_attempt"])
def test_data_written_while_its_checkpoint_ends_is_removed(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    storage.start_attempt()
    real = LOCAL_FILES.write_file

    def write(path: Path, chunks: object, **options: bool) -> int:
        size = real(path, chunks, **options)  # type: ignore[arg-type]
        if path.name.startswith("data-") and end == "discard":
            storage.discard(1)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"written after the removal")
        elif path.name.startswith("data-"):
            storage.start_attempt()
        return size

    monkeypatch.setattr(LOCAL_FILES, "write_file", write)
    with pytest.raises(StorageError, match="ended before its data was written"):
        storage.write_data(1, DATA)
    assert names(tmp_path) == []


def test_data_is_written_side_by_side(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each writer waits inside the write until the other is there too."""
    storage.start_attempt()
    meet = threading.Barrier(2, timeout=30)
    real = LOCAL_FILES.write_file

    def write(path: Path, chunks: object) -> int:
        meet.wait()
        return real(path, chunks)  # type: ignore[arg-type]

    monkeypatch.setattr(LOCAL_FILES, "write_file", write)
    threads = [threading.Thread(target=storage.write_data, args=(1, DATA)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not meet.broken


def test_manifest_that_could_not_be_read_back_is_not_completed(storage: LocalStorage) -> None:
    attempt = storage.start_attempt()
    manifest = example_manifest(JOB, 1, attempt.number)
    object.__setattr__(manifest.acknowledgements[0].statistics, "sync", float("nan"))
    with pytest.raises(StorageError, match=r"checkpoint 1.*'sync'"):
        storage.complete(manifest)
    assert storage.start_attempt().completed == ()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("function", ["fsync", "link", "open", "mkdir"])
def test_failing_disk_leaves_no_checkpoint_visible_and_later_ones_succeed(
    storage: LocalStorage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    function: str,
) -> None:
    attempt = storage.start_attempt()
    complete_example(storage, JOB, 1, attempt.number)

    def fail(*arguments: object, **options: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as failing:
        failing.setattr(os, function, fail)
        with pytest.raises(StorageError, match="could not be"):
            complete_example(storage, JOB, 2, attempt.number)
    storage.discard(2)
    assert names(tmp_path) == [layout.checkpoint_directory(1)]
    complete_example(storage, JOB, 3, attempt.number)
    assert [each.checkpoint_id for each in storage.start_attempt().completed] == [1, 3]


def fail_log_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_sync_of(monkeypatch, "log")


def fail_sync_of(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(f"/{name}"):
            raise OSError(errno.EIO, "broken")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


def test_completion_that_is_visible_but_not_durable_is_reported_and_kept(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = storage.start_attempt()
    complete_example(storage, JOB, 1, attempt.number)
    with monkeypatch.context() as failing:
        fail_log_sync(failing)
        with pytest.raises(StorageError, match="log could not be fsynced"):
            complete_example(storage, JOB, 2, attempt.number)
        storage.discard(2)
        assert storage.retain(1) == []
    assert storage.verify(2) == []
    complete_example(storage, JOB, 3, attempt.number)
    assert storage.retain(1) == [1, 2]


def test_completing_again_after_an_error_succeeds(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = storage.start_attempt()
    with monkeypatch.context() as failing:
        fail_log_sync(failing)
        with pytest.raises(StorageError):
            complete_example(storage, JOB, 1, attempt.number)
    storage.complete(example_manifest(JOB, 1, attempt.number))
    assert storage.retain(1) == []
    assert storage.verify(1) == []


@pytest.mark.parametrize("linked", [True, False])
def test_unanswered_link_is_settled_by_reading_the_log(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    attempt = storage.start_attempt()
    real = LOCAL_FILES.link_new

    def link(source: Path, target: Path) -> bool:
        if linked:
            real(source, target)
        raise explain("linked", target, OSError(errno.EIO, "broken"))

    with monkeypatch.context() as failing:
        failing.setattr(LOCAL_FILES, "link_new", link)
        with pytest.raises(StorageError, match="could not be linked"):
            complete_example(storage, JOB, 1, attempt.number)
    storage.discard(1)
    complete_example(storage, JOB, 2, attempt.number)
    expected = [1, 2] if linked else [2]
    assert [each.checkpoint_id for each in storage.start_attempt().completed] == expected
    assert [storage.verify(number) for number in expected] == [[] for _ in expected]


def test_unanswered_link_of_a_fenced_attempt_is_not_taken_for_its_own(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = storage.start_attempt()
    newer = LocalStorage(tmp_path, job=JOB)

    def link(source: Path, target: Path) -> bool:
        raise explain("linked", target, OSError(errno.EIO, "broken"))

    with monkeypatch.context() as failing:
        failing.setattr(LOCAL_FILES, "link_new", link)
        with pytest.raises(StorageError, match="could not be linked"):
            complete_example(storage, JOB, 1, attempt.number)
    newer.start_attempt(take_over=True)
    storage.discard(1)
    with pytest.raises(Fenced):
        complete_example(storage, JOB, 2, attempt.number)
    newer.close()


def test_retention_waits_for_what_cannot_be_removed(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = storage.start_attempt()
    for number in (1, 2):
        complete_example(storage, JOB, number, attempt.number)
    real = os.unlink

    def unlink(path: Path) -> None:
        if path.name in stuck:
            raise PermissionError(errno.EACCES, "stuck")
        real(path)

    monkeypatch.setattr(os, "unlink", unlink)
    stuck = {layout.entry(2)}
    assert storage.retain(1) == []
    assert storage.verify(1) == []
    stuck = {"data-1-1"}
    assert storage.retain(1) == [1]
    assert len(names(tmp_path)) == 2
    stuck = set()
    assert storage.retain(1) == []
    assert names(tmp_path) == [layout.checkpoint_directory(2)]


@pytest.mark.parametrize("write_fails", [False, True])
def test_draft_that_cannot_be_removed_harms_nothing_and_hides_no_error(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_fails: bool
) -> None:
    """P32: its entry is in the log; a later start removes it."""

    def failing(number: int) -> Callable[..., None]:
        def fail(*_: object, **__: object) -> None:
            raise explain("used", Path("draft"), OSError(number, ""))

        return fail

    with monkeypatch.context() as patched:
        patched.setattr(LOCAL_FILES, "remove_file", failing(errno.EACCES))
        if write_fails:
            patched.setattr(LOCAL_FILES, "link_new", failing(errno.EROFS))
            with pytest.raises(StorageError, match="read-only"):
                storage.start_attempt()
        else:
            assert storage.start_attempt().number == 1
            storage.discard(900)  # so that more ids are reserved
            assert storage.write_data(901, DATA)
    log = tmp_path / JOB / "log"
    assert [name for name in os.listdir(log) if name.startswith(".")]
    storage.start_attempt()
    assert not [name for name in os.listdir(log) if name.startswith(".")]


def test_data_that_no_manifest_names_is_removed_with_its_checkpoint(
    storage: LocalStorage, tmp_path: Path
) -> None:
    attempt = storage.start_attempt()
    storage.write_data(1, DATA)
    for number in (1, 2):
        complete_example(storage, JOB, number, attempt.number)
    assert storage.retain(1) == [1]
    assert names(tmp_path) == [layout.checkpoint_directory(2)]


def test_file_that_a_kept_checkpoint_refers_to_is_kept(
    storage: LocalStorage, tmp_path: Path
) -> None:
    attempt = storage.start_attempt()
    first = complete_example(storage, JOB, 1, attempt.number)
    shared = first.acknowledgements[0].sections
    storage.complete(example_manifest(JOB, 2, attempt.number, shared))
    assert storage.retain(1) == [1]
    assert storage.verify(2) == []
    complete_example(storage, JOB, 3, attempt.number)
    assert storage.retain(1) == [2]
    assert names(tmp_path) == [layout.checkpoint_directory(3)]


def test_file_that_is_referred_to_survives_a_start_whose_owner_was_removed(
    storage: LocalStorage, tmp_path: Path
) -> None:
    attempt = storage.start_attempt()
    first = complete_example(storage, JOB, 1, attempt.number)
    shared = first.acknowledgements[0].sections
    storage.complete(example_manifest(JOB, 2, attempt.number, shared))
    storage.retain(1)
    again = storage.start_attempt()
    assert storage.verify(2) == []
    complete_example(storage, JOB, again.next_checkpoint_id, again.number)
    assert storage.retain(1) == [2]
    assert names(tmp_path) == [layout.checkpoint_directory(again.next_checkpoint_id)]


def test_checkpoint_that_refers_to_a_removed_one_is_not_completed(
    storage: LocalStorage, tmp_path: Path
) -> None:
    attempt = storage.start_attempt()
    first = complete_example(storage, JOB, 1, attempt.number)
    complete_example(storage, JOB, 2, attempt.number)
    storage.retain(1)
    shared = first.acknowledgements[0].sections
    with pytest.raises(StorageError, match="checkpoint 3 cannot be completed: it refers to chk-0"):
        storage.complete(example_manifest(JOB, 3, attempt.number, shared))
    assert [one.checkpoint_id for one in storage.start_attempt().completed] == [2]


def test_checkpoint_that_refers_to_one_that_never_completed_is_not_completed(
    storage: LocalStorage,
) -> None:
    attempt = storage.start_attempt()
    handles = storage.write_data(1, DATA)
    with pytest.raises(StorageError, match="belongs to no complete checkpoint"):
        storage.complete(example_manifest(JOB, 2, attempt.number, handles))


def test_damaged_file_that_is_shared_names_the_checkpoints_that_need_it(
    storage: LocalStorage, tmp_path: Path
) -> None:
    attempt = storage.start_attempt()
    first = complete_example(storage, JOB, 1, attempt.number)
    shared = first.acknowledgements[0].sections
    for number in (2, 3):
        storage.complete(example_manifest(JOB, number, attempt.number, shared))
    complete_example(storage, JOB, 4, attempt.number)
    storage.retain(3)
    [data] = (tmp_path / JOB / layout.checkpoint_directory(1)).glob("data-*")
    data.write_bytes(data.read_bytes().replace(b"flight", b"fright"))
    [sentence] = storage.verify(2)
    assert "data-1-1 is damaged: the checksum of section channel" in sentence
    assert sentence.endswith("(needed by checkpoint 2, 3)")
    assert storage.verify(3) == [sentence]
    assert storage.verify(4) == []


def test_removing_all_checkpoints_keeps_numbers_and_ids_increasing(
    storage: LocalStorage, tmp_path: Path
) -> None:
    attempt = storage.start_attempt()
    complete_example(storage, JOB, 1, attempt.number)
    top = max(os.listdir(tmp_path / JOB / "log"))
    assert storage.retain(0) == [1]
    assert storage.retain(0) == []
    assert min(os.listdir(tmp_path / JOB / "log")) < top < max(os.listdir(tmp_path / JOB / "log"))
    again = storage.start_attempt()
    assert (again.number, again.completed, names(tmp_path)) == (2, (), [])
    assert again.next_checkpoint_id > 1


def test_ids_stay_unused_after_many_failures_without_any_completion(
    storage: LocalStorage, tmp_path: Path
) -> None:
    highest = storage.start_attempt().next_checkpoint_id + 2600
    for number in range(1, highest + 1):
        storage.discard(number)
    again = LocalStorage(tmp_path, job=JOB)
    storage.close()
    assert again.start_attempt().next_checkpoint_id > highest
    again.close()


def test_ids_that_cannot_be_reserved_are_not_written(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.start_attempt()

    def link(source: Path, target: Path) -> bool:
        raise explain("linked", target, OSError(errno.ENOSPC, "full"))

    with monkeypatch.context() as failing:
        failing.setattr(LOCAL_FILES, "link_new", link)
        assert storage.write_data(999, DATA)
        with pytest.raises(StorageError, match="disk full"):
            storage.write_data(1001, DATA)
    assert storage.write_data(1002, DATA)
    assert storage.start_attempt().next_checkpoint_id > 1002


def test_reserved_ids_do_not_fence_the_own_attempt(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = storage.start_attempt()
    with monkeypatch.context() as failing:
        fail_log_sync(failing)
        storage.discard(900)
    complete_example(storage, JOB, 901, attempt.number)
    assert [each.checkpoint_id for each in storage.start_attempt().completed] == [901]


def test_unreadable_entry_that_may_be_the_newest_completion_stops_the_start(
    storage: LocalStorage, tmp_path: Path
) -> None:
    """A silent fall-back to an older checkpoint could write results twice (P35)."""
    attempt = storage.start_attempt()
    complete_example(storage, JOB, 1, attempt.number)
    complete_example(storage, JOB, 2, attempt.number)
    entry = tmp_path / JOB / "log" / layout.entry(3)
    (tmp_path / JOB / layout.checkpoint_directory(2) / "_metadata").unlink()
    entry.write_bytes(b"damaged")
    with pytest.raises(CheckpointDamaged, match=r"000000000003.*move it away"):
        storage.start_attempt()
    entry.unlink()
    assert [each.checkpoint_id for each in storage.start_attempt().completed] == [1]


def test_damaged_newest_checkpoint_is_still_listed(storage: LocalStorage, tmp_path: Path) -> None:
    attempt = storage.start_attempt()
    complete_example(storage, JOB, 1, attempt.number)
    complete_example(storage, JOB, 2, attempt.number)
    (tmp_path / JOB / layout.checkpoint_directory(2) / "_metadata").write_bytes(b"damaged")
    again = storage.start_attempt()
    assert [each.checkpoint_id for each in again.completed] == [1, 2]
    with pytest.raises(CheckpointDamaged, match="checksum"):
        storage.load_manifest(2)
    # What the damaged manifest refers to cannot be told: nothing is removed until it is gone.
    assert storage.retain(1) == [1]
    assert len(names(tmp_path)) == 2
    complete_example(storage, JOB, again.next_checkpoint_id, again.number)
    assert storage.retain(1) == [2]
    assert names(tmp_path) == [layout.checkpoint_directory(again.next_checkpoint_id)]


def test_damaged_attempt_entry_frees_neither_its_number_nor_its_ids(
    storage: LocalStorage, tmp_path: Path
) -> None:
    storage.start_attempt()
    second = storage.start_attempt()
    entry = tmp_path / JOB / "log" / layout.entry(2)
    raw = entry.read_bytes()
    entry.write_bytes(raw[:-3])
    third = storage.start_attempt()
    assert third.number == second.number + 1
    assert third.next_checkpoint_id > second.next_checkpoint_id


def test_large_frames_are_written_and_read(storage: LocalStorage) -> None:
    storage.start_attempt()
    frames = (b"a" * 3_000_000, b"b")
    section = Section("pending", "fx", frames, 2)
    (handle,) = storage.write_data(1, [(SUBTASK, section)])
    assert tuple(storage.read_section(1, handle)) == frames


def test_history_is_cut_by_a_running_attempt_only(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamcp.storage.history.LIMIT", 2)
    storage.start_attempt()
    for number in range(7):
        storage.append_history({"n": number})
    assert [entry["n"] for entry in storage.read_history()] == [5, 6]


def test_checkpoint_is_kept_while_it_cannot_be_told_whether_it_may_go(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = storage.start_attempt()
    storage.write_data(1, DATA)

    def exists(path: Path) -> bool:
        raise explain("looked at", path, OSError(errno.EIO, "broken"))

    with monkeypatch.context() as failing:
        failing.setattr(LOCAL_FILES, "exists", exists)
        storage.discard(1)
        assert storage.retain(1) == []
    assert names(tmp_path) == [layout.checkpoint_directory(1)]
    complete_example(storage, JOB, 2, attempt.number)
    storage.retain(1)
    assert names(tmp_path) == [layout.checkpoint_directory(2)]


def test_fenced_attempt_reserves_no_ids(storage: LocalStorage, tmp_path: Path) -> None:
    storage.start_attempt()
    newer = LocalStorage(tmp_path, job=JOB)
    newer.start_attempt(take_over=True)
    with pytest.raises(Fenced):
        storage.write_data(900, DATA)
    with pytest.raises(Fenced):
        storage.write_data(1, DATA)
    newer.close()


def test_data_written_while_storage_closes_is_refused(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.start_attempt()
    real = LOCAL_FILES.write_file

    def write(path: Path, chunks: list[bytes]) -> int:
        storage.close()
        return real(path, chunks)

    with monkeypatch.context() as closing:
        closing.setattr(LOCAL_FILES, "write_file", write)
        with pytest.raises(StorageError, match="ended before"):
            storage.write_data(1, DATA)
    storage.start_attempt()
    assert names(tmp_path) == []
