"""Any single damaged file of a checkpoint is found by `verify`, and named."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamcp.errors import CheckpointDamaged
from streamcp.storage import layout
from streamcp.storage.local import LocalStorage
from streamcp.storage.reading import StoredJob
from streamcp.testing.storage_checks import complete_example

JOB = "orders"
FILES = (
    f"{layout.checkpoint_directory(1)}/data-1-1",
    f"{layout.checkpoint_directory(1)}/_metadata",
    f"log/{layout.entry(1)}",
    f"log/{layout.entry(2)}",
)
given_one_directory = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


@pytest.fixture
def stored(tmp_path: Path) -> StoredJob:
    """One complete checkpoint."""
    storage = LocalStorage(tmp_path, job=JOB)
    complete_example(storage, JOB, 1, storage.start_attempt().number)
    storage.close()
    return StoredJob(tmp_path / JOB)


def damaged(stored: StoredJob, copied: bool, damage: Callable[[Path], None], file: str) -> bool:
    """Damage a file in a copy (with hard links kept, or copied as files); tell if it is found."""
    copy = stored.directory.parent / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(stored.directory, copy)
    if not copied:
        (copy / FILES[3]).unlink()
        (copy / FILES[3]).hardlink_to(copy / FILES[1])
    damage(copy / file)
    sentences = StoredJob(copy).verify(1)
    names = [file] if copied or file not in FILES[1:4:2] else [FILES[1], FILES[3]]
    return any(str(copy / name) in sentence for sentence in sentences for name in names)


@given(st.data())
@given_one_directory
def test_changed_byte_is_found(stored: StoredJob, data: st.DataObject) -> None:
    file = data.draw(st.sampled_from(FILES))

    def change(path: Path) -> None:
        raw = bytearray(path.read_bytes())
        position = data.draw(st.integers(0, len(raw) - 1))
        raw[position] ^= data.draw(st.integers(1, 255))
        path.write_bytes(raw)

    assert damaged(stored, data.draw(st.booleans()), change, file)


@given(st.data())
@given_one_directory
def test_truncated_file_is_found(stored: StoredJob, data: st.DataObject) -> None:
    file = data.draw(st.sampled_from(FILES))

    def truncate(path: Path) -> None:
        raw = path.read_bytes()
        path.write_bytes(raw[: data.draw(st.integers(0, len(raw) - 1))])

    assert damaged(stored, data.draw(st.booleans()), truncate, file)


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("file", FILES)
def test_deleted_file_is_found(stored: StoredJob, file: str, copied: bool) -> None:
    copy = stored.directory.parent / "copy"
    if file in FILES[:2]:
        assert damaged(stored, copied, Path.unlink, file)
    else:
        assert not damaged(stored, copied, Path.unlink, file)  # it has no name any more, but
        (sentence,) = StoredJob(copy).verify(1)
        assert sentence.startswith(str(copy / "log"))


def test_missing_data_file_is_named_when_a_section_is_read(stored: StoredJob) -> None:
    handle = stored.load_manifest(1).acknowledgements[0].sections[0]
    (stored.directory / FILES[0]).unlink()
    with pytest.raises(CheckpointDamaged, match="data-1-1 is missing"):
        stored.read_section(handle)


def test_every_damaged_section_is_reported(stored: StoredJob) -> None:
    path = stored.directory / FILES[0]
    raw = path.read_bytes()
    path.write_bytes(raw[:20] + bytes(len(raw) - 20))
    assert len(stored.verify(1)) == 2
