"""Sources that read lines, JSON lines and CSV rows from plain, gzip and zip files.

A position is (file, bytes, lines): what was read of which file. Files are read one after the
other, sorted by name. Knows nothing of where the records go.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, overload

from streamcp.connectors.files import parsers
from streamcp.connectors.files.inputs import InputFile, Reading, list_files, open_file
from streamcp.connectors.one_at_a_time import OneAtATime
from streamcp.errors import SettingsError
from streamcp.operators.sources import Source

T = TypeVar("T")
Position: TypeAlias = tuple[str, int, int]
Parser: TypeAlias = Callable[[Reading], Iterator[list[T]]]
"""Yields the records of a file in batches; the file stands behind each batch it has yielded."""


def lines(
    path: str | Path, /, *, member: str | None = None, encoding: str = "utf-8"
) -> Source[str]:
    r"""Read the lines of text files, without their line ends (\n or \r\n).

    `path` is a file, a directory or a glob pattern; several files are read sorted by name. Files
    named .gz are decompressed; of .zip archives all members are read, or those that `member` (a
    name or pattern) chooses. A restored job goes on at its line, in plain files without reading
    what comes before: files may grow, but what was read of them must stay.

    Raises, when it runs: SettingsError if no file matches, SerializationError naming file and
    line for what is damaged."""
    _check_encoding("lines", encoding)
    return _source("files.lines", path, member, parsers.LineParser(encoding))


@overload
def read_json_lines(path: str | Path, /, *, member: str | None = None) -> Source[Any]: ...
@overload
def read_json_lines(
    path: str | Path, /, *, cls: Callable[..., T], member: str | None = None
) -> Source[T]: ...
def read_json_lines(
    path: str | Path, /, *, cls: Callable[..., Any] | None = None, member: str | None = None
) -> Source[Any]:
    """Read one JSON value per line; empty lines are skipped.

    With `cls`, each object becomes `cls(**object)`: a dataclass whose fields are as JSON gives
    them. Files, positions and errors as with `lines`."""
    return _source("files.read_json_lines", path, member, parsers.JsonParser(cls))


def read_csv(
    path: str | Path,
    /,
    *,
    member: str | None = None,
    fields: Sequence[str] | None = None,
    delimiter: str = ",",
    encoding: str = "utf-8",
) -> Source[dict[str, str]]:
    """Read CSV rows as dicts; quoted fields may hold line ends, empty lines are skipped.

    The first row of each file names the fields, unless `fields` does. A row with more or fewer
    fields is damaged. Files, positions and errors as with `lines`."""
    _check_encoding("read_csv", encoding)
    parser = parsers.CsvParser(None if fields is None else list(fields), delimiter, encoding)
    return _source("files.read_csv", path, member, parser)


def _check_encoding(function: str, encoding: str) -> None:
    # Blocks end at the byte of a line end, so that must mean nothing else.
    if "\n".encode(encoding) != b"\n":
        raise SettingsError(
            f'files.{function}(encoding="{encoding}"): a line must end with a single byte; '
            "convert the file to UTF-8"
        )


def _source(name: str, path: str | Path, member: str | None, parser: Parser[T]) -> Source[T]:
    args = (os.fspath(path), member, parser)
    return Source(fn=_read, name=name, start=None, args=args, batches=True)


async def _read(
    position: Position | None, path: str, member: str | None, parser: Parser[T]
) -> AsyncIterator[tuple[list[T], Position]]:
    batches = _batches(position, path, member, parser)
    thread = OneAtATime()
    try:
        while (batch := await thread.run(next, batches, None)) is not None:
            yield batch
    finally:
        thread.run_last(batches.close)


def _batches(
    position: Position | None, path: str, member: str | None, parser: Parser[T]
) -> Generator[tuple[list[T], Position], None, None]:
    for file in _unread(list_files(path, member), position):
        start = position[1:] if position and file.label == position[0] else (0, 0)
        with open_file(file, start) as reading:
            for records in parser(reading):
                if records:
                    yield records, (file.label, reading.offset, reading.line)


def _unread(files: list[InputFile], position: Position | None) -> list[InputFile]:
    if position is None:
        return files
    labels = [file.label for file in files]
    if position[0] not in labels:
        raise SettingsError(
            f"{position[0]}, where the job goes on, is not there any more; put it back, "
            "or start the job anew"
        )
    return files[labels.index(position[0]) :]
