"""The task of a coroutine step without state: `map`, `filter`, `flat_map` and `for_each`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from itertools import chain
from typing import Any

from streamcp.checkpoint.snapshot import SectionKind
from streamcp.elements import Mark
from streamcp.operators.steps import Call, FilterStep, FlatMapStep, ForEachStep
from streamcp.runtime.pending import Failed, PendingList, Ticket
from streamcp.runtime.pooled_subtask import PooledSubtask, gathered
from streamcp.runtime.snapshots import Freezing


class AsyncSubtask(PooledSubtask):
    """Runs `map`, `filter`, `flat_map` and `for_each` with a coroutine function."""

    def prepare(self) -> None:
        """Wire the step and what is fused behind it."""
        super().prepare()
        spec, options = self._node.spec, self._options
        assert isinstance(spec, Call)
        self._fn = self.chain.bare_function(self._node)
        if self._executing is not None:
            self._fn = self._executing.coroutine_of(self._fn)
        if isinstance(spec, FlatMapStep):
            self._fn = gathered(self._fn)
        if self._journal is not None and type(spec) in _OF_INTEREST:
            self._fn = _narrowed(self._fn, _OF_INTEREST[type(spec)])
        self._fn = self.context.strict.coroutine(self._node, self._fn)
        # A function in an executor goes on with its record after its call was given up.
        given_up = options.retry is not None or self._executing is not None
        self._timed = self.chain.timed
        self._results_of = (_TIMED_RESULTS if self._timed else _RESULTS).get(type(spec), _mapped)
        ordered = options.ordered and not isinstance(spec, ForEachStep)
        self._pending = PendingList(
            ordered=ordered,
            serializer=self.context.serializer,
            step=self._node.label,
            keep=self.context.keep_records or given_up,
        )
        filters = isinstance(spec, FilterStep)
        self._finish = self._filtered if filters else self._pending.finish
        # Taking the next call is nothing but this.
        self.start: Callable[[], Ticket] = self._pending.start
        if self._timed:
            self._call, self._fn = self._fn, self._of_pair
            self._finish = self._filtered if filters else self._stamped
        self.direct = self._fn
        self.in_place = ordered and not filters and not self._timed
        if self._journal is not None:
            self.start, self.direct, self.in_place = self._start_unanswered, None, False
        self.make_pool(self)

    # ---- what the pool asks

    @property
    def waiting(self) -> int:
        """Calls that could be started."""
        return self._pending.waiting

    def call(self, ticket: Ticket, attempt: int) -> Awaitable[Any]:
        """Begin an attempt."""
        coroutine: Awaitable[Any] = self._fn(self._pending.record(ticket, attempt))
        return coroutine

    def record_of(self, ticket: Ticket) -> tuple[Any, ...]:
        """The record of a call, alone in a tuple."""
        record = self._pending.record(ticket, 1)
        return (record[0] if self._timed else record,)

    def _of_pair(self, pair: tuple[Any, int]) -> Any:
        return self._call(pair[0])

    def _stamped(self, ticket: Ticket, result: Any) -> None:
        """Keep a result with the timestamp of its record."""
        chunk, i = ticket
        self._pending.finish(ticket, (result, chunk.records[i][1]))

    def content_of(self, ticket: Ticket) -> tuple[Hashable, Any]:
        """The record of a call as it came."""
        return None, self._pending.record(ticket, 2)

    def has_ended(self, ticket: Ticket) -> bool:
        """Its result, or failure, is there."""
        return self._pending.has_ended(ticket)

    def succeeded(self, ticket: Ticket, result: Any) -> None:
        """Keep a result until its turn comes and the outputs have room."""
        if self._journal is not None:
            self.journaled(ticket, result, partial(self.replay, ticket, result))
            return
        self._finish(ticket, result)
        self.tell()

    def replay(self, ticket: Ticket, value: Any) -> None:
        """A call has its result, now or before the restore."""
        self._finish(ticket, value)
        self.tell()

    def _start_unanswered(self) -> Ticket:
        """Take the next call that has no answer from before the restore."""
        while self.replayed(ticket := self._pending.start()):
            pass
        return ticket

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
        if self._timed:
            record, timestamp = record
        failure: Any = self._reporter.failure(record, error, attempts)
        if self._timed and failure is not None:
            failure = failure, timestamp
        self._pending.finish(ticket, Failed(failure))
        self.wakeup.set()

    # ---- snapshot

    def own_sections(self) -> list[Freezing]:
        """The pending list, beside the states of fused keyed steps."""
        sections: list[Freezing] = [*self.chain.snapshot(), *self.calls_sections()]
        if self._pending.count or self._pending.marks:
            sections.append(self.pending_section(self._pending.cut(), self._pending.count))
        return sections

    def restore(self, kind: SectionKind, name: str, values: list[Any]) -> None:
        """Take back the pending list, or the state of a fused step."""
        if kind == "pending":
            for entries in values:
                self._pending.restore(entries)
        else:
            super().restore(kind, name, values)

    # ---- work

    @property
    def pending_count(self) -> int:
        """Records and results that are pending."""
        return self._pending.count

    @property
    def marks(self) -> Sequence[Mark]:
        """What is pending of event time."""
        return self._pending.marks

    def mark(self, mark: Mark) -> None:
        """Put a mark behind everything that is pending."""
        self._pending.mark(mark)

    @property
    def due_mark(self) -> Mark | None:
        """The first mark, if nothing before it is pending any more."""
        return self._pending.due_mark

    def pass_mark(self) -> None:
        """The due mark has gone on."""
        self._pending.pass_mark()

    def begin_round(self) -> None:
        """From now on, results wake the task again."""
        self.told = False

    def admit_records(self, records: list[Any]) -> None:
        """Append records to the pending list."""
        self._pending.admit(records)

    def emit_results(self) -> bool:
        """Emit results whose turn has come, as many as there is room for."""
        if not self.output.writable:
            return False
        failures = self._pending.failures
        results = self._pending.take_results(min(self.slices.records, self.output.room))
        if not results:
            return False
        self.results_leave()
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


# What matters of the result of a call, and is journaled: not what cannot be stored.
_OF_INTEREST: dict[type, Callable[[Any], Any]] = {
    FilterStep: bool,
    ForEachStep: lambda _: None,
}


def _narrowed(
    fn: Callable[[Any], Awaitable[Any]], of_interest: Callable[[Any], Any]
) -> Callable[[Any], Awaitable[Any]]:
    async def call(record: Any) -> Any:
        return of_interest(await fn(record))

    return call


def _mapped(results: list[Any]) -> list[Any]:
    return results


def _filtered(results: list[Any]) -> list[Any]:
    return [record for kept, record in results if kept]


def _flattened(results: list[Any]) -> list[Any]:
    return list(chain.from_iterable(results))


def _nothing(results: list[Any]) -> list[Any]:
    return []


def _flattened_pairs(results: list[Any]) -> list[Any]:
    return [(value, timestamp) for values, timestamp in results for value in values]


_RESULTS: dict[type, Callable[[list[Any]], list[Any]]] = {
    FilterStep: _filtered,
    FlatMapStep: _flattened,
    ForEachStep: _nothing,
}

_TIMED_RESULTS = {**_RESULTS, FlatMapStep: _flattened_pairs}
