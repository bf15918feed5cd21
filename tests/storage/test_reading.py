import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamcp.errors import CheckpointDamaged, StorageError
from streamcp.storage import layout
from streamcp.storage.local import LocalStorage
from streamcp.storage.reading import StoredJob, find_jobs
from streamcp.testing.storage_checks import SECTIONS, complete_example

JOB = "orders of/today"


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[LocalStorage]:
    """The storage of a running job with two complete checkpoints."""
    storage = LocalStorage(tmp_path, job=JOB)
    attempt = storage.start_attempt()
    for number in (1, 2):
        complete_example(storage, JOB, number, attempt.number)
    yield storage
    storage.close()


@pytest.fixture
def stored(storage: LocalStorage, tmp_path: Path) -> StoredJob:
    (found,) = find_jobs(tmp_path)
    return found


def test_running_job_is_read_without_its_lock(stored: StoredJob) -> None:
    assert stored.name == JOB
    assert [each.checkpoint_id for each in stored.completed()] == [1, 2]
    manifest = stored.load_manifest(2)
    handle = manifest.acknowledgements[0].sections[0]
    assert tuple(stored.read_section(handle)) == SECTIONS[0].frames
    assert stored.verify(2) == []


def test_directory_of_one_job_is_accepted(
    stored: StoredJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [job.name for job in find_jobs(stored.directory)] == [JOB]
    monkeypatch.chdir(stored.directory)
    assert [job.name for job in find_jobs(Path())] == [JOB]


def test_jobs_are_found_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for job in ("b", "a"):
        LocalStorage(tmp_path, job=job).start_attempt()
    assert [job.name for job in find_jobs(tmp_path)] == ["a", "b"]


def test_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="none is not a directory"):
        find_jobs(tmp_path / "none")


def test_sizes_are_those_of_the_files(stored: StoredJob) -> None:
    sizes = stored.file_sizes(1)
    directory = stored.directory / layout.checkpoint_directory(1)
    assert sizes == {path.name: path.stat().st_size for path in directory.iterdir()}
    assert set(sizes) == {"data-1-1", "_metadata"}
    assert stored.file_sizes(99) == {}


def test_history_is_read(storage: LocalStorage, stored: StoredJob) -> None:
    storage.append_history({"n": 1})
    assert stored.read_history() == [{"n": 1}]


def test_checkpoint_that_never_completed_is_told(stored: StoredJob) -> None:
    with pytest.raises(CheckpointDamaged, match="log has no entry that completes checkpoint 3"):
        stored.load_manifest(3)
    assert len(stored.verify(3)) == 1


def test_lost_metadata_is_reported_but_the_log_still_holds_it(stored: StoredJob) -> None:
    (stored.directory / layout.checkpoint_directory(1) / "_metadata").unlink()
    assert stored.load_manifest(1).checkpoint_id == 1
    (sentence,) = stored.verify(1)
    assert "_metadata is missing" in sentence
    assert "holds the same manifest" in sentence


def test_copy_without_links_is_whole_and_either_manifest_is_enough(
    stored: StoredJob, tmp_path: Path
) -> None:
    shutil.copytree(stored.directory, tmp_path / "copy")
    copy = StoredJob(tmp_path / "copy")
    assert copy.verify(1) == []
    entry = copy.directory / "log" / layout.entry(3)
    entry.write_bytes(b"damaged")
    assert [each.checkpoint_id for each in copy.completed()] == [1, 2]
    assert copy.load_manifest(2) == stored.load_manifest(2)
    assert copy.verify(2) == [f"{entry} is damaged: its checksum is wrong"]


def test_manifest_of_another_checkpoint_is_damage(stored: StoredJob, tmp_path: Path) -> None:
    shutil.copytree(stored.directory, tmp_path / "copy")
    copy = StoredJob(tmp_path / "copy")
    first, second = (copy.log.metadata(number) for number in (1, 2))
    first.write_bytes(second.read_bytes())
    assert "belongs to another checkpoint" in copy.verify(1)[0]
    (copy.directory / "log" / layout.entry(2)).write_bytes(second.read_bytes())
    assert "'number' is 3, not 2" in copy.verify(1)[0]


def test_newer_format_is_refused_by_name(
    stored: StoredJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamcp.storage.format.FORMAT", 0)
    with pytest.raises(StorageError, match="upgrade streamcp"):
        stored.completed()
    assert "upgrade streamcp" in stored.verify(1)[0]


def test_handle_that_leads_elsewhere_is_refused(stored: StoredJob) -> None:
    handle = stored.load_manifest(1).acknowledgements[0].sections[0]
    object.__setattr__(handle, "file", "../../secret")
    with pytest.raises(CheckpointDamaged, match="not the name of a data file"):
        stored.read_section(handle)


def test_entry_removed_while_the_log_is_read_is_left_out(
    storage: LocalStorage, stored: StoredJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = stored.log._numbers()
    storage.retain(1)
    monkeypatch.setattr(stored.log, "_numbers", lambda: numbers)
    assert [each.checkpoint_id for each in stored.completed()] == [2]
