"""Taking savepoints of a running job, and beginning from one.

A savepoint is a copy of a checkpoint that was taken for it and is complete like any other: in the
job's log, with its sinks told (decision 0014). What is copied is pinned until it is written.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from pathlib import Path

from streamcp.checkpoint.statistics import CheckpointStatistics
from streamcp.clock import Clock
from streamcp.coordinator.coordinator import Coordinator
from streamcp.coordinator.requests import Request, Wish
from streamcp.errors import CheckpointFailed, StorageError
from streamcp.observability import events
from streamcp.storage.contract import CheckpointStorage
from streamcp.storage.in_thread import in_thread


def new_fork() -> str:
    """Make a name that no other job's transactions have (see `TransactionId`)."""
    return secrets.token_hex(4)


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A savepoint that was taken: its directory, and the figures of the checkpoint it holds."""

    path: Path
    statistics: CheckpointStatistics


class SavepointWriter:
    """Writes the savepoints of one run of a job."""

    def __init__(self, storage: CheckpointStorage, clock: Clock, log: events.EventLog) -> None:
        self._storage = storage
        self._clock = clock
        self._log = log

    async def take(self, coordinator: Coordinator, target: Path, wish: Wish) -> Savepoint:
        """Ask for a checkpoint, wait until it is complete, and copy it.

        If the wish is to stop, the coordinator is told whether that worked, also when this is
        cancelled. Raises CheckpointFailed."""
        request = coordinator.request(wish)
        try:
            statistics = await asyncio.shield(request)
        except asyncio.CancelledError:
            request.add_done_callback(lambda done: self._unwanted(done, coordinator, wish))
            raise
        path = None
        try:
            path = await self._write(statistics.checkpoint_id, target)
        finally:
            self._storage.unpin(statistics.checkpoint_id)
            if wish.stop:
                coordinator.savepoint_written(succeeded=path is not None)
        return Savepoint(path, statistics)

    def _unwanted(self, request: Request, coordinator: Coordinator, wish: Wish) -> None:
        """Nobody waits for the copy any more."""
        if request.cancelled() or request.exception() is not None:
            return
        self._storage.unpin(request.result().checkpoint_id)
        if wish.stop:
            coordinator.savepoint_written(succeeded=False)

    async def _write(self, checkpoint_id: int, target: Path) -> Path:
        try:
            path = await in_thread(self._storage.write_savepoint, checkpoint_id, target)
        except StorageError as error:
            raise CheckpointFailed(
                f"checkpoint {checkpoint_id} is complete, but no savepoint could be made of it: "
                f"{error}"
            ) from error
        now = self._clock.wall_ms()
        self._log.record(events.SavepointWritten(now, checkpoint_id, str(path)))
        return path
