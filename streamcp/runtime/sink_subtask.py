"""The tasks of sinks: at least once, transactional, and staged (see `operators.sinks`).

An at-least-once write in progress is pending like any other record. A transactional write belongs
to the checkpoint whose barrier came while it ran, and the acknowledgement waits for it (P24). A
staged sink never waits: its records are in the snapshot, the target gets them after completion.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from typing import Any

from streamcp.channel.output_gate import BATCH_SIZE
from streamcp.checkpoint.completion import TransactionLog
from streamcp.checkpoint.failure_reason import FailureReason
from streamcp.checkpoint.snapshot import SectionKind
from streamcp.errors import StepFailed
from streamcp.operators.sinks import Transaction
from streamcp.operators.steps import SinkStep
from streamcp.runtime.calling import describe
from streamcp.runtime.snapshots import CapturedSection, Freezing, SubtaskSnapshot
from streamcp.runtime.subtask import Subtask
from streamcp.serialization.captured import Captured


class SinkSubtask(Subtask):
    """What the kinds of sinks have in common: opening, taking, and the failure of a write."""

    def prepare(self) -> None:
        """Make the sink object."""
        self._node = next(iter(self.chain.meters))
        spec = self._node.spec
        assert isinstance(spec, SinkStep)
        self._spec = spec
        self._step_meter = self.chain.meters[self._node]
        self._reporter = self.chain.reporter(self._node)
        self._sink = spec.open()

    @property
    def step(self) -> str:
        """The name of the sink."""
        return self._node.label

    async def open(self, stack: AsyncExitStack) -> None:
        """Enter the sink, if it is a context manager, until the job ends."""
        if hasattr(self._sink, "__aenter__"):
            await stack.enter_async_context(self._sink)

    def kept_transactions(self) -> list[str]:
        """The restored transactions: a sink must not abort them."""
        return []

    async def abort_others(self, prefix: str, kept: Collection[str]) -> None:
        """Let the sink remove what no checkpoint names."""
        abort_others = getattr(self._sink, "abort_others", None)
        if abort_others is not None:
            await abort_others(prefix, kept)

    def _take(self, *, data: bool) -> list[Any] | None:
        """Take the next records to be written; None if there are none now."""
        gate = self.gate
        while gate.hand is None and not self.held:
            if self.take_element(data=data) is None:
                return None
        if not data or self.held:
            return None
        self._taken_from = gate.hand_channel
        records = gate.slice(BATCH_SIZE)
        self.meter.records_in += len(records)
        self._step_meter.records_in += len(records)
        return records

    @property
    def _drained(self) -> bool:
        return self.gate.hand is None and self.gate.all_ended

    async def _write(self, write: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Write, again as often as the retry allows; the time counts as busy.

        Raises StepFailed, or reports the records where the sink's errors do not fail the job."""
        clock, retry = self.context.clock, self._spec.retry
        started = clock.monotonic()
        attempt = 0
        while True:
            attempt += 1
            try:
                await write(*arguments)
                break
            except Exception as error:  # whatever a user's sink raises
                if retry is None or attempt >= retry.attempts or not isinstance(error, retry.on):
                    self._report(arguments[0], error, attempt)
                    break
            self._step_meter.retries += 1
            await asyncio.sleep(retry.delay(attempt))
        self.meter.busy += clock.monotonic() - started
        self.context.end_of_slice(clock.monotonic())

    def _report(self, records: list[Any], error: Exception, attempts: int) -> None:
        for record in records:
            self._reporter.report(record, error, attempts)

    def _failed(self, doing: str, error: Exception) -> StepFailed:
        return StepFailed(f"sink {self.step!r} ({self._node.place}) {doing}: {describe(error)}")


class AtLeastOnceSubtask(SinkSubtask):
    """Calls `write(records)`."""

    def prepare(self) -> None:
        """Nothing is being written."""
        super().prepare()
        self._writing: Captured | None = None
        self._restored: list[list[Any]] = []

    def own_sections(self) -> list[Freezing]:
        """The write in progress, and restored ones that still wait."""
        captured = [
            Captured(one, self.context.serializer, step=self.step) for one in self._restored
        ]
        if self._writing is not None:
            captured.insert(0, self._writing)
        records = sum(len(one.value) for one in captured)
        return [CapturedSection("pending", self.step, captured, records)] if captured else []

    def restore(self, kind: SectionKind, name: str, values: list[Any]) -> None:
        """Take back writes that were in progress."""
        assert kind == "pending", kind
        self._restored = list(values)

    async def run(self) -> None:
        """Write until all inputs have ended."""
        while True:
            if self.held:
                await self.wait("idle")
                continue
            if self._restored:
                await self._write_pending(self._restored.pop(0))
                continue
            records = self._take(data=True)
            if records is not None:
                await self._write_pending(records)
                self.gate.release(self._taken_from, len(records))
                await self.turns.end_if_over(self.context.clock.monotonic())
            elif self._drained:
                break
            elif not self.held:
                await self.wait("idle")
        self.finish()

    async def _write_pending(self, records: list[Any]) -> None:
        serializer = self.context.serializer
        self._writing = Captured(records, serializer, step=self.step, fixed_list=True)
        if self.context.keep_records:
            self._writing.before_use()
        await self._write(self._sink.write, records)
        self._writing = None


class TransactionsSection(CapturedSection):
    """The transactions of a sink that are not known to be committed, one frame each."""

    def __init__(self, step: str, captured: list[Captured]) -> None:
        super().__init__("transactions", step, captured, 0)


