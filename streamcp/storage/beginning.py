"""How an attempt begins: its entry in the completion log, and when a savepoint may be its origin.

A job that begins from a savepoint begins anew: what it completed before no longer counts, and the
names of its transactions hold another *fork*, so that neither it nor the job that took the
savepoint ever commits or aborts what the other one writes (rule P30). Decides only; who appends
and who reads is told elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamcp.errors import RestoreRefused, StorageError
from streamcp.storage.contract import CompletedCheckpoint, Origin
from streamcp.storage.log import LogView, reserved_through
from streamcp.storage.reading import StoredJob


@dataclass(frozen=True, slots=True)
class FirstEntry:
    """The entry that begins an attempt, and its place in the log."""

    number: int
    content: Mapping[str, Any]


def first_entry(view: LogView, origin: Origin | None) -> FirstEntry:
    """Make the entry of the next attempt: its number and ids are above all that the log and the
    origin know, its fork is the job's newest or that of the origin."""
    attempt, reserved, fork = view.attempt, view.reserved, view.forks[-1] if view.forks else ""
    content: dict[str, Any] = {}
    if origin is not None:
        attempt = max(attempt, origin.manifest.attempt)
        reserved = max(reserved, reserved_through(origin.manifest.checkpoint_id))
        fork = origin.fork
        content["begun_from"] = origin.path
    content |= {"attempt": attempt + 1, "checkpoint_id": reserved + 1, "fork": fork}
    return FirstEntry(view.top + 1, content)


def check_replaceable(stored: StoredJob, view: LogView, origin: Origin) -> None:
    """Raise RestoreRefused if the job would lose checkpoints of its own by this beginning."""
    own = view.since_begun
    if not own or origin.replaces or _is_copy(stored, view, own[-1], origin):
        return
    raise RestoreRefused(
        f"job {stored.name!r} has checkpoints of its own in {stored.directory}, the newest is "
        f"{own[-1].checkpoint_id}: without restore= (--from) it continues from there. To go back "
        f"to {origin.path} all the same, add fresh=True (--fresh): what it wrote since is written "
        "again. Or let it begin in another directory of checkpoints"
    )


def _is_copy(stored: StoredJob, view: LogView, own: CompletedCheckpoint, origin: Origin) -> bool:
    """Tell whether the savepoint is a copy of a checkpoint of this job. If that one is damaged,
    its numbers must do: this is what a copy is good for."""
    manifest = origin.manifest
    if (own.checkpoint_id, own.attempt) != (manifest.checkpoint_id, manifest.attempt):
        return False
    try:
        original = stored.load_manifest(own.checkpoint_id)
    except StorageError:
        return manifest.fork in view.forks
    return (original.fork, original.triggered_at) == (manifest.fork, manifest.triggered_at)
