"""The figures of past checkpoints, as JSON lines; they survive restarts and are bounded.

Helpful, never needed: writing raises nothing and is not fsynced, damaged lines are left out.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from streamcp.durable_files import LOCAL_FILES, DurableFiles
from streamcp.errors import StorageError

LIMIT = 10_000
"""Entries that are kept; the file is cut when it holds twice as many."""

_log = logging.getLogger(__name__)


class History:
    """The history file of one job."""

    def __init__(self, path: Path, *, files: DurableFiles = LOCAL_FILES) -> None:
        """Use the file at `path`; nothing is touched yet."""
        self._path = path
        self._files = files
        self._count: int | None = None
        self._torn = False

    def append(self, entry: Mapping[str, Any]) -> None:
        """Append `entry`; values that JSON cannot hold are written as text. Never raises."""
        try:
            line = orjson.dumps(dict(entry), default=str, option=orjson.OPT_NON_STR_KEYS)
            if self._count is None:
                self._count = len(self._lines())
            # A line torn by a crash must not swallow this one; readers skip blank lines.
            start, self._torn = b"\n" if self._torn else b"", True
            self._files.append(self._path, start + line + b"\n")
            self._torn = False
            self._count += 1
        except (StorageError, TypeError, ValueError) as error:
            _log.warning("history entry was not written to %s: %s", self._path, error)

    def trim(self) -> None:
        """Cut the file to the newest `LIMIT` entries once it holds twice as many. Never raises."""
        if self._count is not None and self._count < 2 * LIMIT:
            return
        try:
            lines = self._lines()
            self._count = len(lines)
            if self._count > 2 * LIMIT:
                self._rewrite(lines[-LIMIT:])
        except StorageError as error:
            _log.warning("history was not cut: %s", error)

    def read(self) -> list[dict[str, Any]]:
        """Read the newest `LIMIT` entries, oldest first; raises StorageError if unreadable."""
        entries = []
        for line in self._lines()[-LIMIT:]:
            with contextlib.suppress(orjson.JSONDecodeError):
                entry = orjson.loads(line)
                if isinstance(entry, dict):
                    entries.append(entry)
        return entries

    def _lines(self) -> list[bytes]:
        raw = self._files.read_file(self._path) or b""
        self._torn = bool(raw) and not raw.endswith(b"\n")
        return [line for line in raw.split(b"\n") if line.strip()]

    def _rewrite(self, lines: list[bytes]) -> None:
        draft = self._path.with_suffix(".draft")
        self._files.write_file(draft, (line + b"\n" for line in lines), replace=True)
        self._files.rename(draft, self._path)
        self._count, self._torn = len(lines), False
