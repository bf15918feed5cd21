from pathlib import Path

import pytest

from streamcp.durable_files import LOCAL_FILES
from streamcp.errors import StorageError
from streamcp.storage.history import History


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamcp.storage.history.LIMIT", 3)


def numbers(history: History) -> list[int]:
    return [entry["n"] for entry in history.read()]


def test_entries_are_read_oldest_first(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    for number in range(3):
        history.append({"n": number})
    assert numbers(history) == [0, 1, 2]


def test_missing_history_is_empty(tmp_path: Path) -> None:
    assert History(tmp_path / "history.jsonl").read() == []


def test_damaged_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b'{"n": 0}\n{"n": \n\n[1]\n\xff\n{"n": 1}\n{"n"')
    assert numbers(History(path)) == [0, 1]


def test_line_torn_by_a_crash_does_not_swallow_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b'{"n": 0}\n{"n"')
    history = History(path)
    history.append({"n": 1})
    history.append({"n": 2})
    assert numbers(history) == [0, 1, 2]


def test_values_that_json_cannot_hold_are_written_as_text(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    history.append({"where": tmp_path, 1: 2})  # type: ignore[dict-item]
    assert history.read() == [{"where": str(tmp_path), "1": 2}]


def test_entry_that_cannot_be_written_raises_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    endless: list[object] = []
    endless.append(endless)
    History(tmp_path / "history.jsonl").append({"n": endless})
    History(tmp_path / "none" / "history.jsonl").append({"n": 1})
    assert caplog.text.count("was not written") == 2


@pytest.mark.usefixtures("small")
def test_history_is_cut_once_it_is_twice_as_long(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history = History(path)
    for number in range(6):
        history.append({"n": number})
        history.trim()
    assert len(path.read_bytes().splitlines()) == 6
    history.append({"n": 6})
    history.trim()
    assert len(path.read_bytes().splitlines()) == 3
    assert numbers(history) == [4, 5, 6]


@pytest.mark.usefixtures("small")
def test_long_history_of_an_earlier_attempt_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b"".join(b'{"n": %d}\n' % number for number in range(9)))
    (tmp_path / "history.draft").write_bytes(b"left by a crash")
    History(path).trim()
    assert path.read_bytes() == b'{"n": 6}\n{"n": 7}\n{"n": 8}\n'


@pytest.mark.usefixtures("small")
def test_history_that_cannot_be_cut_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b'{"n": 1}\n' * 9)

    def write(*arguments: object, **options: object) -> int:
        raise StorageError("disk full")

    monkeypatch.setattr(LOCAL_FILES, "write_file", write)
    History(path).trim()
    assert "was not cut" in caplog.text
    assert len(path.read_bytes().splitlines()) == 9
