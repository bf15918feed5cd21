"""Removing checkpoints that nobody needs any more (rule P32).

Never harms the job: what cannot be removed is remembered and tried again, and files that a kept
checkpoint refers to stay until no kept one does. The directory of a checkpoint is added here only
after its log entry is gone (or if it never had one), so nobody is told that it is complete.

After a power failure a removed log entry may come back without its files. It is older than the
newest complete checkpoint, so it is at most a fall-back that is found damaged.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Set
from pathlib import Path

from streamcp.durable_files import DurableFiles
from streamcp.errors import StorageError
from streamcp.storage import layout

_log = logging.getLogger(__name__)


class Remover:
    """The checkpoints of one job that wait for removal."""

    def __init__(self, job_directory: Path, files: DurableFiles) -> None:
        """Remove from `job_directory`."""
        self._job_directory = job_directory
        self._files = files
        # The names that are known to be left in the directory, None before anybody has looked.
        self._pending: dict[int, Collection[str] | None] = {}

    def add(self, checkpoint_id: int, names: Collection[str] | None = None) -> None:
        """Let the next `run` remove this checkpoint; `names` tells what its directory holds, so
        far as that is known, and saves a look."""
        self._pending[checkpoint_id] = names

    def run(self, referenced: Set[str]) -> None:
        """Remove what is pending, except the `referenced` files. Never raises."""
        for checkpoint_id in sorted(self._pending):
            try:
                if self._remove(checkpoint_id, referenced):
                    del self._pending[checkpoint_id]
            except StorageError as error:
                _log.warning("checkpoint %d was not removed yet: %s", checkpoint_id, error)

    def _remove(self, checkpoint_id: int, referenced: Set[str]) -> bool:
        """Remove one checkpoint's files; tell whether nothing is left."""
        directory = layout.checkpoint_directory(checkpoint_id)
        path = self._job_directory / directory
        known = self._pending[checkpoint_id]
        names = self._files.list_directory(path) if known is None else known
        needed = [name for name in names if f"{directory}/{name}" in referenced]
        for name in names:
            if name not in needed:
                self._files.remove_file(path / name)
        if needed:
            self._pending[checkpoint_id] = needed
            return False
        if self._files.remove_directory(path):
            return True
        self._pending[checkpoint_id] = None  # more lies there than was known
        return known is not None and self._remove(checkpoint_id, referenced)
