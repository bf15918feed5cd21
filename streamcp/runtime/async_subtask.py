"""The task of a coroutine step without state: a bounded pool of calls over a pending list.

This task admits records and emits results; workers make the calls. A barrier passes both: what is
pending is in the snapshot, and no call is waited for (rule P20).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import chain
from typing import Any

from streamcp.checkpoint.snapshot import SectionKind
from streamcp.operators.steps import Call, FilterStep, FlatMapStep, ForEachStep
from streamcp.runtime.call_pool import CallPool
from streamcp.runtime.calling import expanded
from streamcp.runtime.meters import Waiting
from streamcp.runtime.pending import CapturedPending, Failed, PendingList, Ticket
from streamcp.runtime.snapshots import CapturedSection, Freezing
from streamcp.runtime.subtask import Subtask
from streamcp.serialization.captured import Captured

# Records, results and waiters together, per call that may run at once: enough that a worker
# always finds a next record while results wait for their turn (rule P21).
PENDING_PER_CALL = 4


class AsyncSubtask(Subtask):
    """Runs `map`, `filter`, `flat_map` and `for_each` with a coroutine function."""

    def prepare(self) -> None:
        """Wire the step and what is fused behind it."""
        self._node = next(iter(self.chain.meters))
        spec = self._node.spec
        assert isinstance(spec, Call)
        assert spec.calls is not None
        options = spec.calls
        self._step_meter = self.chain.meters[self._node]
        self._reporter = self.chain.reporter(self._node)
        self._emit = self.chain.push_behind(self._node)
        self._fn = self.chain.function(spec)
        if isinstance(spec, FlatMapStep):
            self._fn = gathered(self._fn)
        self._results_of = _RESULTS.get(type(spec), _mapped)
        self._bound = PENDING_PER_CALL * options.concurrency
        self._pending = PendingList(
            ordered=options.ordered and not isinstance(spec, ForEachStep),
            serializer=self.context.serializer,
            step=self._node.label,
            keep=self.context.keep_records or options.retry is not None,
        )
        keep = self._filtered if isinstance(spec, FilterStep) else self._pending.finish
        self._finish: Callable[[Ticket, Any], None] = keep
        self.start = self._pending.start  # taking the next call is nothing but this
        self._captured: Captured | None = None
        # The task has been woken for results since it last looked: once is enough.
        self._told = False
        self._pool = CallPool(self, options, self.context.clock, self._step_meter, self._node.label)

    # ---- what the pool asks

    @property
    def waiting(self) -> int:
        """Calls that could be started."""
        return self._pending.waiting

    def call(self, ticket: Ticket, attempt: int) -> Awaitable[Any]:
        """Begin an attempt."""
        coroutine: Awaitable[Any] = self._fn(self._pending.record(ticket, attempt))
        return coroutine

    def succeeded(self, ticket: Ticket, result: Any) -> None:
        """Keep a result until its turn comes and the outputs have room."""
        self._finish(ticket, result)
        if not self._told:
            self._told = True
            self.wakeup.set()

    def _filtered(self, ticket: Ticket, result: Any) -> None:
        """Keep the record beside its result, which says whether it goes on."""
        try:
            kept = bool(result)
        except Exception as error:  # whatever a user's __bool__ raises
            self.failed(ticket, error, 1)
        else:
            self._pending.finish(ticket, (kept, self._pending.record(ticket, 2)))

    def failed(self, ticket: Ticket, error: Exception, attempts: int) -> None:
        """Fail the job, or keep the failure until its turn comes."""
        record = self._pending.record(ticket, 2)
        failure = self._reporter.failure(record, error, attempts)
        self._pending.finish(ticket, Failed(failure))
        self.wakeup.set()

    # ---- snapshot

    def own_sections(self) -> list[Freezing]:
        """The pending list, beside the states of fused keyed steps."""
        sections: list[Freezing] = list(self.chain.snapshot())
        entries = self._pending.entries()
        if entries:
            step = self._node.label
            self._captured = CapturedPending(entries, self.context.serializer, step=step)
            sections.append(CapturedSection("pending", step, [self._captured], len(entries)))
        return sections

    def restore(self, kind: SectionKind, name: str, values: list[Any]) -> None:
        """Take back the pending list, or the state of a fused step."""
        if kind == "pending":
            for entries in values:
                self._pending.restore(entries)
        else:
            super().restore(kind, name, values)

    # ---- work

    async def run(self) -> None:
        """Admit, call and emit until all inputs have ended and nothing is pending."""
        async with asyncio.TaskGroup() as group:
            self._pool.begin(group)
            try:
                await self._run()
            finally:
                self._pool.close()
        self.finish()

    async def _run(self) -> None:
        clock = self.context.clock
        while True:
            if self.held:
                await self.wait("idle")
                continue
            while not self.held and self.output.writable and self.chain.fire_timers():
                await self.turns.end_if_over(clock.monotonic())
            self._told = False
            if self.refill():
                await self.turns.end_if_over(clock.monotonic())
            elif self._drained and not self.timers_are_due:
                return
            elif not self.held:
                await self.wait(self._waiting_for(), timeout=self.until_timer())

    def release(self) -> None:
        """A stop has failed: calls are started again."""
        super().release()
        self._pool.paused = False
        self._pool.wake()

    def hold(self) -> None:
        """A stop has cut here: no further call is started."""
        super().hold()
        self._pool.paused = True

    def refill(self) -> bool:
        """Emit results and admit records, as far as there is room; False if nothing was done."""
        if self.held:
            return False
        emitted = self._emit_results()
        return self._admit() or emitted

    @property
    def _drained(self) -> bool:
        return self.gate.hand is None and self.gate.all_ended and not self._pending.count

    def _waiting_for(self) -> Waiting:
        if not self.output.writable:
            return "backpressured"
        return "busy" if self._pending.count >= self._bound else "idle"

    def _admit(self) -> bool:
        """Move records from the input to the pending list, as many as it may hold."""
        gate = self.gate
        room = self._bound - self._pending.count
        while gate.hand is None and not self.held:
            if self.take_element(data=room > 0) is None:
                return False
        if room <= 0 or self.held:
            return False
        channel = gate.hand_channel
        records = gate.slice(room)
        self._pending.admit(records)
        gate.release(channel, len(records))
        self.meter.records_in += len(records)
        self._step_meter.records_in += len(records)
        self._pool.wake()
        return True

    def _emit_results(self) -> bool:
        """Emit results whose turn has come, as many as there is room for."""
        if not self.output.writable:
            return False
        failures = self._pending.failures
        results = self._pending.take_results(min(self.slices.records, self.output.room))
        if not results:
            return False
        if self._captured is not None:
            # They leave the captured list: whoever gets them may change them.
            self._captured.before_use()
            self._captured = None
        started = self.context.clock.monotonic()
        values = self._results_of(self._divert(results) if failures else results)
        self._step_meter.records_out += len(values)
        if values:
            self._emit(values)
        self.slice_done(len(results), started)
        return True

    def _divert(self, results: list[Any]) -> list[Any]:
        """Divert the failures, and return the others."""
        failures = [one.failure for one in results if type(one) is Failed]
        diverted = [failure for failure in failures if failure is not None]
        if diverted:
            self._reporter.divert(diverted)
        return [result for result in results if type(result) is not Failed]


def _mapped(results: list[Any]) -> list[Any]:
    return results


def _filtered(results: list[Any]) -> list[Any]:
    return [record for kept, record in results if kept]


def _flattened(results: list[Any]) -> list[Any]:
    return list(chain.from_iterable(results))


def _nothing(results: list[Any]) -> list[Any]:
    return []


_RESULTS: dict[type, Callable[[list[Any]], list[Any]]] = {
    FilterStep: _filtered,
    FlatMapStep: _flattened,
    ForEachStep: _nothing,
}


def gathered(fn: Callable[..., Any]) -> Callable[..., Awaitable[list[Any]]]:
    """Make one coroutine function of one that returns an iterable, or is an async generator."""

    async def call(*arguments: Any) -> list[Any]:
        result = fn(*arguments)
        if hasattr(result, "__aiter__"):
            return [value async for value in result]
        return list(expanded(await result))

    return call
