"""The tasks of sinks: at least once, transactional, and staged (see `operators.sinks`).

An at-least-once write in progress is pending like any other record. A transactional write belongs
to the checkpoint whose barrier came while it ran, and the acknowledgement waits for it (P24). A
staged sink never waits: its records are in the snapshot, the target gets them after completion.
"""

from __future__ import annotations

import asyncio
from collections import deque
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
from streamcp.runtime.calling import describe, failure_of
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
        self.step = self._node.label
        self._sink = spec.open()

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

    async def _write(self, write: Callable[..., Awaitable[None]], *arguments: Any) -> list[Any]:
        """Write, again as often as the retry allows.

        Return the failures to be diverted: by the caller, in one step with what it notes of the
        write, so that a checkpoint holds either both or neither. Raises StepFailed where the
        sink's errors fail the job."""
        retry = self._spec.retry
        attempt = 0
        while True:
            attempt += 1
            try:
                await write(*arguments)
                return []
            except asyncio.CancelledError as cancelled:
                error = failure_of(cancelled)
            except Exception as raised:  # whatever a user's sink raises
                error = raised
            if retry is None or attempt >= retry.attempts or not isinstance(error, retry.on):
                return self._failures(arguments[0], error, attempt)
            self._step_meter.retries += 1
            await asyncio.sleep(retry.delay(attempt))

    async def _write_busy(
        self, write: Callable[..., Awaitable[None]], *arguments: Any
    ) -> list[Any]:
        """As `_write`; this subtask does nothing else meanwhile, so the time counts as busy."""
        self.meter.begin("busy", self.context.clock.monotonic())
        failures = await self._write(write, *arguments)
        self.meter.end(self.context.clock.monotonic())
        return failures

    def _failures(self, records: list[Any], error: Exception, attempts: int) -> list[Any]:
        found = [self._reporter.failure(record, error, attempts) for record in records]
        return [failure for failure in found if failure is not None]

    async def _slice_done(self) -> None:
        """Between two writes the coordinator gets its chance, and then other tasks."""
        now = self.context.clock.monotonic()
        self.context.end_of_slice(now)
        await self.turns.end_if_over(now)

    def _divert(self, failures: list[Any]) -> None:
        if failures:
            self._reporter.divert(failures)

    def _failed(self, doing: str, error: Exception) -> StepFailed:
        return StepFailed(f"sink {self.step!r} ({self._node.place}) {doing}: {describe(error)}")


class AtLeastOnceSubtask(SinkSubtask):
    """Calls `write(records)`."""

    def prepare(self) -> None:
        """Nothing is being written."""
        super().prepare()
        self._writing: Captured | None = None
        self._restored: deque[Captured] = deque()

    def own_sections(self) -> list[Freezing]:
        """The write in progress, and restored ones that still wait."""
        captured = [*self._restored]
        if self._writing is not None:
            captured.insert(0, self._writing)
        records = sum(len(one.value) for one in captured)
        return [CapturedSection("pending", self.step, captured, records)] if captured else []

    def restore(self, kind: SectionKind, name: str, values: list[Any]) -> None:
        """Take back writes that were in progress."""
        assert kind == "pending", kind
        self._restored.extend(map(self._capture, values))

    async def run(self) -> None:
        """Write until all inputs have ended."""
        while True:
            if self.held:
                await self.wait("idle")
                continue
            if self._restored:
                restored = self._restored.popleft()
                restored.before_use()
                await self._write_pending(restored.value)
                continue
            records = self._take(data=True)
            if records is not None:
                await self._write_pending(records)
                self.gate.release(self._taken_from, len(records))
                await self._slice_done()
            elif self._drained:
                break
            elif not self.held:
                await self.wait("idle")
        self.finish()

    def _capture(self, records: list[Any]) -> Captured:
        return Captured(records, self.context.serializer, step=self.step, fixed_list=True)

    async def _write_pending(self, records: list[Any]) -> None:
        if self.context.keep_records:
            self._writing = self._capture(records)
            self._writing.before_use()
        failures = await self._write_busy(self._sink.write, records)
        self._writing = None
        self._divert(failures)


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
        self._requested = False  # a checkpoint after which something is committed

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
        self._requested = False
        self.wakeup.set()

    def cancel(self, checkpoint_id: int) -> None:
        """A checkpoint has ended without completing: one that is waited for is asked for again."""
        super().cancel(checkpoint_id)
        self._requested = False
        self.wakeup.set()

    def _request_checkpoint(self) -> None:
        """Ask for a checkpoint, unless one is on its way or there is something to commit now."""
        if not self._requested and not self._log.to_commit():
            self._requested = True
            self.context.coordinator.request_checkpoint()

    async def _end_if_done(self) -> bool:
        """Nothing comes any more: finish if all is committed, else wait for checkpoints."""
        if not self._log.has_uncommitted:
            self.finish()
            return True
        if self.output.channels:
            # Whoever reads the failures ends only after this sink, and the final checkpoint waits
            # for both: what is written is committed before it.
            self._request_checkpoint()
        else:
            self.end()
        await self.wait("idle")
        return False


class TransactionalSubtask(ExactlyOnceSubtask):
    """Writes directly: `write(records, transaction)`, `prepare` at barriers, `commit` after."""

    def prepare(self) -> None:
        """No barrier waits for a preparation."""
        super().prepare()
        self._deferred: deque[SubtaskSnapshot] = deque()

    def own_sections(self) -> list[Freezing]:
        """Close the open transaction; what it names is known when it is prepared."""
        assert self._gathering is not None
        self._log.on_barrier(self._gathering.trigger.checkpoint_id)
        return []

    def restore(self, kind: SectionKind, name: str, values: list[Any]) -> None:
        """Take back transactions, which are committed before anything else, and failures, which
        are diverted again."""
        if kind == "transactions":
            self._log = self._new_log([tuple(one) for one in values])
        else:
            assert kind == "pending", kind
            for failures in values:
                self._reporter.divert(failures)

    def _acknowledge(self) -> None:
        """The write in progress decides first; then the transaction is prepared (P24)."""
        if self.finished:
            super()._acknowledge()  # all is committed, and nobody runs who could prepare
            return
        gathering = self._gathering
        assert gathering is not None
        self._gathering = None
        self._deferred.append(self._finished_snapshot(gathering))
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
                failures = await self._write_busy(self._sink.write, records, transaction)
                self._keep_failures(failures)
                self._divert(failures)
                self.gate.release(self._taken_from, len(records))
                await self._slice_done()
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

    def _keep_failures(self, failures: list[Any]) -> None:
        """The write belongs to the checkpoints whose barriers came while it ran; its failures,
        which follow these barriers, are kept beside it (P24)."""
        if failures:
            for snapshot in self._deferred:
                captured = Captured(failures, self.context.serializer, step=self.step)
                section = CapturedSection("pending", self.step, [captured], len(failures))
                snapshot.sections.append(section)

    async def _prepare_deferred(self) -> None:
        snapshot = self._deferred.popleft()
        try:
            for name in self._log.to_prepare(snapshot.checkpoint_id):
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
        trigger = self._overtaking.trigger
        return trigger is not None and trigger.checkpoint_id > self._alignment.last

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
            token = await self._sink.prepare(transaction)
            await self._sink.commit(transaction, token)
            return failures
        except StepFailed:
            raise
        except Exception as error:  # whatever a user's sink raises; delivered again at a restore
            doing = f"could not deliver transaction {transaction.id}"
            raise self._failed(doing, error) from error
