"""The fused stateless steps: each works on a whole batch and hands its results on.

The loop over the records is CPython's own (`list.extend(map(...))`): a list that is being
extended keeps what it got before an exception, which tells which record failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, compress
from typing import Any

from streamcp.runtime.calling import Push, Reporter, expanded, refuse_awaitable
from streamcp.runtime.meters import StepMeter


class Caller:
    """Calls a plain function for each record of a batch."""

    __slots__ = ("_checked", "_fn", "_reporter")

    def __init__(self, fn: Callable[[Any], Any], reporter: Reporter) -> None:
        self._fn = fn
        self._reporter = reporter
        self._checked = False

    def __call__(self, records: list[Any]) -> tuple[list[Any], list[Any]]:
        """Return the records whose call succeeded and their results, in order.

        Raises StepFailed for the first that did not, where the step's errors fail the job."""
        results: list[Any] = []
        try:
            results.extend(map(self._fn, records))
        except Exception as error:  # whatever a user's function raises is that record's failure
            records = self._go_on(records, results, error)
        if not self._checked and results:
            self._check_first(records[0], results[0])
        return records, results

    def _go_on(self, records: list[Any], results: list[Any], error: Exception) -> list[Any]:
        """Report the failed record and call the function for those after it."""
        succeeded = records[: len(results)]
        place = len(results)
        while True:
            self._reporter.report(records[place], error)
            rest = records[place + 1 :]
            before = len(results)
            try:
                results.extend(map(self._fn, rest))
            except Exception as another:  # as above
                error = another
                succeeded += rest[: len(results) - before]
                place += 1 + len(results) - before
            else:
                return succeeded + rest

    def _check_first(self, record: Any, result: Any) -> None:
        self._checked = True
        try:
            refuse_awaitable(result)
        except TypeError as error:
            raise self._reporter.step_failed(record, error) from None


class MapRun:
    """Emits the results."""

    __slots__ = ("_call", "_emit", "_meter")

    def __init__(self, call: Caller, emit: Push, meter: StepMeter) -> None:
        self._call, self._emit, self._meter = call, emit, meter

    def push(self, records: list[Any]) -> None:
        """Work on a batch."""
        _, results = self._call(records)
        self._meter.records_in += len(records)
        self._meter.records_out += len(results)
        if results:
            self._emit(results)


class FilterRun:
    """Emits the records whose result is true."""

    __slots__ = ("_call", "_emit", "_meter")

    def __init__(self, call: Caller, emit: Push, meter: StepMeter) -> None:
        self._call, self._emit, self._meter = call, emit, meter

    def push(self, records: list[Any]) -> None:
        """Work on a batch."""
        succeeded, results = self._call(records)
        kept = list(compress(succeeded, results))
        self._meter.records_in += len(records)
        self._meter.records_out += len(kept)
        if kept:
            self._emit(kept)


class FlatMapRun:
    """Emits what each result holds."""

    __slots__ = ("_call", "_emit", "_meter")

    def __init__(
        self, fn: Callable[[Any], Any], reporter: Reporter, emit: Push, meter: StepMeter
    ) -> None:
        # Expanding belongs to the call: a generator fails while it is being read.
        self._call = Caller(lambda record: expanded(fn(record)), reporter)
        self._emit, self._meter = emit, meter

    def push(self, records: list[Any]) -> None:
        """Work on a batch."""
        _, results = self._call(records)
        values = list(chain.from_iterable(results))
        self._meter.records_in += len(records)
        self._meter.records_out += len(values)
        if values:
            self._emit(values)


class ForEachRun:
    """Calls the function and emits nothing."""

    __slots__ = ("_call", "_meter")

    def __init__(self, call: Caller, meter: StepMeter) -> None:
        self._call, self._meter = call, meter

    def push(self, records: list[Any]) -> None:
        """Work on a batch."""
        self._call(records)
        self._meter.records_in += len(records)


class BranchRun:
    """Emits each record on one of two outputs."""

    __slots__ = ("_call", "_meter", "_no", "_yes")

    def __init__(self, call: Caller, yes: Push, no: Push, meter: StepMeter) -> None:
        self._call, self._yes, self._no, self._meter = call, yes, no, meter

    def push(self, records: list[Any]) -> None:
        """Work on a batch."""
        succeeded, results = self._call(records)
        self._meter.records_in += len(records)
        self._meter.records_out += len(succeeded)
        self._send(self._yes, compress(succeeded, results))
        self._send(self._no, compress(succeeded, (not result for result in results)))

    @staticmethod
    def _send(push: Push, records: Iterable[Any]) -> None:
        values = list(records)
        if values:
            push(values)
