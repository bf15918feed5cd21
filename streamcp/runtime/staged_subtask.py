"""The task of a staged sink: the records are in the snapshots until their checkpoint is complete,
and only then does the target get them. No barrier ever waits for it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from streamcp.checkpoint.snapshot import SectionKind
from streamcp.errors import StepFailed
from streamcp.operators.sinks import Transaction
from streamcp.runtime.exactly_once_subtask import ExactlyOnceSubtask, TransactionsSection
from streamcp.runtime.snapshots import Freezing
from streamcp.serialization.captured import Captured


class StagedSubtask(ExactlyOnceSubtask):
    """Stages records in memory and in the snapshots; delivers them after completion."""

    def prepare(self) -> None:
        """Nothing is staged."""
        super().prepare()
        self._open: list[Any] = []
        self._staged = 0
        self._delivering = asyncio.Event()

    def own_sections(self) -> list[Freezing]:
        """Close the open transaction and name all that are not delivered."""
        assert self._gathering is not None
        checkpoint_id = self._gathering.trigger.checkpoint_id
        for name in self._log.on_barrier(checkpoint_id):
            staged = (name, self._open)
            self._log.on_prepared(name, Captured(staged, self.context.serializer, step=self.step))
            self._open = []
        captured = [captured for _, captured in self._log.snapshot(checkpoint_id)]
        return [TransactionsSection(self.step, captured)] if captured else []

    def restore(self, kind: SectionKind, name: str, values: list[Any]) -> None:
        """Take back staged transactions; they are delivered in the background."""
        assert kind == "transactions", kind
        restored = []
        for transaction, records in values:
            self._staged += len(records)
            staged = (transaction, records)
            captured = Captured(staged, self.context.serializer, step=self.step)
            restored.append((transaction, captured))
        self._log = self._new_log(restored)

    def on_complete(self, checkpoint_id: int) -> None:
        """Deliver what the checkpoint names."""
        super().on_complete(checkpoint_id)
        self._delivering.set()

    async def run(self) -> None:
        """Stage and deliver until everything is committed."""
        async with asyncio.TaskGroup() as group:
            delivery = group.create_task(self._deliver(), name=f"deliver {self.id}")
            await self._stage()
            delivery.cancel()

    async def _stage(self) -> None:
        while True:
            if self.held:
                await self.wait("idle")
                continue
            full = self._staged >= self.context.staged_capacity and not self._barrier_is_coming
            records = self._take(data=not full)
            if records is not None:
                self._log.open_transaction()
                self._open += records
                self._staged += len(records)
                self.gate.release(self._taken_from, len(records))
                await self._slice_done()
            elif self._drained:
                if await self._end_if_done():
                    return
            elif not self.held:
                if full:
                    self._request_checkpoint()
                await self.wait("busy" if full else "idle")

    def checkpoint_begins(self) -> None:
        """A full sink goes on until the barrier comes."""
        self.wakeup.set()

    @property
    def _barrier_is_coming(self) -> bool:
        """A barrier is on its way behind the data: who took no data would wait for it forever."""
        return self._overtaking.newest > self._alignment.last

    async def _deliver(self) -> None:
        """Write, prepare and commit each completed transaction, in order."""
        while True:
            for name, captured in self._log.to_commit():
                _, records = captured.value
                captured.before_use()
                failures = await self._deliver_one(Transaction(name), records)
                self._log.on_committed(name)
                self._divert(failures)
                self.context.coordinator.committed(self.id)
                self._staged -= len(records)
                self.wakeup.set()
            self._delivering.clear()
            if not self._log.to_commit():
                await self._delivering.wait()

    async def _deliver_one(self, transaction: Transaction, records: list[Any]) -> list[Any]:
        try:
            failures = await self._write(self._sink.write, records, transaction)
            token = await self._watched(partial(self._sink.prepare, transaction))
            await self._watched(partial(self._sink.commit, transaction, token))
            return failures
        except StepFailed:
            raise
        except Exception as error:  # whatever a user's sink raises; delivered again at a restore
            doing = f"could not deliver transaction {transaction.id}"
            raise self._failed(doing, error) from error
