"""Checkpoints in memory: the contract of storage without a disk, for trials.

Invariant: what a checkpoint holds is bytes, as on a disk, so that a restored job shares no object
with the one that took it. What is durable lies in a `Memory`; a crash is a copy of it. Journals are
files on a simulated disk, as they are anywhere.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamcp.checkpoint.snapshot import Manifest, Section, SectionHandle
from streamcp.errors import CheckpointDamaged, Fenced, StorageError
from streamcp.identifiers import SubtaskId
from streamcp.storage.contract import Attempt, CompletedCheckpoint, JournalStorage, Origin
from streamcp.storage.journal import JournalFiles
from streamcp.storage.layout import checkpoint_of_file, data_file
from streamcp.storage.reading import files_of
from streamcp.testing.simulation.disk import SimulatedDisk

# How many ids an attempt leaves free behind those that it is known to have used.
_MARGIN = 1000

_JOURNAL = Path("/journal")


@dataclass
class Memory:
    """What is durable of one job. `files` has the frames of sections, by file and offset; `ended`
    are checkpoints that did not complete or are not needed any more."""

    attempts: int = 0
    highest_id: int = 0
    completed: dict[int, tuple[CompletedCheckpoint, Manifest]] = field(default_factory=dict)
    files: dict[str, dict[int, tuple[bytes, ...]]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    history: list[dict[str, Any]] = field(default_factory=list)
    disk: SimulatedDisk = field(default_factory=lambda: SimulatedDisk(random.Random(0)))
    entries: int = 0
    used_by: MemoryStorage | None = None

    def crashed(self) -> Memory:
        """What a process finds that starts when the one that uses it has been killed."""
        return Memory(
            self.attempts,
            self.highest_id,
            dict(self.completed),
            dict(self.files),
            set(self.ended),
            list(self.history),
            self.disk.crash(power_fails=False),
            self.entries,
        )

    def next_entry(self) -> int:
        """Count an entry of the log."""
        self.entries += 1
        return self.entries


class MemoryStorage:
    """The checkpoints of `job` in `memory`; implements `CheckpointStorage`, but for savepoints."""

    def __init__(self, memory: Memory, job: str) -> None:
        self._memory = memory
        self._job = job
        self._number = 0
        self._written = 0
        self._pinned: dict[int, int] = {}

    def start_attempt(self, *, take_over: bool = False, origin: Origin | None = None) -> Attempt:
        """Begin an attempt. Raises StorageError if another copy shows life, and for an origin."""
        memory = self._memory
        if origin is not None:
            raise StorageError(f"job {self._job!r}: there are no savepoints in memory")
        if memory.used_by not in (None, self) and not take_over:
            raise StorageError(f"another copy of job {self._job!r} uses this memory")
        memory.used_by = self
        memory.attempts += 1
        memory.highest_id += _MARGIN if memory.attempts > 1 else 0
        memory.next_entry()
        self._number = memory.attempts
        completed = tuple(completed for completed, _ in memory.completed.values())
        return Attempt(self._number, memory.highest_id + 1, completed)

    def write_data(
        self, checkpoint_id: int, sections: Sequence[tuple[SubtaskId, Section]]
    ) -> list[SectionHandle]:
        """Keep the frames of sections."""
        self._used(checkpoint_id)
        self._written += 1
        name = data_file(checkpoint_id, self._number, self._written)
        content: dict[int, tuple[bytes, ...]] = {}
        handles = []
        for offset, (_, section) in enumerate(sections):
            content[offset] = tuple(section.frames)
            handles.append(_handle(section, name, offset))
        self._memory.files[name] = content
        return handles

    def defer_data(
        self, checkpoint_id: int, sections: Sequence[tuple[SubtaskId, Section]]
    ) -> list[SectionHandle] | None:
        """Keep the frames of sections: in memory nobody waits."""
        return self.write_data(checkpoint_id, sections)

    def complete(self, manifest: Manifest) -> None:
        """Make a checkpoint complete; raises Fenced if another attempt has begun."""
        memory, checkpoint_id = self._memory, manifest.checkpoint_id
        self._check_newest()
        missing = files_of(manifest) - memory.files.keys()
        if missing:
            raise StorageError(f"checkpoint {checkpoint_id} refers to {sorted(missing)}: no files")
        self._used(checkpoint_id)
        completed = CompletedCheckpoint(memory.next_entry(), checkpoint_id, manifest.attempt)
        memory.completed[checkpoint_id] = completed, manifest

    def write_savepoint(self, checkpoint_id: int, target: Path) -> Path:
        """Raise StorageError: a savepoint is a directory."""
        raise StorageError(f"job {self._job!r}: no savepoint can be written from memory")

    def pin(self, checkpoint_id: int) -> None:
        """Keep a checkpoint from retention."""
        self._pinned[checkpoint_id] = self._pinned.get(checkpoint_id, 0) + 1

    def unpin(self, checkpoint_id: int) -> None:
        """Let retention have a checkpoint again."""
        self._pinned[checkpoint_id] -= 1

    def discard(self, checkpoint_id: int) -> None:
        """Forget a checkpoint that did not complete."""
        if not self._is_fenced and checkpoint_id not in self._memory.completed:
            self._used(checkpoint_id)
            self._end([checkpoint_id])

    def retain(self, count: int) -> list[int]:
        """Forget all but the newest `count`, and what is pinned; return their ids."""
        if self._is_fenced:
            return []
        old = [*self._memory.completed][:-count]
        removed = [one for one in old if not self._pinned.get(one)]
        for checkpoint_id in removed:
            del self._memory.completed[checkpoint_id]
        self._end(removed)
        return removed

    def load_manifest(self, checkpoint_id: int) -> Manifest:
        """Give a manifest; raises CheckpointDamaged if there is none."""
        if checkpoint_id not in self._memory.completed:
            raise CheckpointDamaged(f"there is no checkpoint {checkpoint_id} in memory")
        return self._memory.completed[checkpoint_id][1]

    def read_section(self, checkpoint_id: int, handle: SectionHandle) -> list[bytes]:
        """Give the frames of a section."""
        return list(self._memory.files[handle.file][handle.offset])

    def verify(self, checkpoint_id: int) -> list[str]:
        """Nothing in memory is damaged."""
        needed = files_of(self.load_manifest(checkpoint_id))
        return [f"{name} is missing" for name in sorted(needed - self._memory.files.keys())]

    def append_history(self, entry: Mapping[str, Any]) -> None:
        """Keep the figures of a checkpoint."""
        self._memory.history.append(dict(entry))

    def read_history(self) -> list[dict[str, Any]]:
        """Give the figures, oldest first."""
        return list(self._memory.history)

    def journal(self) -> JournalStorage:
        """The journal of the attempt that has begun."""
        files = self._memory.disk.process().files
        return JournalFiles(_JOURNAL, self._number, check_newest=self._check_newest, files=files)

    def close(self) -> None:
        """Let another copy have the memory."""
        if self._memory.used_by is self:
            self._memory.used_by = None

    @property
    def _is_fenced(self) -> bool:
        return self._memory.attempts != self._number

    def _check_newest(self) -> None:
        if self._is_fenced:
            raise Fenced(f"another copy of job {self._job!r} has started: this one must stop")

    def _used(self, checkpoint_id: int) -> None:
        self._memory.highest_id = max(self._memory.highest_id, checkpoint_id)

    def _end(self, checkpoint_ids: Sequence[int]) -> None:
        """Forget the files of ended checkpoints that no complete one refers to."""
        memory = self._memory
        memory.ended.update(checkpoint_ids)
        manifests = (manifest for _, manifest in memory.completed.values())
        needed = frozenset[str]().union(*map(files_of, manifests))
        for name in memory.files.keys() - needed:
            if checkpoint_of_file(name) in memory.ended:
                del memory.files[name]


def _handle(section: Section, file: str, offset: int) -> SectionHandle:
    lengths = tuple(map(len, section.frames))
    return SectionHandle(
        section.kind,
        section.name,
        section.records,
        file,
        offset,
        lengths,
        "",
        section.key_groups,
    )
