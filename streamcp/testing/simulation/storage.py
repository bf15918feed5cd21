"""The real checkpoint storage of a simulated life: its calls are counted, traced, and may fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from streamcp.checkpoint.journal import Answer, JournalHead
from streamcp.checkpoint.snapshot import Manifest, Section, SectionHandle
from streamcp.identifiers import SubtaskId
from streamcp.storage.contract import (
    Attempt,
    CheckpointStorage,
    Classes,
    JournalStorage,
    Origin,
    StoredJournal,
)
from streamcp.testing.simulation.answers import Asked
from streamcp.testing.simulation.world import Life


class WatchedStorage:
    """Passes every call on to `storage`; implements `CheckpointStorage`.

    Calls that promise not to raise never fail. `on_manifest` sees each manifest before it is
    written."""

    def __init__(
        self, life: Life, storage: CheckpointStorage, on_manifest: Callable[[Manifest], None]
    ) -> None:
        self._life = life
        self._storage = storage
        self._on_manifest = on_manifest

    def start_attempt(self, *, take_over: bool = False, origin: Origin | None = None) -> Attempt:
        """As the contract says; may fail."""
        self._life.world.answers.owners[self._life.branch.directory] = self
        return self._life.call_storage(
            "start an attempt",
            lambda: self._storage.start_attempt(take_over=take_over, origin=origin),
        )

    def write_data(
        self, checkpoint_id: int, sections: Sequence[tuple[SubtaskId, Section]]
    ) -> list[SectionHandle]:
        """As the contract says; may fail."""
        return self._life.call_storage(
            f"write {len(sections)} sections of checkpoint {checkpoint_id}",
            lambda: self._storage.write_data(checkpoint_id, sections),
        )

    def defer_data(
        self, checkpoint_id: int, sections: Sequence[tuple[SubtaskId, Section]]
    ) -> list[SectionHandle] | None:
        """As the contract says."""
        handles = self._storage.defer_data(checkpoint_id, sections)
        if handles is not None:
            self._life.say("storage", f"{len(sections)} sections of {checkpoint_id} wait")
        return handles

    def complete(self, manifest: Manifest) -> None:
        """As the contract says; may fail."""
        self._on_manifest(manifest)
        self._life.call_storage(
            f"complete checkpoint {manifest.checkpoint_id}",
            lambda: self._storage.complete(manifest),
            *(("stop",) if manifest.statistics.get("kind") == "stop" else ()),
        )

    def write_savepoint(self, checkpoint_id: int, target: Path) -> Path:
        """As the contract says; may fail."""
        return self._life.call_storage(
            f"write savepoint {checkpoint_id}",
            lambda: self._storage.write_savepoint(checkpoint_id, target),
            "savepoint",
        )

    def pin(self, checkpoint_id: int) -> None:
        """As the contract says."""
        self._storage.pin(checkpoint_id)

    def unpin(self, checkpoint_id: int) -> None:
        """As the contract says."""
        self._storage.unpin(checkpoint_id)

    def discard(self, checkpoint_id: int) -> None:
        """As the contract says."""
        self._life.say("storage", f"discard checkpoint {checkpoint_id}")
        self._storage.discard(checkpoint_id)

    def retain(self, count: int) -> list[int]:
        """As the contract says."""
        removed = self._storage.retain(count)
        self._life.say("storage", f"retain {count}: removed {removed}")
        return removed

    def load_manifest(self, checkpoint_id: int) -> Manifest:
        """As the contract says; may fail."""
        return self._life.call_storage(
            f"load the manifest of {checkpoint_id}",
            lambda: self._storage.load_manifest(checkpoint_id),
        )

    def read_section(self, checkpoint_id: int, handle: SectionHandle) -> list[bytes]:
        """As the contract says."""
        return self._storage.read_section(checkpoint_id, handle)

    def verify(self, checkpoint_id: int) -> list[str]:
        """As the contract says."""
        return self._storage.verify(checkpoint_id)

    def append_history(self, entry: Mapping[str, Any]) -> None:
        """As the contract says."""
        self._storage.append_history(entry)

    def read_history(self) -> list[dict[str, Any]]:
        """As the contract says."""
        return self._storage.read_history()

    def journal(self) -> JournalStorage:
        """As the contract says."""
        self._life.journal = WatchedJournal(self._life, self._storage.journal(), self)
        return self._life.journal

    def close(self) -> None:
        """As the contract says."""
        self._storage.close()


class WatchedJournal:
    """Passes every call on to `journal`; implements `JournalStorage`.

    `known` are the answers that were durable when its attempt began. Those of a copy that has lost
    its job to another `owner` do not count."""

    def __init__(self, life: Life, journal: JournalStorage, owner: object) -> None:
        self.known: frozenset[Asked] = frozenset()
        self._life = life
        self._journal = journal
        self._owner = owner
        self._own: set[Asked] = set()

    def read(self) -> StoredJournal | None:
        """As the contract says; may fail."""
        return self._life.call_storage("read the journal", self._journal.read)

    def begin(self, head: JournalHead, classes: Classes, carried: Sequence[Answer]) -> None:
        """As the contract says; may fail."""
        self._own = self._life.world.answers.of(self._life.branch.directory, head)
        self.known = frozenset(self._own)
        self._life.found_answers += len(carried)
        self._life.call_storage(
            f"carry {len(carried)} answers over",
            lambda: self._journal.begin(head, classes, carried),
        )

    def append(self, segment: int, classes: Classes, answers: Sequence[Answer]) -> None:
        """As the contract says; may fail."""
        self._life.call_storage(
            f"append {len(answers)} answers",
            lambda: self._journal.append(segment, classes, answers),
        )
        answers_known = self._life.world.answers
        owner = answers_known.owners[self._life.branch.directory]
        if not answers_known.lost and owner is self._owner:
            self._own.update((one.step, one.content, one.state) for one in answers)

    def remove(self, segments: Sequence[int]) -> None:
        """As the contract says."""
        self._journal.remove(segments)

    def close(self) -> None:
        """As the contract says."""
        self._journal.close()
