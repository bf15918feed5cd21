"""Sources that read lines, JSON lines and CSV rows from plain, gzip and zip files.

A position is (file, bytes, lines, records): what was read of which file, and how many records in
all. Files are read one after the other, sorted by name. Knows nothing of where the records go.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, overload

from streamcp.connectors.files import parsers
from streamcp.connectors.files.inputs import InputFile, Reading, list_files, open_file
from streamcp.connectors.one_at_a_time import OneAtATime
from streamcp.errors import SettingsError
from streamcp.operators.sources import Source

T = TypeVar("T")
Position: TypeAlias = tuple[str, int, int, int]
Parser: TypeAlias = Callable[[Reading], Iterator[list[T]]]
"""Yields the records of a file in batches; the file stands behind each batch it has yielded."""


def lines(
    path: str | Path,
    /,
    *,
    member: str | None = None,
    limit: int | None = None,
    encoding: str = "utf-8",
) -> Source[str]:
    r"""Read the lines of text files, without their line ends (\n or \r\n).

    `path` is a file, a directory or a glob pattern; several files are read sorted by name. Files
    named .gz are decompressed; of .zip archives all members are read, or those that `member` (a
    name or pattern) chooses. With `limit`, it ends after so many records.

    A restored job goes on at its line, in plain files without reading what comes before: files may
    grow, but what was read of them must stay.

    Raises, when it runs: SettingsError if no file matches, SerializationError naming file and
    line for what is damaged."""
    _check_encoding("lines", encoding)
    return _source("lines", path, member, limit, parsers.LineParser(encoding))


@overload
def read_json_lines(
    path: str | Path, /, *, member: str | None = None, limit: int | None = None
) -> Source[Any]: ...
@overload
def read_json_lines(
    path: str | Path,
    /,
    *,
    cls: Callable[..., T],
    member: str | None = None,
    limit: int | None = None,
) -> Source[T]: ...
def read_json_lines(
    path: str | Path,
    /,
    *,
    cls: Callable[..., Any] | None = None,
    member: str | None = None,
    limit: int | None = None,
) -> Source[Any]:
    """Read one JSON value per line; empty lines are skipped.

    With `cls`, each object becomes `cls(**object)`: a dataclass whose fields are as JSON gives
    them. Files, `limit`, positions and errors as with `lines`."""
    return _source("read_json_lines", path, member, limit, parsers.JsonParser(cls))


def read_csv(
    path: str | Path,
    /,
    *,
    member: str | None = None,
    limit: int | None = None,
    fields: Sequence[str] | None = None,
    delimiter: str = ",",
    encoding: str = "utf-8",
) -> Source[dict[str, str]]:
    """Read CSV rows as dicts; quoted fields may hold line ends, empty lines are skipped.

    The first row of each file names the fields, unless `fields` does. A row with more or fewer
    fields is damaged. Files, `limit`, positions and errors as with `lines`."""
    _check_encoding("read_csv", encoding)
    parser = parsers.CsvParser(None if fields is None else list(fields), delimiter, encoding)
    return _source("read_csv", path, member, limit, parser)


def _check_encoding(function: str, encoding: str) -> None:
    # Blocks end at the byte of a line end, so that must mean nothing else.
    if "\n".encode(encoding) != b"\n":
        raise SettingsError(
            f'files.{function}(encoding="{encoding}"): a line must end with a single byte; '
            "convert the file to UTF-8"
        )


def _source(
    function: str, path: str | Path, member: str | None, limit: int | None, parser: Parser[T]
) -> Source[T]:
    if limit is not None and limit < 0:
        raise SettingsError(f"files.{function}(limit={limit}): write 0 or more, or None for all")
    args = (os.fspath(path), member, limit, parser)
    return Source(fn=_read, name=f"files.{function}", start=None, args=args, batches=True)


async def _read(
    position: Position | None, path: str, member: str | None, limit: int | None, parser: Parser[T]
) -> AsyncIterator[tuple[list[T], Position]]:
    batches = _batches(position, path, member, limit, parser)
    thread = OneAtATime()
    try:
        while (batch := await thread.run(next, batches, None)) is not None:
            yield batch
    finally:
        thread.run_last(batches.close)


def _batches(
    position: Position | None, path: str, member: str | None, limit: int | None, parser: Parser[T]
) -> Generator[tuple[list[T], Position], None, None]:
    count = position[3] if position else 0
    left = sys.maxsize if limit is None else limit - count
    for file in _unread(list_files(path, member), position):
        start = position[1:3] if position and file.name == position[0] else (0, 0)
        with open_file(file, start) as reading:
            for records in parser(reading) if left > 0 else ():
                taken = records[:left]
                left, count = left - len(taken), count + len(taken)
                if taken:
                    yield taken, (file.name, reading.offset, reading.line, count)
                if left <= 0:
                    return


def _unread(files: list[InputFile], position: Position | None) -> list[InputFile]:
    if position is None:
        return files
    names = [file.name for file in files]
    if position[0] not in names:
        raise SettingsError(
            f"{position[0]}, where the job goes on, is not there any more; put it back, "
            "or start the job anew"
        )
    return files[names.index(position[0]) :]
