"""Removing checkpoints that nobody needs any more (rule P32).

Never harms the job: what cannot be removed is remembered and tried again, and files that a kept
checkpoint refers to stay until no kept one does. The directory of a checkpoint is added here only
after its log entry is gone (or if it never had one), so nobody is told that it is complete.

After a power failure a removed log entry may come back without its files. It is older than the
newest complete checkpoint, so it is at most a fall-back that is found damaged.
"""

from __future__ import annotations

import logging
from collections.abc import Set
from pathlib import Path

from streamcp import durable_files
from streamcp.errors import StorageError
from streamcp.storage import layout

_log = logging.getLogger(__name__)


class Remover:
    """The checkpoints of one job that wait for removal."""

    def __init__(self, job_directory: Path) -> None:
        """Remove from `job_directory`."""
        self._job_directory = job_directory
        self._pending: set[int] = set()

    def add(self, checkpoint_id: int) -> None:
        """Let the next `run` remove this checkpoint."""
        self._pending.add(checkpoint_id)

    def run(self, referenced: Set[str]) -> None:
        """Remove what is pending, except the `referenced` files. Never raises."""
        for checkpoint_id in sorted(self._pending):
            try:
                if self._remove(layout.checkpoint_directory(checkpoint_id), referenced):
                    self._pending.discard(checkpoint_id)
            except StorageError as error:
                _log.warning("checkpoint %d was not removed yet: %s", checkpoint_id, error)

    def _remove(self, directory: str, referenced: Set[str]) -> bool:
        """Remove one checkpoint's files; tell whether nothing is left."""
        path = self._job_directory / directory
        names = durable_files.list_directory(path)
        needed = [name for name in names if f"{directory}/{name}" in referenced]
        for name in names:
            if name not in needed:
                durable_files.remove_file(path / name)
        if not needed:
            durable_files.remove_directory(path)
        return not needed
