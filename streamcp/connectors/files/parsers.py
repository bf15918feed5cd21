"""Lines of bytes to records, a block at a time. Errors name file and line.

A parser is called with an open file, which may stand anywhere between two records.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import orjson

from streamcp.connectors.files.inputs import Reading
from streamcp.errors import SerializationError

# Python's own limit of 128 KiB is too low for a field that holds a document; without any, one
# quote too many would take the rest of a large file into memory.
_LONGEST_FIELD = 64 * 2**20


@dataclass(frozen=True, slots=True)
class LineParser:
    """Lines as text."""

    encoding: str

    def __call__(self, reading: Reading) -> Iterator[list[str]]:
        """Yield the lines of each block."""
        for first, block in _blocks(reading):
            text = _decoded(block, self.encoding, reading.label, first).replace("\r\n", "\n")
            yield text.removesuffix("\n").split("\n")


@dataclass(frozen=True, slots=True)
class JsonParser:
    """JSON values, one per line; with `cls`, objects become its keyword arguments."""

    cls: Callable[..., Any] | None

    def __call__(self, reading: Reading) -> Iterator[list[Any]]:
        """Yield the values of each block."""
        for first, block in _blocks(reading):
            yield self._values(block.split(b"\n"), reading.label, first)

    def _values(self, lines: list[bytes], label: str, first: int) -> list[Any]:
        values, number = [], first
        try:
            for line in lines:
                if line and not line.isspace():
                    values.append(self._value(line))
                number += 1
        except Exception as error:  # `cls` is the user's and may raise anything
            remedy = "mend it, or read `lines` and parse them in a step with on_error"
            raise _damaged(label, number, error, remedy) from error
        return values

    def _value(self, line: bytes) -> Any:
        value = orjson.loads(line)
        return value if self.cls is None else self.cls(**value)


@dataclass(frozen=True, slots=True)
class CsvParser:
    """CSV rows as dicts; the first row of a file names the fields, unless `fields` does."""

    fields: list[str] | None
    delimiter: str
    encoding: str

    def __call__(self, reading: Reading) -> Iterator[list[dict[str, str]]]:
        """Yield the rows that begin in each block."""
        csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
        fields = self.fields or self._header(reading)
        for first, block in _blocks(reading):
            yield self._rows(fields, first, block, reading)

    def _header(self, reading: Reading) -> list[str]:
        lines = (self._text(line, reading, 1) for line in iter(reading.read_line, b""))
        return next((row for row in self._reader(lines) if row), [])

    def _rows(
        self, fields: list[str], first: int, block: bytes, reading: Reading
    ) -> list[dict[str, str]]:
        rows: list[dict[str, str]] = []
        complete = 0  # lines of the block up to the end of the last complete row

        def lines_of_last_row() -> Iterator[str]:
            # Asked for after the last line of the block: is the reader inside a row?
            while reader.line_num > complete and (line := reading.read_line()):
                yield self._text(line, reading, first + reader.line_num)

        text = io.StringIO(self._text(block, reading, first), newline="\n")
        reader = self._reader(chain(text, lines_of_last_row()))
        try:
            for row in reader:
                if row:
                    rows.append(dict(zip(fields, row, strict=True)))
                complete = reader.line_num
        except (csv.Error, ValueError) as error:
            remedy = "mend the row that starts there"
            raise _damaged(reading.label, first + complete, error, remedy) from error
        return rows

    def _reader(self, lines: Iterable[str]) -> Any:
        # Strict: a field that goes on behind its closing quote, or to the end of the file, is an
        # error and no guess.
        return csv.reader(lines, delimiter=self.delimiter, strict=True)

    def _text(self, data: bytes, reading: Reading, first: int) -> str:
        return _decoded(data, self.encoding, reading.label, first)


def _blocks(reading: Reading) -> Iterator[tuple[int, bytes]]:
    """Yield each block with the number of its first line, counted from 1."""
    reading.go_on()
    first = reading.line + 1
    while block := reading.read_block():
        yield first, block
        first = reading.line + 1


def _decoded(data: bytes, encoding: str, label: str, first: int) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        number = first + data.count(b"\n", 0, error.start)
        raise _damaged(label, number, error, "name the right encoding=") from error


def _damaged(label: str, number: int, error: Exception, remedy: str) -> SerializationError:
    return SerializationError(f"{label}, line {number}: {error}; {remedy}")
