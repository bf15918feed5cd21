"""The contract of checkpoint storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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
    checkpoints are complete, oldest first (rule P34)."""

    number: int
    next_checkpoint_id: int
    completed: tuple[CompletedCheckpoint, ...]


class CheckpointStorage(Protocol):
    """The checkpoints of one job. Every method blocks and raises StorageError (or a subclass)."""

    def start_attempt(self, *, take_over: bool = False) -> Attempt:
        """Take the lock, append "attempt k" to the completion log, then read what is complete.

        Raises StorageError naming the other copy if one shows life and `take_over` is false."""
        ...

    def write_data(
        self, checkpoint_id: int, sections: Sequence[tuple[SubtaskId, Section]]
    ) -> list[SectionHandle]:
        """Write and fsync one data file; return a handle per section, in their order."""
        ...

    def complete(self, manifest: Manifest) -> None:
        """Write the manifest durably and append the completion to the log.

        Raises Fenced if another attempt has appended since; then nothing was completed."""
        ...

    def discard(self, checkpoint_id: int) -> None:
        """Remove the files of a checkpoint that did not complete. Never raises."""
        ...

    def retain(self, count: int) -> list[int]:
        """Remove all but the newest `count` complete checkpoints; return the removed ids.

        Never raises: a file that cannot be removed is tried again next time."""
        ...

    def load_manifest(self, checkpoint_id: int) -> Manifest:
        """Read and validate a complete checkpoint's manifest.

        Raises CheckpointDamaged naming the file."""
        ...

    def read_section(self, checkpoint_id: int, handle: SectionHandle) -> list[bytes]:
        """Read a section's frames; raises CheckpointDamaged if the checksum is wrong."""
        ...

    def verify(self, checkpoint_id: int) -> list[str]:
        """Check every file; return one sentence per damaged one, naming it."""
        ...

    def append_history(self, entry: Mapping[str, Any]) -> None:
        """Append one checkpoint's figures (completed or failed) to the history. Never raises."""
        ...

    def read_history(self) -> list[dict[str, Any]]:
        """Read the history, oldest first; lines that are damaged are left out."""
        ...

    def close(self) -> None:
        """Release the lock."""
        ...
