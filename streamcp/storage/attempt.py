"""What the running attempt knows of the log, and what it may still do (rules P3 and P34).

An answer of the file system that leaves open whether the link was made is settled by reading that
number before anything else is appended or removed. So a checkpoint whose completion was reported
as failed may turn out complete; that is safe, since nothing was committed for it and the next one
contains it, and it is why `discard` looks at the log first.

It appends and looks; it removes no file and holds no lock. Callers let one thread in at a time.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from streamcp.checkpoint.snapshot import Manifest, Section
from streamcp.errors import Fenced, StorageError
from streamcp.storage import format, layout
from streamcp.storage.contract import CompletedCheckpoint
from streamcp.storage.log import CompletionLog, reserved_through
from streamcp.storage.reading import files_of

_log = logging.getLogger(__name__)

# How many ids before the end of the reserved ones more are reserved: the checkpoints that may run
# or fail before anything is written again.
_ID_MARGIN = 250


def fenced(job: str, attempt: int) -> Fenced:
    """Make the error that stops an attempt because a newer one has begun."""
    return Fenced(
        f"another copy of job {job!r} has started since attempt {attempt} did: this one must stop"
    )


@dataclass(slots=True)
class RunningAttempt:
    """The standing of one attempt.

    `top` is the last log number it knows, `doubtful` that an append at the next one was left
    unanswered, `unsynced` that the newest completion is visible but perhaps not durable. `files`
    holds the data files of complete checkpoints, None for an unreadable manifest. `directories`
    are the checkpoints whose directory this attempt has made. `ended` are the discarded ones,
    `unremoved` those of which it is still to be told whether they may go. `deferred` holds, per
    checkpoint and data file, the content that is still to be written; the only part of all this
    that is added to by the event loop's thread.
    """

    job: str
    log: CompletionLog
    number: int
    first_id: int
    top: int
    reserved: int
    completed: list[CompletedCheckpoint]
    files: dict[int, frozenset[str] | None]
    fork: str = ""
    directories: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    unremoved: set[int] = field(default_factory=set)
    deferred: dict[int, dict[str, list[Section]]] = field(default_factory=dict)
    serials: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    fenced: bool = False
    doubtful: bool = False
    unsynced: bool = False

    def is_complete(self, checkpoint_id: int) -> bool:
        """Tell whether the log says that a checkpoint is complete, so far as it is known."""
        return any(each.checkpoint_id == checkpoint_id for each in self.completed)

    def check_id(self, checkpoint_id: int) -> None:
        """Raise StorageError unless a checkpoint is this attempt's and has not ended."""
        if checkpoint_id < self.first_id:
            raise StorageError(f"checkpoint {checkpoint_id} belongs to an earlier attempt")
        if checkpoint_id in self.ended or self.is_complete(checkpoint_id):
            raise StorageError(f"checkpoint {checkpoint_id} has ended already")

    def check_references(self, manifest: Manifest) -> None:
        """Raise StorageError unless every file that a manifest refers to is the checkpoint's own
        or one of a complete checkpoint (P16)."""
        complete = frozenset().union(*(files for files in self.files.values() if files is not None))
        for file in sorted(files_of(manifest) - complete):
            if layout.checkpoint_of_file(file) != manifest.checkpoint_id:
                raise StorageError(
                    f"checkpoint {manifest.checkpoint_id} cannot be completed: it refers to "
                    f"{file}, which belongs to no complete checkpoint any more"
                )

    def referenced(self) -> frozenset[str] | None:
        """Name every data file of a complete checkpoint; None if one cannot tell."""
        known = [files for files in self.files.values() if files is not None]
        return frozenset().union(*known) if len(known) == len(self.files) else None

    def check_not_fenced(self) -> None:
        """Raise Fenced if another attempt is known to have begun."""
        if self.fenced:
            raise self._fence()

    def is_fenced(self) -> bool:
        """Look whether another attempt has begun; raises StorageError if that cannot be told."""
        if not self.fenced:
            self.settle()
            self.fenced = self.log.exists(self.top + 1)
        return self.fenced

    def check_newest(self) -> None:
        """Raise Fenced if another attempt has begun, also where that has removed the entry with
        which it began; StorageError if it cannot be told."""
        if self.is_fenced() or self.log.top() > self.top:
            raise self._fence()

    def settle(self) -> None:
        """Find out what became of an append that was left unanswered, by reading its number and,
        if that is free, whether there is a higher one.

        Raises Fenced, or StorageError if it cannot be told yet."""
        if not self.doubtful:
            return
        raw = self.log.read_entry(self.top + 1)
        if raw is not None:
            self._adopt_own(raw)
        elif self.log.top() > self.top:
            # The number was taken, and a newer attempt has removed what stood there.
            raise self._fence()
        self.doubtful = False

    def append_completion(self, manifest: Manifest, path: Path) -> None:
        """Append the durable manifest at `path`; visible at once, durable after a sync of the log.

        Raises Fenced if another attempt has appended since."""
        self.doubtful = True
        if not self.log.link(self.top + 1, path):
            raise self._fence()
        self.doubtful = False
        self._adopt(manifest)

    def reserve(self, checkpoint_id: int) -> None:
        """Reserve more ids in the log if completions have not done so for long (P3).

        Raises StorageError only if `checkpoint_id` itself is not reserved yet, or Fenced."""
        if checkpoint_id <= self.reserved - _ID_MARGIN:
            return
        try:
            self.append_ids(checkpoint_id)
        except StorageError as error:
            if checkpoint_id > self.reserved:
                raise
            _log.warning("checkpoint ids were not reserved yet: %s", error)

    def append_ids(self, checkpoint_id: int) -> None:
        """Append an entry that reserves `checkpoint_id` and those behind it, durably."""
        self.settle()
        self.doubtful = True
        content = {"attempt": self.number, "checkpoint_id": checkpoint_id, "fork": self.fork}
        if not self.log.append(self.top + 1, "ids", content):
            raise self._fence()
        self.doubtful = False
        self.top += 1
        self.reserved = max(self.reserved, reserved_through(checkpoint_id))

    def _fence(self) -> Fenced:
        self.fenced = True
        return fenced(self.job, self.number)

    def _adopt(self, manifest: Manifest) -> None:
        """Count the checkpoint whose completion is the next entry of the log."""
        self.top += 1
        completed = CompletedCheckpoint(self.top, manifest.checkpoint_id, manifest.attempt)
        self.completed.append(completed)
        self.files[manifest.checkpoint_id] = files_of(manifest)
        self.directories.discard(manifest.checkpoint_id)
        self.deferred.pop(manifest.checkpoint_id, None)
        self.reserved = max(self.reserved, reserved_through(manifest.checkpoint_id))
        self.unsynced = True

    def _adopt_own(self, raw: bytes) -> None:
        document = self.log.open(self.top + 1, raw)
        if document.content.integer("attempt") != self.number:
            raise self._fence()
        if document.kind == "manifest":
            self._adopt(format.decode_manifest(document))
        else:
            self.top += 1
