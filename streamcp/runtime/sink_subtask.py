"""What the tasks of all sinks have in common, and the one that is at least once.

A write in progress is pending like any other record: a barrier does not wait for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from contextvars import copy_context
from functools import partial
from typing import Any

from streamcp.channel.output_gate import BATCH_SIZE
from streamcp.checkpoint.snapshot import SectionKind
from streamcp.errors import StepFailed
from streamcp.operators.steps import SinkStep
from streamcp.runtime.calling import describe, failure_of
from streamcp.runtime.snapshots import CapturedSection, Freezing
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
        self._chance = self.context.chances(self.id)

    async def open(self, stack: AsyncExitStack) -> None:
        """Enter the sinks of this subtask that are context managers, until the job ends."""
        await super().open(stack)
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

    def note_time(self) -> None:
        """Nothing waits for event time here: it goes on at once, to whoever reads the errors."""
        assert self.time is not None
        while self.time.work_off():
            pass

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
        bare = self.chain.timed and not self._spec.timestamps
        return [value for value, _ in records] if bare else records

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
        write = self.context.strict.coroutine(self._node, write)
        while True:
            attempt += 1
            try:
                await self._watched(partial(write, *arguments))
                return []
            except asyncio.CancelledError as cancelled:
                error = failure_of(cancelled)
            except Exception as raised:  # whatever a user's sink raises
                error = raised
            if retry is None or attempt >= retry.attempts or not isinstance(error, retry.on):
                return self._failures(arguments[0], error, attempt)
            self._step_meter.retries += 1
            await asyncio.sleep(retry.delay(attempt, self._chance()))

    def _watched(self, call: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
        """A call of the sink, in a context of its own, and noticed if it holds the event loop."""
        return self.context.blocking.watched(self._node, call, copy_context())

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

    @property
    def holds_records(self) -> bool:
        """Writes in progress count."""
        return bool(self._restored) or self._writing is not None or super().holds_records

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
