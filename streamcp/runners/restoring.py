"""Choosing a checkpoint to restore, and reading it whole before anything is started (rule P40)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamcp.checkpoint.snapshot import IN_FLIGHT, Manifest, SectionHandle
from streamcp.durable_files import LOCAL_FILES, DurableFiles
from streamcp.errors import CheckpointDamaged, RestoreRefused
from streamcp.graph.physical import PhysicalPlan
from streamcp.identifiers import SubtaskId
from streamcp.runners.matching import task_shapes
from streamcp.storage.contract import CheckpointStorage, CompletedCheckpoint
from streamcp.storage.savepoints import StoredSavepoint

_logger = logging.getLogger(__name__)

Frames = dict[tuple[SubtaskId, SectionHandle], list[bytes]]


@dataclass(frozen=True, slots=True)
class Restorable:
    """A checkpoint that was read whole, before anything is started; `savepoint` is its path, if
    it was read from one. Whoever gives the subtasks their parts takes the frames out."""

    manifest: Manifest
    frames: Frames
    savepoint: str | None = None

    @property
    def names_transactions(self) -> bool:
        """Some sink may still have to commit what it wrote (rule P30)."""
        return any(handle.kind == "transactions" for handle in self._handles())

    @property
    def in_flight_records(self) -> int:
        """Records that were on their way."""
        return sum(one.records for one in self._handles() if one.kind in IN_FLIGHT)

    def _handles(self) -> Iterator[SectionHandle]:
        for acknowledgement in self.manifest.acknowledgements:
            yield from acknowledgement.sections


def choose(
    storage: CheckpointStorage,
    completed: Sequence[CompletedCheckpoint],
    plan: PhysicalPlan,
    *,
    accept_duplicates: bool,
) -> Restorable | None:
    """Read the newest complete checkpoint; None if there is none. Blocks.

    If it is damaged, the one before it is taken where that is safe: no exactly-once sink can have
    committed since, or `accept_duplicates` says that it does not matter (rule P35). Raises
    RestoreRefused otherwise, and CheckpointDamaged if none is left."""
    damaged: list[tuple[CompletedCheckpoint, CheckpointDamaged]] = []
    sinks = [name for task in task_shapes(plan) for name in task.exactly_once]
    for checkpoint in reversed(completed):
        try:
            restorable = _read(storage, checkpoint.checkpoint_id)
        except CheckpointDamaged as error:
            damaged.append((checkpoint, error))
            continue
        if damaged:
            _fall_back(restorable.manifest, damaged, sinks, accept_duplicates=accept_duplicates)
        return restorable
    if damaged:
        raise damaged[0][1]
    return None


def _fall_back(
    manifest: Manifest,
    damaged: Sequence[tuple[CompletedCheckpoint, CheckpointDamaged]],
    sinks: Sequence[str],
    *,
    accept_duplicates: bool,
) -> None:
    """Warn that an older checkpoint is restored, or refuse to."""
    newest, error = damaged[0]
    then = manifest.checkpoint_id
    names = sorted({*sinks, *(name for task in manifest.tasks for name in task.exactly_once)})
    if names and not accept_duplicates:
        raise RestoreRefused(
            f"checkpoint {newest.checkpoint_id} is damaged: {error}. The one before it, {then}, "
            f"is whole, but exactly-once output may have been committed since: what "
            f"{', '.join(map(repr, names))} wrote between checkpoint {then} and checkpoint "
            f"{newest.checkpoint_id} would be written twice. Restore the file from a backup, or "
            "accept that with accept_duplicates=True (--accept-duplicates)"
        )
    _logger.warning(
        "checkpoint %s is damaged (%s); restoring checkpoint %s instead",
        newest.checkpoint_id,
        error,
        then,
    )


def _read(storage: CheckpointStorage, checkpoint_id: int) -> Restorable:
    manifest = storage.load_manifest(checkpoint_id)
    frames = {
        (acknowledgement.subtask, handle): storage.read_section(checkpoint_id, handle)
        for acknowledgement in manifest.acknowledgements
        for handle in acknowledgement.sections
    }
    return Restorable(manifest, frames)


def read_savepoint(path: str | Path, files: DurableFiles = LOCAL_FILES) -> Restorable:
    """Read a savepoint whole. Blocks.

    Raises StorageError if there is none or it was never finished, CheckpointDamaged if it is."""
    savepoint = StoredSavepoint(Path(path), files=files)
    manifest = savepoint.load_manifest()
    frames = {
        (acknowledgement.subtask, handle): savepoint.read_section(handle)
        for acknowledgement in manifest.acknowledgements
        for handle in acknowledgement.sections
    }
    return Restorable(manifest, frames, str(path))
