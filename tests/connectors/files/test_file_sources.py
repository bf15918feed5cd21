from __future__ import annotations

import asyncio
import csv
import gzip
import io
import json
import threading
import zipfile
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamcp.connectors import files
from streamcp.connectors.files import inputs
from streamcp.errors import SerializationError, SettingsError
from streamcp.operators.sources import Source

KINDS = ["plain", "gz", "zip"]
every_kind = pytest.mark.parametrize("kind", KINDS)
hypothesis_with_files = settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that small files have many batches."""
    monkeypatch.setattr(inputs, "_BLOCK", 40)


def save(folder: Path, data: bytes, kind: str = "plain", name: str = "data.txt") -> Path:
    if kind == "plain":
        path = folder / name
        path.write_bytes(data)
    elif kind == "gz":
        path = folder / f"{name}.gz"
        path.write_bytes(gzip.compress(data))
    else:
        path = folder / f"{name}.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, data)
    return path


async def batches(source: Source[Any], position: Any = None) -> list[tuple[list[Any], Any]]:
    return [batch async for batch in source.open(position)]


async def read(source: Source[Any], position: Any = None) -> list[Any]:
    return [record for values, _ in await batches(source, position) for record in values]


async def assert_every_position_gives_its_tail(source: Source[Any], expected: list[Any]) -> None:
    whole = await batches(source)
    done: list[Any] = []
    for values, position in whole:
        done += values
        assert done + await read(source, position) == expected
    assert done == expected


# ---- lines


@every_kind
async def test_lines_lose_their_line_ends_only(tmp_path: Path, kind: str) -> None:
    path = save(tmp_path, "a\r\nb \n\n\u00e9\u2028x\x0by\nlast".encode(), kind)

    assert await read(files.lines(path)) == ["a", "b ", "", "\u00e9\u2028x\x0by", "last"]


@every_kind
@hypothesis_with_files
@given(expected=st.lists(st.text(st.characters(blacklist_characters="\n\r\ufeff", codec="utf-8"))))
async def test_lines_go_on_at_every_position(
    tmp_path: Path, kind: str, expected: list[str]
) -> None:
    path = save(tmp_path, "".join(f"{line}\n" for line in expected).encode(), kind)

    await assert_every_position_gives_its_tail(files.lines(path), expected)


@every_kind
async def test_line_longer_than_many_blocks_is_one_line(tmp_path: Path, kind: str) -> None:
    long = "x" * 1_000_000
    path = save(tmp_path, f"a\n{long}\nb\n".encode(), kind)

    await assert_every_position_gives_its_tail(files.lines(path), ["a", long, "b"])


async def test_mark_of_utf8_at_the_start_is_no_text(tmp_path: Path) -> None:
    path = save(tmp_path, b"\xef\xbb\xbfname\n" + b"x\n" * 100)

    assert (await read(files.lines(path)))[0] == "name"


async def test_file_that_has_grown_is_read_on(tmp_path: Path) -> None:
    path = save(tmp_path, b"1\n2\n")
    _, position = (await batches(files.lines(path)))[-1]
    with path.open("ab") as file:
        file.write(b"3\n")

    assert await read(files.lines(path), position) == ["3"]


@every_kind
async def test_files_that_were_moved_together_are_read_on(tmp_path: Path, kind: str) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    save(before, b"1\n2\n", kind, name="a")
    save(before, b"3\n", kind, name="b")
    _, position = (await batches(files.lines(before)))[0]
    before.rename(after)

    assert await read(files.lines(after), position) == ["3"]


@every_kind
async def test_file_that_has_shrunk_is_an_error_naming_it(tmp_path: Path, kind: str) -> None:
    _, position = (await batches(files.lines(save(tmp_path, b"1\n" * 100, kind))))[-1]
    path = save(tmp_path, b"1\n" * 10, kind)

    with pytest.raises(SerializationError, match=r"data\.txt.* is shorter than the 200 bytes"):
        await read(files.lines(path), position)


async def test_file_that_is_gone_at_restore_is_an_error_naming_it(tmp_path: Path) -> None:
    gone = save(tmp_path, b"1\n", name="a.txt")
    save(tmp_path, b"2\n", name="b.txt")
    _, position = (await batches(files.lines(tmp_path)))[0]
    gone.unlink()

    with pytest.raises(SettingsError, match=r"a\.txt, where the job goes on, is not there"):
        await read(files.lines(tmp_path), position)


async def test_wrong_encoding_names_file_and_line(tmp_path: Path) -> None:
    path = save(tmp_path, b"ok\n" * 50 + b"ok\n\xe9t\xe9\n")

    with pytest.raises(SerializationError, match=r"data\.txt, line 52: .*encoding="):
        await read(files.lines(path))
    assert (await read(files.lines(path, encoding="latin-1")))[-1] == "été"


def test_encoding_with_wide_line_ends_is_refused_at_definition() -> None:
    with pytest.raises(SettingsError, match="convert the file to UTF-8"):
        files.lines("x", encoding="utf-16")


# ---- several files


async def test_directory_and_pattern_are_read_sorted_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b.log", "a.log", "c.txt", ".hidden.log"):
        save(tmp_path, f"{name}\n".encode(), name=name)
    (tmp_path / "folder.log").mkdir()

    assert await read(files.lines(tmp_path)) == ["a.log", "b.log", "c.txt"]
    assert await read(files.lines(tmp_path / "*.log")) == ["a.log", "b.log"]


async def test_several_files_go_on_at_every_position(tmp_path: Path) -> None:
    save(tmp_path, b"".join(b"a%d\n" % i for i in range(30)), "gz", name="a")
    save(tmp_path, b"", name="b")
    save(tmp_path, b"".join(b"c%d\n" % i for i in range(30)), "zip", name="c")
    save(tmp_path, b"".join(b"d%d\n" % i for i in range(30)), name="d")

    expected = [f"{letter}{i}" for letter in "acd" for i in range(30)]
    await assert_every_position_gives_its_tail(files.lines(tmp_path), expected)


@pytest.mark.parametrize("limit", [0, 1, 29, 30, 31, 45, 60, 99])
async def test_limit_counts_over_files_and_restores(tmp_path: Path, limit: int) -> None:
    save(tmp_path, b"".join(b"a%d\n" % i for i in range(30)), name="a")
    save(tmp_path, b"".join(b"b%d\n" % i for i in range(30)), "gz", name="b")

    expected = [f"{letter}{i}" for letter in "ab" for i in range(30)][:limit]
    await assert_every_position_gives_its_tail(files.lines(tmp_path, limit=limit), expected)


def test_limit_below_zero_is_refused_at_definition() -> None:
    with pytest.raises(SettingsError, match=r"read_csv\(limit=-1\)"):
        files.read_csv("x", limit=-1)


async def test_members_of_an_archive_are_chosen_by_name_or_pattern(tmp_path: Path) -> None:
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("2.csv", "1.csv", "sub/3.csv", "__MACOSX/._1.csv", "notes.txt", "[1].csv"):
            archive.writestr(name, f"{name}\n")
        archive.mkdir("empty")

    in_all = ["1.csv", "2.csv", "[1].csv", "notes.txt", "sub/3.csv"]
    assert await read(files.lines(path)) == in_all
    assert await read(files.lines(path, member="2.csv")) == ["2.csv"]
    assert await read(files.lines(path, member="[1].csv")) == ["1.csv", "[1].csv"]
    assert await read(files.lines(path, member="sub/*")) == ["sub/3.csv"]


@pytest.mark.parametrize("path", ["none.txt", "*.none", "none/"])
async def test_path_without_files_is_an_error_naming_it(tmp_path: Path, path: str) -> None:
    with pytest.raises(SettingsError, match="no file matches"):
        await read(files.lines(tmp_path / path))


# ---- damage


async def test_truncated_gzip_names_file_and_line(tmp_path: Path) -> None:
    whole = gzip.compress("".join(f"{i * 7919}\n" for i in range(9999)).encode())
    path = tmp_path / "cut.gz"
    path.write_bytes(whole[: len(whole) // 2])

    with pytest.raises(SerializationError, match=r"cut\.gz cannot be read after line [1-9]\d+: "):
        await read(files.lines(path))


async def test_damaged_zip_names_the_file(tmp_path: Path) -> None:
    path = save(tmp_path, b"some\n" * 2000, "zip")
    data = bytearray(path.read_bytes())
    data[60] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(SerializationError, match=r"data\.txt\.zip"):
        await read(files.lines(path))

    path.write_bytes(b"no archive")
    with pytest.raises(SerializationError, match=r"data\.txt\.zip cannot be read"):
        await read(files.lines(path))


# ---- JSON lines


@dataclass(frozen=True)
class Point:
    x: int
    y: int = 0


@every_kind
@hypothesis_with_files
@given(
    expected=st.lists(
        st.recursive(st.integers(-(2**53), 2**53) | st.text() | st.none(), st.lists, max_leaves=5)
    )
)
async def test_json_lines_go_on_at_every_position(
    tmp_path: Path, kind: str, expected: list[Any]
) -> None:
    path = save(tmp_path, "".join(json.dumps(value) + "\n" for value in expected).encode(), kind)

    await assert_every_position_gives_its_tail(files.read_json_lines(path), expected)


async def test_json_objects_become_instances(tmp_path: Path) -> None:
    path = save(tmp_path, b'{"x": 1, "y": 2}\n\n \t\r\n{"x": 3}')

    assert await read(files.read_json_lines(path, cls=Point)) == [Point(1, 2), Point(3)]


@pytest.mark.parametrize("damaged", [b'{"x": 1', b'{"z": 1}', b"[1]", b"\xff"])
async def test_damaged_json_names_file_line_and_remedy(tmp_path: Path, damaged: bytes) -> None:
    path = save(tmp_path, b'{"x": 1}\n' * 20 + b"\n" + damaged + b'\n{"x": 1}\n')

    with pytest.raises(SerializationError, match=r"data\.txt, line 22: .*on_error"):
        await read(files.read_json_lines(path, cls=Point))


# ---- CSV

csv_text = st.text(st.characters(blacklist_characters="\x00", codec="utf-8"), max_size=30)


def as_csv(rows: list[list[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


@every_kind
@hypothesis_with_files
@given(rows=st.lists(st.tuples(csv_text, csv_text)))
async def test_csv_goes_on_at_every_position(
    tmp_path: Path, kind: str, rows: list[tuple[str, str]]
) -> None:
    path = save(tmp_path, as_csv([["a", "b"], *map(list, rows)]), kind)

    expected = [{"a": a, "b": b} for a, b in rows]
    await assert_every_position_gives_its_tail(files.read_csv(path), expected)


async def test_csv_field_over_many_blocks_is_one_field(tmp_path: Path) -> None:
    long = 'many "lines"\n' * 30_000
    path = save(tmp_path, as_csv([["a", "b"], ["1", long], ["2", "x"]]))

    expected = [{"a": "1", "b": long}, {"a": "2", "b": "x"}]
    await assert_every_position_gives_its_tail(files.read_csv(path), expected)


async def test_csv_header_of_each_file_names_its_fields(tmp_path: Path) -> None:
    save(tmp_path, b"\xef\xbb\xbfa,b\n1,2\n", name="1.csv")
    save(tmp_path, b'\n"b","a\n2"\r\n3,4\r\n\r\n', name="2.csv")
    save(tmp_path, b"", name="3.csv")

    assert await read(files.read_csv(tmp_path)) == [{"a": "1", "b": "2"}, {"b": "3", "a\n2": "4"}]


async def test_csv_without_header_takes_fields(tmp_path: Path) -> None:
    path = save(tmp_path, b"1;2\n3;4\n")

    source = files.read_csv(path, fields=["a", "b"], delimiter=";")
    assert await read(source) == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]


@pytest.mark.parametrize(
    ("damaged", "said"),
    [
        (b"1,2,3\n", "longer"),
        (b"1\n", "shorter"),
        (b'1,"no end\n\n', "unexpected end of data"),
        (b'"1"x,2\n', "expected after"),
    ],
)
async def test_damaged_csv_names_file_and_line(tmp_path: Path, damaged: bytes, said: str) -> None:
    path = save(tmp_path, b'a,b\n1,2\n"1\n\n1",2\n' * 9 + b"1,2\n" + damaged)

    with pytest.raises(SerializationError, match=rf"data\.txt, line 47: .*{said}"):
        await read(files.read_csv(path))


# ---- handles


async def test_reading_that_is_given_up_closes_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[io.BufferedReader] = []

    def remember(path: str, mode: str) -> io.BufferedReader:
        opened.append(cast("io.BufferedReader", io.open(path, mode)))  # noqa: SIM115, UP020
        return opened[-1]

    monkeypatch.setattr(inputs, "open", remember, raising=False)
    path = save(tmp_path, b"line\n" * 1000)
    reading = cast("AsyncGenerator[Any, None]", files.lines(path).open(None))
    await anext(reading)
    assert [file.closed for file in opened] == [False]

    await reading.aclose()

    assert [file.closed for file in opened] == [True]


class SlowFile(io.BytesIO):
    """A file whose reads last until they are released."""

    def __init__(self) -> None:
        super().__init__(b"line\n" * 10)
        self.began = threading.Event()
        self.release = threading.Event()
        self.closed_while_reading = False
        self.has_closed = asyncio.Event()
        self.reading = False

    def read(self, size: int | None = -1, /) -> bytes:
        self.reading = True
        self.began.set()
        assert self.release.wait(10)
        self.reading = False
        return super().read(size)

    def close(self) -> None:
        self.closed_while_reading |= self.reading
        super().close()
        self.has_closed.set()


async def test_file_is_closed_after_the_read_that_a_cancelled_job_had_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowFile()
    monkeypatch.setattr(inputs, "open", lambda path, mode: slow, raising=False)
    source = files.lines(save(tmp_path, b""))
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read(source))
        await asyncio.to_thread(slow.began.wait)
        reading.cancel()
        await asyncio.wait([reading])
        assert not slow.closed
        slow.release.set()

    async with asyncio.timeout(10):
        await slow.has_closed.wait()
    assert not slow.closed_while_reading