class ExactlyOnceSubtask(SinkSubtask):
    """What transactional and staged sinks have in common: the bookkeeping of transactions."""

    def prepare(self) -> None:
        """Begin with an empty log."""
        super().prepare()
        self._log = self._new_log([])

    def _new_log(self, restored: list[tuple[str, Any]]) -> TransactionLog:
        context = self.context
        return TransactionLog(context.job, self.step, self.id.index, context.attempt, restored)

    def kept_transactions(self) -> list[str]:
        """Those that the restored checkpoint names."""
        return [name for name, _ in self._log.to_commit()]

    @property
    def commits_outstanding(self) -> bool:
        """Something is to be committed now."""
        return bool(self._log.to_commit())

    def on_complete(self, checkpoint_id: int) -> None:
        """What the checkpoint names may be committed."""
        self._log.on_complete(checkpoint_id)
        self.wakeup.set()

    async def _end_if_done(self) -> bool:
        """Nothing comes any more: finish if all is committed, else wait for checkpoints."""
        if not self._log.has_uncommitted:
            self.finish()
            return True
        self.end()
        await self.wait("idle")
        return False


class TransactionalSubtask(ExactlyOnceSubtask):
    """Writes directly: `write(records, transaction)`, `prepare` at barriers, `commit` after."""

    def prepare(self) -> None:
        """No barrier waits for a preparation."""
        super().prepare()
        self._deferred: list[tuple[SubtaskSnapshot, tuple[str, ...]]] = []
        self._to_prepare: tuple[str, ...] = ()

    def own_sections(self) -> list[Freezing]:
        """Close the open transaction; what it names is known when it is prepared."""
        assert self._gathering is not None
        self._to_prepare = self._log.on_barrier(self._gathering.trigger.checkpoint_id)
        return []

    def restore(self, kind: SectionKind, name: str, values: list[Any]) -> None:
        """Take back transactions; they are committed before anything else."""
        assert kind == "transactions", kind
        self._log = self._new_log([tuple(one) for one in values])

    def _acknowledge(self) -> None:
        """The write in progress decides first; then the transaction is prepared (P24)."""
        if self.finished:
            super()._acknowledge()  # all is committed, and nobody runs who could prepare
            return
        gathering = self._gathering
        assert gathering is not None
        self._gathering = None
        self._deferred.append((self._finished_snapshot(gathering), self._to_prepare))
        self.wakeup.set()

    async def run(self) -> None:
        """Commit, prepare and write, in this order, until everything is committed."""
        while True:
            await self._commit()
            if self._deferred:
                await self._prepare_deferred()
                continue
            if self.held:
                await self.wait("idle")
                continue
            records = self._take(data=True)
            if records is not None:
                transaction = Transaction(self._log.open_transaction())
                await self._write(self._sink.write, records, transaction)
                self.gate.release(self._taken_from, len(records))
                await self.turns.end_if_over(self.context.clock.monotonic())
            elif self._deferred or self._log.to_commit():
                continue
            elif self._drained:
                if await self._end_if_done():
                    return
            elif not self.held:
                await self.wait("idle")

    async def _commit(self) -> None:
        for name, token in self._log.to_commit():
            try:
                await self._sink.commit(Transaction(name), token)
            except Exception as error:  # whatever a user's sink raises; tried again at a restore
                raise self._failed(f"could not commit transaction {name}", error) from error
            self._log.on_committed(name)
            self.context.coordinator.committed(self.id)

    async def _prepare_deferred(self) -> None:
        snapshot, names = self._deferred.pop(0)
        try:
            for name in names:
                self._log.on_prepared(name, await self._sink.prepare(Transaction(name)))
        except Exception as error:  # whatever a user's sink raises
            # The transaction stays open to the next checkpoint, which prepares it again.
            self.context.coordinator.decline(
                self.id,
                snapshot.checkpoint_id,
                FailureReason.DECLINED,
                f"sink {self.step!r} could not prepare a transaction: {describe(error)}",
            )
            return
        captured = [
            Captured(named, self.context.serializer, step=self.step)
            for named in self._log.snapshot(snapshot.checkpoint_id)
        ]
        snapshot.sections.append(TransactionsSection(self.step, captured))
        self._snapshots.add(snapshot)


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
            full = self._staged >= self.context.staged_capacity
            records = self._take(data=not full)
            if records is not None:
                self._log.open_transaction()
                self._open += records
                self._staged += len(records)
                self.gate.release(self._taken_from, len(records))
                await self.turns.end_if_over(self.context.clock.monotonic())
            elif self._drained:
                if await self._end_if_done():
                    return
            elif not self.held:
                if full and self._open:
                    self.context.coordinator.request_checkpoint()
                await self.wait("busy" if full else "idle")

    async def _deliver(self) -> None:
        """Write, prepare and commit each completed transaction, in order."""
        while True:
            for name, captured in self._log.to_commit():
                _, records = captured.value
                captured.before_use()
                await self._deliver_one(Transaction(name), records)
                self._log.on_committed(name)
                self.context.coordinator.committed(self.id)
                self._staged -= len(records)
                self.wakeup.set()
            self._delivering.clear()
            if not self._log.to_commit():
                await self._delivering.wait()

    async def _deliver_one(self, transaction: Transaction, records: list[Any]) -> None:
        try:
            await self._write(self._sink.write, records, transaction)
            token = await self._sink.prepare(transaction)
            await self._sink.commit(transaction, token)
        except StepFailed:
            raise
        except Exception as error:  # whatever a user's sink raises; delivered again at a restore
            doing = f"could not deliver transaction {transaction.id}"
            raise self._failed(doing, error) from error
