"""The journal of a job's attempts: files that answers are appended to (see `checkpoint.journal`).

    <job>/journal/<attempt>-000000        what the attempt has carried over, written in one step
    <job>/journal/<attempt>-000001 …      what it appends, a file per checkpoint

Each attempt writes files of its own and never opens another one's to write: what a fenced attempt
still appends cannot damage a newer one's, and is not read once that has a journal of its own. The
newest attempt that has a file counts, and only it: it begins with everything that was left of the
one before, which is removed only when that is durable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from streamcp.checkpoint.journal import Answer, JournalHead
from streamcp.durable_files import LOCAL_FILES, DurableFiles, GrowingFile
from streamcp.errors import StorageError
from streamcp.storage import layout
from streamcp.storage.contract import Classes, StoredJournal
from streamcp.storage.journal_format import (
    JournalFile,
    decode_file,
    encode_group,
    encode_head,
)

_log = logging.getLogger(__name__)

_DRAFT = ".draft-"


class JournalFiles:
    """The journal of attempt `attempt` in `directory`; implements `JournalStorage`.

    `check_newest()` raises Fenced if a newer attempt has begun."""

    def __init__(
        self,
        directory: Path,
        attempt: int,
        *,
        check_newest: Callable[[], object],
        files: DurableFiles = LOCAL_FILES,
    ) -> None:
        """Nothing is touched yet."""
        self._directory = directory
        self._attempt = attempt
        self._check_newest = check_newest
        self._files = files
        self._head = JournalHead(attempt, 0)
        self._segment = 0
        self._file: GrowingFile | None = None
        self._named = 0  # classes that the current segment has named

    # --- reading --------------------------------------------------------------------------------

    def read(self) -> StoredJournal | None:
        """Read the journal of the newest earlier attempt; None if there is none.

        Raises StorageError if a file cannot be read, or has a newer format."""
        names = self._names()
        for attempt in sorted({number for number, _ in names}, reverse=True):
            own = [segment for number, segment in names if number == attempt]
            pieces = [one for one in map(self._read_segment, [attempt] * len(own), own) if one]
            if pieces:
                told = tuple((piece.classes, piece.answers) for piece in pieces)
                return StoredJournal(pieces[0].head, told)
        return None

    def _names(self) -> list[tuple[int, int]]:
        """Attempt and number of each segment of earlier attempts, sorted."""
        found = map(layout.segment_of, self._files.list_directory(self._directory))
        return sorted(one for one in found if one is not None and one[0] < self._attempt)

    def _read_segment(self, attempt: int, segment: int) -> JournalFile | None:
        path = self._path(segment, attempt)
        raw = self._files.read_file(path)
        return None if raw is None else decode_file(raw, str(path))

    def _path(self, segment: int, attempt: int | None = None) -> Path:
        return self._directory / layout.journal_file(attempt or self._attempt, segment)

    # --- writing --------------------------------------------------------------------------------

    def begin(self, head: JournalHead, classes: Classes, carried: Sequence[Answer]) -> None:
        """Write what is carried over, durably and in one step; then remove the journals of earlier
        attempts. Raises StorageError; then those are left. Raises Fenced if a newer attempt has
        begun: that may have removed them before they were read."""
        self._check_newest()
        self._head = head
        self._files.make_directories(self._directory)
        if carried:
            draft = self._directory / f"{_DRAFT}{layout.journal_file(self._attempt, 0)}"
            content = [encode_head(head), encode_group(carried, classes)]
            self._files.write_file(draft, content, replace=True)
            self._files.rename(draft, self._path(0))
        self._remove_earlier()

    def _remove_earlier(self) -> None:
        names = [layout.journal_file(*one) for one in self._names()]
        drafts = self._files.list_directory(self._directory)
        own = f"{_DRAFT}{layout.journal_file(self._attempt, 0)}"
        names += [name for name in drafts if name.startswith(_DRAFT) and name < own]
        try:
            for name in names:
                self._files.remove_file(self._directory / name)
        except StorageError as error:
            _log.warning("journals of earlier attempts were not removed yet: %s", error)

    def append(self, segment: int, classes: Classes, answers: Sequence[Answer]) -> None:
        """Append answers to a segment, durably. Raises StorageError."""
        is_new = self._file is None or segment != self._segment
        if is_new:
            self._open(segment)
        assert self._file is not None
        group = encode_group(answers, classes[self._named :])
        self._file.append(encode_head(self._head) + group if is_new else group)
        self._named = len(classes)
        if is_new:
            self._files.sync_directory(self._directory)

    def _open(self, segment: int) -> None:
        self.close()
        self._file = GrowingFile(self._files, self._path(segment))
        self._segment, self._named = segment, 0

    def remove(self, segments: Sequence[int]) -> None:
        """Remove segments. Never raises."""
        try:
            for segment in segments:
                if segment == self._segment:
                    self.close()
                self._files.remove_file(self._path(segment))
        except StorageError as error:
            _log.warning("answers that are needed no more were not removed yet: %s", error)

    def close(self) -> None:
        """Close the current segment. Never raises."""
        if self._file is not None:
            self._file.close()
            self._file = None
