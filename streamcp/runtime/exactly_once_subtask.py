"""What exactly-once sinks have in common, and the one that writes directly (see `operators.sinks`).

A write belongs to the checkpoint whose barrier came while it ran, and the acknowledgement waits
for it (rule P24).
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any

from streamcp.checkpoint.completion import TransactionLog
from streamcp.checkpoint.failure_reason import FailureReason
from streamcp.checkpoint.snapshot import SectionKind
from streamcp.errors import TransactionLost
from streamcp.operators.sinks import Transaction
from streamcp.runtime.calling import describe
from streamcp.runtime.sink_subtask import SinkSubtask
from streamcp.runtime.snapshots import CapturedSection, Freezing, SubtaskSnapshot
from streamcp.serialization.captured import Captured


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
        return TransactionLog(
            context.job, self.step, self.id.index, context.attempt, restored, fork=context.fork
        )

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
                await self._watched(partial(self._sink.commit, Transaction(name), token))
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
                prepare = partial(self._sink.prepare, Transaction(name))
                self._log.on_prepared(name, await self._watched(prepare))
        except TransactionLost as error:  # no later checkpoint could ever hold it
            raise self._failed("could not prepare a transaction", error) from error
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
