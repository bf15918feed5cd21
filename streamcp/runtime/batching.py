"""The batch that a `batch` step is filling: state of its subtask, handed on when full or old.

It runs inline like a plain sink: whole lists come in, and lists of lists go on. What is open is in
no channel and no pending list, so it is in every snapshot, with the time at which it is due.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

from streamcp.elements import ListTimestamp
from streamcp.operators.steps import BatchStep
from streamcp.runtime.calling import Push
from streamcp.runtime.gateway import TaskContext
from streamcp.runtime.meters import StepMeter
from streamcp.runtime.snapshots import CapturedSection
from streamcp.serialization.captured import Captured


class BatchRun:
    """One `batch` step of one subtask. `due` is when what is open goes on, in milliseconds since
    the epoch; None if nothing is open."""

    __slots__ = ("_captured", "_context", "_emit", "_open", "_spec", "due", "meter", "step")

    def __init__(
        self, step: str, spec: BatchStep, emit: Push, meter: StepMeter, context: TaskContext
    ) -> None:
        self.step = step
        self.meter = meter
        self.due: int | None = None
        self._spec = spec
        self._emit = emit
        self._context = context
        self._open: list[Any] = []
        self._captured: list[Captured] = []

    @property
    def is_open(self) -> bool:
        """Some records wait for others."""
        return bool(self._open)

    def push(self, records: list[Any]) -> None:
        """Add records, and hand on what is full."""
        self.meter.records_in += len(records)
        if not self._open and records:
            self._set_due()
        self._open.extend(records)
        size = self._spec.max_size
        if len(self._open) >= size:
            full = len(self._open) - len(self._open) % size
            taken, self._open = self._open[:full], self._open[full:]
            if self._open:
                self._set_due()
            else:
                self.due = None
            self._hand_on(taken)

    def fire(self) -> bool:
        """Hand on what is open, if it is due; False if nothing is."""
        if self.due is None or self.due > self._context.clock.wall_ms():
            return False
        self.flush()
        return True

    def flush(self) -> None:
        """Hand on what is open."""
        taken, self._open = self._open, []
        self.due = None
        if taken:
            self._hand_on(taken)

    def _set_due(self) -> None:
        """The oldest record that is open has come now."""
        self.due = self._context.clock.wall_ms() + round(self._spec.max_wait * 1000)

    def _hand_on(self, records: list[Any]) -> None:
        for captured in self._captured:
            captured.before_use()
        self._captured.clear()
        size = self._spec.max_size
        batches = [records[i : i + size] for i in range(0, len(records), size)]
        self.meter.records_out += len(batches)
        self._emit(self._emitted(batches))

    def _emitted(self, batches: list[list[Any]]) -> list[Any]:
        """Make of lists what is emitted."""
        return batches

    def earliest(self, after: int) -> int | None:
        """The earliest timestamp behind `after` of what is open; None if there is none."""
        return None

    # ---- snapshot and restore

    def section(self) -> CapturedSection:
        """Capture what is open."""
        content = (self.due, [*self._open])
        captured = Captured(content, self._context.serializer, step=self.step)
        self._captured.append(captured)
        return CapturedSection("batch", self.step, [captured], len(self._open))

    def restore(self, due: int, records: list[Any]) -> None:
        """Take a snapshot back, also several; what is too much for one batch is due at once."""
        self._open += records
        self.due = due if self.due is None else min(self.due, due)
        if len(self._open) >= self._spec.max_size:
            self.due = self._context.clock.wall_ms()


class TimedBatchRun(BatchRun):
    """The same where records are pairs with their timestamps: a list has the latest of them, and
    carries all, so that `unbatch` gives each record its own back."""

    __slots__ = ()

    def _emitted(self, batches: list[list[Any]]) -> list[Any]:
        """Pair each list with its timestamp."""
        return [
            ([value for value, _ in batch], ListTimestamp(tuple(at for _, at in batch)))
            for batch in batches
        ]

    def earliest(self, after: int) -> int | None:
        """Whatever is late already is not waited for."""
        times = (one for _, at in self._open for one in _flat(at))
        return min((at for at in times if at > after), default=None)


def _flat(timestamp: int) -> Iterator[int]:
    """The timestamps of the records in a list of lists, however deep."""
    if isinstance(timestamp, ListTimestamp):
        for one in timestamp.each:
            yield from _flat(one)
    else:
        yield timestamp


def timestamps_of(timestamp: int, values: Sequence[Any]) -> Iterable[int]:
    """The timestamps of the records of a list: their own, if it still has as many records as the
    list that was made of them; else that of the list."""
    each = getattr(timestamp, "each", ())
    return each if len(each) == len(values) else repeat(timestamp)
