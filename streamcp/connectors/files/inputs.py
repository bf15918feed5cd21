"""Which files a path means, and one of them being read in large blocks of whole lines.

Everything here blocks and is called in a thread. A place in a file counts the bytes as they are
after decompression, so that it means the same for plain and compressed files. Knows nothing of
what the lines hold.
"""

from __future__ import annotations

import glob
import gzip
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import IO, cast

from streamcp.errors import SerializationError, SettingsError

# A few thousand lines: the way to a thread and back is paid once per block; and what a slow
# pipeline has not taken yet of it belongs to each snapshot.
_BLOCK = 256 * 1024
# Some programs mark a file as UTF-8 so; it is no text.
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file, or a member of a zip archive.

    `name` tells it apart from the others in positions: without the folder, so that a job goes on
    although its files have been moved together."""

    path: str
    name: str
    member: str | None = None

    @property
    def label(self) -> str:
        """Name it in errors."""
        return _joined(self.path, self.member)


def list_files(path: str, member: str | None) -> list[InputFile]:
    """List the files that `path` means, sorted by name.

    `path` is a file, a directory (its files, without hidden ones) or a glob pattern; `member`
    chooses from zip archives, by name or pattern. Raises SettingsError if there are none."""
    folder, names = _folder_and_names(path)
    found = [(os.path.join(folder, name), name) for name in names]
    plain = [InputFile(place, name) for place, name in found if os.path.isfile(place)]
    files = [file for archive in plain for file in _members(archive, member)]
    if not files:
        asked = _joined(path, member)
        raise SettingsError(f"no file matches {asked!r}; name a file, a directory or a pattern")
    return files


def _folder_and_names(path: str) -> tuple[str, list[str]]:
    if os.path.isdir(path):
        return path, sorted(name for name in os.listdir(path) if not name.startswith("."))
    if os.path.exists(path):
        return os.path.dirname(path), [os.path.basename(path)]
    return "", sorted(glob.glob(path, recursive=True))


def _members(file: InputFile, member: str | None) -> list[InputFile]:
    if not file.path.endswith(".zip"):
        return [file]
    with _damage_named(file.path, 0), zipfile.ZipFile(file.path) as archive:
        names = sorted(info.filename for info in archive.infolist() if not info.is_dir())
    wanted = [name for name in names if _wanted(name, member)]
    return [InputFile(file.path, _joined(file.name, name), name) for name in wanted]


def _joined(path: str, member: str | None) -> str:
    return path if member is None else f"{path}!{member}"


def _wanted(name: str, member: str | None) -> bool:
    if member is not None:
        return name == member or fnmatchcase(name, member)
    return not name.startswith("__MACOSX/")  # what a Mac adds beside each file


class Reading:
    """An open file: `offset` and `line` count the bytes and lines that were read."""

    def __init__(self, stream: IO[bytes], label: str, start: tuple[int, int]) -> None:
        self.label = label
        self.offset = 0
        self.line = 0
        self._stream = stream
        self._start = start

    def go_on(self) -> None:
        """Go to the bytes and lines to start from; what a parser needs of the file's head it has
        read before. In a compressed file, by reading up to it.

        Raises SerializationError if the file has become shorter."""
        if self._start[0] > self.offset:
            self._go_to(*self._start)

    def read_block(self) -> bytes:
        """Read many whole lines; nothing at the end of the file.

        The last line of a file may lack its line end."""
        with _damage_named(self.label, self.line):
            block = self._stream.read(_BLOCK)
            if block and not block.endswith(b"\n"):
                block += self._stream.readline()
        return self._counted(block)

    def read_line(self) -> bytes:
        """Read one more line; nothing at the end of the file."""
        with _damage_named(self.label, self.line):
            return self._counted(self._stream.readline())

    def _go_to(self, offset: int, line: int) -> None:
        with _damage_named(self.label, 0):
            # A plain file can be sought beyond its end: so look at the byte before the place.
            self._stream.seek(offset - 1)
            there = self._stream.read(1)
        if not there:
            raise SerializationError(
                f"{self.label} is shorter than the {offset} bytes that were read of it before; "
                "put the file back as it was"
            )
        self.offset, self.line = offset, line

    def _counted(self, data: bytes) -> bytes:
        text = data if self.offset else data.removeprefix(_BOM)
        self.offset += len(data)
        self.line += data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
        return text


@contextmanager
def open_file(file: InputFile, start: tuple[int, int] = (0, 0)) -> Iterator[Reading]:
    """Open a file (one named .gz is decompressed) or a member of an archive.

    `start` is the bytes and lines from which `go_on` goes on."""
    with ExitStack() as opened:
        with _damage_named(file.label, 0):
            stream = _open(file, opened)
        yield Reading(stream, file.label, start)


def _open(file: InputFile, opened: ExitStack) -> IO[bytes]:
    if file.member is not None:
        archive = opened.enter_context(zipfile.ZipFile(file.path))
        return opened.enter_context(archive.open(file.member))
    if file.path.endswith(".gz"):
        return cast("IO[bytes]", opened.enter_context(gzip.open(file.path)))
    return opened.enter_context(open(file.path, "rb"))


@contextmanager
def _damage_named(label: str, lines_read: int) -> Iterator[None]:
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError) as error:
        # zipfile raises RuntimeError for encrypted members.
        raise SerializationError(
            f"{label} cannot be read after line {lines_read}: {error}; replace the damaged file"
        ) from error
