"""The contract of checkpoint storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from streamcp.checkpoint.journal import Answer, JournalHead
from streamcp.checkpoint.snapshot import Manifest, Section, SectionHandle
from streamcp.identifiers import SubtaskId


@dataclass(frozen=True, slots=True)
class CompletedCheckpoint:
    """An entry of the completion log: checkpoint `checkpoint_id` is complete since log `number`."""

    number: int
    checkpoint_id: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a starting attempt learns: its own number, the next free checkpoint id, and which
    checkpoints are complete, oldest first (rule P34).

    - `completed` holds those since the job last began from a savepoint, whose path is then
      `begun_from`.
    - `fork` is in the names of the job's transactions; `forks` are all that it ever had, the
      current one included: each time it begins from a savepoint it gets a new one (rule P30)."""

    number: int
    next_checkpoint_id: int
    completed: tuple[CompletedCheckpoint, ...]
    fork: str = ""
    forks: tuple[str, ...] = ("",)
    begun_from: str | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """The savepoint that a job begins from: its `manifest`, the `path` as the user named it.

    `fork` is a name that no other job has. With `replaces` the job's own checkpoints do not
    count."""

    path: str
    manifest: Manifest
    fork: str
    replaces: bool = False


Classes: TypeAlias = Sequence[Mapping[str, Any]]
"""A class table, or the end of one."""


@dataclass(frozen=True, slots=True)
class StoredJournal:
    """The newest journal of a job, as much of it as is whole: pieces with the class table by which
    their answers are read."""

    head: JournalHead
    pieces: tuple[tuple[Classes, Sequence[Answer]], ...]


class JournalStorage(Protocol):
    """The journal of one attempt of a job. Every method blocks; one is called at a time."""

    def read(self) -> StoredJournal | None:
        """Read the journal of the newest earlier attempt that has one; None if there is none.

        A file is read up to its first damaged place. Raises StorageError if it cannot be read, or
        has a newer format."""
        ...

    def begin(self, head: JournalHead, classes: Classes, carried: Sequence[Answer]) -> None:
        """Begin the attempt's own journal with what it carries over, as segment 0, and remove
        those of earlier attempts: one or the other is whole at any moment.

        Raises StorageError; then those of earlier attempts are left. Raises Fenced if a newer
        attempt has begun, which may have removed what was to be read."""
        ...

    def append(self, segment: int, classes: Classes, answers: Sequence[Answer]) -> None:
        """Append answers to a segment, durably; `classes` is the whole table. Segments come in
        their order, and one that a failure has left is never appended to again.

        Raises StorageError; then they may or may not be found by `read`."""
        ...

    def remove(self, segments: Sequence[int]) -> None:
        """Remove segments. Never raises: what cannot be removed goes with the attempt's journal."""
        ...

    def close(self) -> None:
        """Close the current segment. Never raises."""
        ...


class CheckpointStorage(Protocol):
    """The checkpoints of one job. Every method blocks and raises StorageError (or a subclass)."""

    def start_attempt(self, *, take_over: bool = False, origin: Origin | None = None) -> Attempt:
        """Take the lock, append "attempt k" to the completion log, then read what is complete.

        With `origin` the job begins anew from a savepoint: its ids are greater than that one's.
        Raises StorageError naming the other copy if one shows life and `take_over` is false, and
        RestoreRefused if the job has complete checkpoints of its own that the origin does not
        replace; the one that the savepoint is a copy of may be the newest."""
        ...

    def write_data(
        self, checkpoint_id: int, sections: Sequence[tuple[SubtaskId, Section]]
    ) -> list[SectionHandle]:
        """Write and fsync one data file; return a handle per section, in their order."""
        ...

    def defer_data(
        self, checkpoint_id: int, sections: Sequence[tuple[SubtaskId, Section]]
    ) -> list[SectionHandle] | None:
        """Take a small data file that `complete` is to write, durably, with the manifest; return a
        handle per section. None if it is so large that `write_data` must write it before.

        Never waits for the disk."""
        ...

    def complete(self, manifest: Manifest) -> None:
        """Write the manifest and the deferred data durably, then append the completion to the log.

        The manifest may refer to files of complete checkpoints beside its own (rule P16). Raises
        Fenced if another attempt has appended since; then nothing was completed."""
        ...

    def write_savepoint(self, checkpoint_id: int, target: Path) -> Path:
        """Copy a complete checkpoint into a new directory in `target`; return its path.

        Raises StorageError (also a subclass), and Fenced if another attempt is known to have
        begun; then nothing is left in `target`."""
        ...

    def pin(self, checkpoint_id: int) -> None:
        """Keep a checkpoint from retention, across attempts of this object, until it is unpinned
        as often. Never waits for the disk."""
        ...

    def unpin(self, checkpoint_id: int) -> None:
        """Let retention have a checkpoint again. Never waits for the disk."""
        ...

    def discard(self, checkpoint_id: int) -> None:
        """Remove the files of a checkpoint that did not complete. Never raises."""
        ...

    def retain(self, count: int) -> list[int]:
        """Remove all but the newest `count` complete checkpoints; return the removed ids.

        A file that a kept checkpoint refers to stays until none does. Never raises: a file that
        cannot be removed is tried again next time."""
        ...

    def load_manifest(self, checkpoint_id: int) -> Manifest:
        """Read and validate a complete checkpoint's manifest.

        Raises CheckpointDamaged naming the file."""
        ...

    def read_section(self, checkpoint_id: int, handle: SectionHandle) -> list[bytes]:
        """Read a section's frames; raises CheckpointDamaged if the checksum is wrong."""
        ...

    def verify(self, checkpoint_id: int) -> list[str]:
        """Check every file that the checkpoint needs; return one sentence per damaged one, naming
        it, and the checkpoints that need it if it is one of another checkpoint."""
        ...

    def append_history(self, entry: Mapping[str, Any]) -> None:
        """Append one checkpoint's figures (completed or failed) to the history. Never raises."""
        ...

    def read_history(self) -> list[dict[str, Any]]:
        """Read the history, oldest first; lines that are damaged are left out."""
        ...

    def journal(self) -> JournalStorage:
        """The journal of the attempt that has begun; nothing is touched yet."""
        ...

    def close(self) -> None:
        """Release the lock."""
        ...
