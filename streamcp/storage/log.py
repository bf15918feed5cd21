"""The completion log of a job: numbered files, each made by one step that fails if it exists (P34).

Three kinds of entry, all documents of `format`:

- "attempt": an attempt begins. Always the first entry of its attempt. It holds the `fork` in the
  names of the job's transactions, and `begun_from` if the attempt begins from a savepoint.
- "manifest": a checkpoint is complete. A hard link of its `_metadata`, so one step shows it.
- "ids": checkpoint ids are reserved (below); rare.

**Numbers are never used twice**, although entries of removed checkpoints are removed. Whoever
appends knows the last number L of its own attempt and tries L+1 only. If somebody has appended
since, the entry L+1 is the first of another attempt, thus an "attempt" entry, and those are never
removed (a few hundred bytes per start). A starting attempt knows no L: it takes the number after
the highest it sees, and looks again whether it is the highest; the highest entry of all is never
removed, because it begins an attempt, reserves ids, or completes the newest checkpoint.

**Ids are never used twice** (P3), also those that were triggered but never written, without a
write per trigger: every entry names an id, and by that reserves the rest of its block of 1000,
from the middle of a block on also the next block. An attempt begins behind all reserved ids, so
ids jump to the next thousand at a restart. Ids that pass the middle of the last reserved block
without any completion are reserved by an "ids" entry before they may be written.

The log decides alone what is complete. Nothing here knows of locks or of retention.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamcp.durable_files import LOCAL_FILES, DurableFiles, KeptDirectories, Opened
from streamcp.errors import CheckpointDamaged, StorageError
from streamcp.storage import layout
from streamcp.storage.contract import CompletedCheckpoint
from streamcp.storage.format import Document, DocumentKind, seal, unseal

_log = logging.getLogger(__name__)

ID_BLOCK = 1000
_DRAFT = ".draft-"


def reserved_through(checkpoint_id: int) -> int:
    """Tell the highest id that an entry with `checkpoint_id` reserves."""
    return ((checkpoint_id + ID_BLOCK // 2) // ID_BLOCK + 1) * ID_BLOCK


@dataclass(slots=True)
class LogView:
    """What the log said when it was read.

    `attempt` is an upper bound of the attempts begun, `reserved` of the ids used. `damaged` holds,
    per number of an entry that cannot be read, a sentence; if it completed a checkpoint that can
    still be told, that is among `completed`, and if it surely completed none, `harmless`.
    `forks` are those of all entries, the newest last; `begun_from` is the newest savepoint that
    the job began from, `begun_at` the number of that entry.
    """

    top: int = 0
    attempt: int = 0
    reserved: int = 0
    completed: list[CompletedCheckpoint] = field(default_factory=list)
    attempts: set[int] = field(default_factory=set)
    damaged: dict[int, str] = field(default_factory=dict)
    harmless: set[int] = field(default_factory=set)
    forks: list[str] = field(default_factory=list)
    begun_from: str | None = None
    begun_at: int = 0

    @property
    def since_begun(self) -> list[CompletedCheckpoint]:
        """The completed checkpoints since the job last began from a savepoint."""
        return [each for each in self.completed if each.number > self.begun_at]

    def find(self, checkpoint_id: int) -> CompletedCheckpoint | None:
        """Find the entry that completed `checkpoint_id`."""
        return next((each for each in self.completed if each.checkpoint_id == checkpoint_id), None)

    @property
    def unexplained(self) -> list[str]:
        """Sentences of the damaged entries behind the newest readable completion: one of them may
        have completed a newer checkpoint."""
        known = {each.number for each in self.completed}
        newest = max(known - self.damaged.keys(), default=0)
        return [
            sentence
            for number, sentence in self.damaged.items()
            if number > newest and number not in known and number not in self.harmless
        ]


class CompletionLog:
    """The log of the job in one directory."""

    def __init__(self, job_directory: Path, *, files: DurableFiles = LOCAL_FILES) -> None:
        """Use the log of `job_directory`; nothing is touched yet."""
        self._job_directory = job_directory
        self._directory = job_directory / layout.LOG
        self._files = files
        self._kept = KeptDirectories(files)

    def path(self, number: int) -> Path:
        """Tell the path of an entry."""
        return self._directory / layout.entry(number)

    def prepare(self) -> None:
        """Make the log's directory, durably."""
        self._files.make_directories(self._directory)

    def append(self, number: int, kind: DocumentKind, content: Mapping[str, Any]) -> bool:
        """Append an entry at `number`, durably; False if the number is taken.

        `content` has `attempt`, `checkpoint_id`, and what else the kind may have."""
        draft = self._directory / f"{_DRAFT}{layout.entry(number)}-{self._files.unique_name()}"
        try:
            self._files.write_file(draft, [seal(kind, number, content)], replace=True)
            if not self._files.link_new(draft, self.path(number)):
                return False
        finally:
            self._remove_draft(draft)
        self.sync()
        return True

    def _remove_draft(self, draft: Path) -> None:
        """Whether it stays says nothing of the entry: a later start removes it."""
        try:
            self._files.remove_file(draft)
        except StorageError as error:
            _log.warning("a draft stays in the log until a later start: %s", error)

    def link(self, number: int, manifest: Path) -> bool:
        """Append the durable file `manifest` at `number`; False if the number is taken.

        Durable after `sync`."""
        return self._files.link_new(manifest, self.path(number))

    def sync(self) -> None:
        """Make the entries durable. Keeps the directory open until `close`."""
        self._kept.sync(self._directory)

    def job_directory(self) -> Opened:
        """The directory that holds the names of the checkpoints' directories, open likewise."""
        return self._kept.opened(self._job_directory)

    def close(self) -> None:
        """Close the directories; nothing happens if none is open."""
        self._kept.close()

    def remove(self, number: int) -> None:
        """Remove the entry of a checkpoint that is not the newest complete one."""
        self._files.remove_file(self.path(number))

    def remove_drafts(self, top: int) -> None:
        """Remove what crashed attempts left: drafts of entries up to `top`, which are taken, so
        that an attempt that is just starting loses nothing."""
        for name in self._files.list_directory(self._directory):
            if name.startswith(_DRAFT) and name < f"{_DRAFT}{layout.entry(top + 1)}":
                self._files.remove_file(self._directory / name)

    def exists(self, number: int) -> bool:
        """Tell whether there is an entry; raises StorageError if that cannot be told."""
        return self._files.exists(self.path(number))

    def read_entry(self, number: int) -> bytes | None:
        """Read the bytes of an entry; None if there is none."""
        return self._files.read_file(self.path(number))

    def top(self) -> int:
        """Tell the highest number; 0 for an empty log."""
        return max(self._numbers(), default=0)

    def _numbers(self) -> list[int]:
        names = self._files.list_directory(self._directory)
        return sorted(n for n in map(layout.entry_number, names) if n is not None)

    def read(self) -> LogView:
        """Read the whole log; entries that are removed meanwhile are left out.

        Raises StorageError if an entry has a newer format. Damaged entries raise nothing."""
        view = LogView()
        for number in self._numbers():
            view.top = number
            raw = self.read_entry(number)
            if raw is not None:
                self._add(view, number, raw)
        # Directories tell ids whose entries are damaged or were removed.
        view.reserved = max([view.reserved, *map(reserved_through, self.checkpoint_ids())])
        return view

    def checkpoint_ids(self) -> list[int]:
        """List the ids of all checkpoint directories, complete or not."""
        names = self._files.list_directory(self._job_directory)
        return sorted(n for n in map(layout.checkpoint_of, names) if n is not None)

    def _add(self, view: LogView, number: int, raw: bytes) -> None:
        try:
            document = self.open(number, raw)
            attempt = document.content.integer("attempt", minimum=1)
            checkpoint_id = document.content.integer("checkpoint_id", minimum=1)
            fork = document.content.optional_text("fork") or ""
            begun_from = document.content.optional_text("begun_from")
        except CheckpointDamaged as error:
            self._add_damaged(view, number, raw, str(error))
            return
        view.attempt = max(view.attempt, attempt)
        view.reserved = max(view.reserved, reserved_through(checkpoint_id))
        if fork in view.forks:
            view.forks.remove(fork)
        view.forks.append(fork)
        if document.kind == "attempt":
            view.attempts.add(attempt)
            if begun_from is not None:
                view.begun_from, view.begun_at = begun_from, number
        elif document.kind == "manifest":
            view.completed.append(CompletedCheckpoint(number, checkpoint_id, attempt))

    def _add_damaged(self, view: LogView, number: int, raw: bytes, sentence: str) -> None:
        """Note an unreadable entry so that it frees neither its attempt number nor its ids."""
        view.damaged[number] = sentence
        if b'"kind":"attempt"' in raw[:64]:  # so much is certain: it completed nothing
            view.harmless.add(number)
        checkpoint_id = self._completed_at(number)
        if checkpoint_id is not None:
            view.completed.append(CompletedCheckpoint(number, checkpoint_id, view.attempt))
            view.reserved = max(view.reserved, reserved_through(checkpoint_id))
        else:
            view.attempt += 1
            view.reserved += ID_BLOCK

    def _completed_at(self, number: int) -> int | None:
        """Tell which checkpoint a damaged entry completed: the one whose `_metadata` is the same
        file, or (where links were copied as files) says that number."""
        for checkpoint_id in self.checkpoint_ids():
            metadata = self.metadata(checkpoint_id)
            if self._files.is_same_file(metadata, self.path(number)):
                return checkpoint_id
            if self._says_number(metadata, number):
                return checkpoint_id
        return None

    def _says_number(self, metadata: Path, number: int) -> bool:
        raw = self._files.read_file(metadata)
        try:
            return raw is not None and unseal(raw, str(metadata)).number == number
        except CheckpointDamaged:
            return False

    def metadata(self, checkpoint_id: int) -> Path:
        """Tell the path of a checkpoint's manifest."""
        return self._job_directory / layout.checkpoint_directory(checkpoint_id) / layout.METADATA

    def open(self, number: int, raw: bytes) -> Document:
        """Decode the entry `number`; raises CheckpointDamaged, also if it belongs elsewhere."""
        document = unseal(raw, str(self.path(number)))
        if document.number != number:
            raise document.content.refuse("number", f"is {document.number}, not {number}")
        return document
