"""Keeping the checkpoints that incremental ones under way may build on (rules P16, P32 and P39).

A snapshot of checkpoint n refers to files of the newest checkpoint that is complete when it is
taken: of the one that was so at the trigger of n, or of one that has completed since. Those must
outlive retention until n has ended. With one checkpoint at a time the newest one is kept anyway;
with several, n may build on one that is no longer the newest when n completes.
"""

from __future__ import annotations

from streamcp.storage.contract import CheckpointStorage


class PinnedBases:
    """The checkpoints that are pinned for those under way, in one attempt."""

    def __init__(self, storage: CheckpointStorage | None) -> None:
        """Pin in `storage`; without one (no checkpoint is incremental) nothing need be pinned."""
        self._storage = storage
        self._newest: int | None = None
        self._pinned: dict[int, list[int]] = {}

    def triggered(self, checkpoint_id: int) -> None:
        """A checkpoint begins."""
        self._pinned[checkpoint_id] = []
        if self._newest is not None:
            self._pin(checkpoint_id, self._newest)

    def completed(self, checkpoint_id: int) -> None:
        """A checkpoint is complete, and no subtask knows it yet; before `ended` of it."""
        self._newest = checkpoint_id
        for under_way in self._pinned:
            if under_way != checkpoint_id:
                self._pin(under_way, checkpoint_id)

    def ended(self, checkpoint_id: int) -> None:
        """A checkpoint has completed or failed; before retention."""
        bases = self._pinned.pop(checkpoint_id, ())
        if self._storage is not None:
            for base in bases:
                self._storage.unpin(base)

    def close(self) -> None:
        """The attempt is over, and every checkpoint with it."""
        for checkpoint_id in list(self._pinned):
            self.ended(checkpoint_id)

    def _pin(self, under_way: int, base: int) -> None:
        if self._storage is not None:
            self._storage.pin(base)
            self._pinned[under_way].append(base)
