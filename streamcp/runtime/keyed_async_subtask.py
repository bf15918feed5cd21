"""The task of a keyed step with a coroutine function: keys run side by side, one key in order.

Each call is a small transaction: it works on a private copy of the state, and what it returned,
changed and asked for takes effect in one synchronous step when it has returned. A snapshot in
between holds the state before the call, and the record among the pending ones (rule P20).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Hashable
from functools import partial
from typing import Any

from streamcp.checkpoint.snapshot import SectionKind
from streamcp.errors import SerializationError
from streamcp.operators.context import KeyContext
from streamcp.operators.steps import ProcessStep
from streamcp.runtime.keyed_steps import Effects, refuse_state
from streamcp.runtime.pending import Failed, Status
from streamcp.runtime.pooled_subtask import PooledSubtask, gathered
from streamcp.runtime.snapshots import Freezing
from streamcp.runtime.steps import keyed_functions, keys_of
from streamcp.serialization.immutable import is_deeply_immutable

TIMER = 4
"""Status of a stored entry that is a due timer: its content is (key, timestamp)."""
# Of a record, and of one in frozen form, per input.
_RECORD = (Status.RECORD.value, Status.RIGHT_RECORD.value)
_FROZEN_RECORD = (Status.FROZEN_RECORD.value, Status.RIGHT_FROZEN_RECORD.value)
_RESULT, _FAILURE = Status.RESULT.value, Status.FAILURE.value


class Slot:
    """One pending record or due timer, or its result that was not emitted yet."""

    __slots__ = ("copy", "effects", "frozen", "is_timer", "key", "port", "record", "result")

    def __init__(self, key: Any, record: Any, *, port: int = 0, is_timer: bool = False) -> None:
        self.key = key
        self.record = record  # of a timer: its timestamp
        self.port = port
        self.is_timer = is_timer
        self.frozen: bytes | None = None
        self.result: list[Any] | Failed | None = None
        self.copy: Any = None
        self.effects: Effects | None = None


class KeyedAsyncSubtask(PooledSubtask):
    """Runs `process` with a coroutine function."""

    def prepare(self) -> None:
        """Wire the step and what is fused behind it."""
        super().prepare()
        spec = self._node.spec
        assert isinstance(spec, ProcessStep)
        self._keys = keys_of(self._node)
        functions, on_timer = keyed_functions(spec, self.context)
        self._functions = [gathered(fn) for fn in functions]
        self._on_timer = None if on_timer is None else gathered(on_timer)
        self._state = self.chain.keyed_state(self._node, spec.state)
        # Arrival order; a dictionary, since slots leave from the middle.
        self._slots: dict[Slot, None] = {}
        self._queues: dict[Any, deque[Slot]] = {}
        self._ready: deque[Slot] = deque()
        self._results: deque[Slot] = deque()
        self.make_pool(self)

    # ---- what the pool asks

    @property
    def waiting(self) -> int:
        """Calls that could be started: the first of each key that has none running."""
        return len(self._ready)

    def start(self) -> Slot:
        """Take the next call; a timer that was cleared while it waited is none."""
        while True:
            slot = self._ready.popleft()
            if not slot.is_timer or self._state.has_timer(slot.key, slot.record):
                return slot
            self._close(slot, [])

    def record_of(self, slot: Slot) -> tuple[Any, ...]:
        """The record of a call, alone in a tuple; nothing for that of a timer."""
        return () if slot.is_timer else (slot.record,)

    def content_of(self, slot: Slot) -> tuple[Hashable, Any]:
        """The key, and what is called for: the record as it came, by its input, or a timer."""
        if slot.is_timer:
            return slot.key, (slot.key, "timer", slot.record)
        record = slot.record
        if slot.frozen is not None:
            record = self.context.serializer.loads(slot.frozen)
        return slot.key, (slot.key, slot.port, record)

    def has_ended(self, slot: Slot) -> bool:
        """Its effects are committed, or it has failed."""
        return slot.result is not None

    def call(self, slot: Slot, attempt: int) -> Awaitable[Any]:
        """Begin an attempt on a fresh copy of the state."""
        entry = self._state[slot.key]
        if slot.effects is not None:
            slot.effects.ended = True  # of the attempt before
        slot.effects = Effects(
            may_set_timers=self._on_timer is not None, own_call=partial(self.call_id, slot)
        )
        context = KeyContext(slot.key, self.context.clock.wall_ms(), slot.effects)
        slot.copy = self.context.serializer.copy(entry.value, step=self._node.label)
        if slot.is_timer:
            assert self._on_timer is not None, "a timer is set only with on_timer"
            fired: Awaitable[Any] = self._on_timer(slot.record, slot.copy, context)
            return fired
        record = slot.record
        if attempt > 1 and slot.frozen is not None:
            record = self.context.serializer.loads(slot.frozen)
        return self._functions[slot.port](record, slot.copy, context)

    def succeeded(self, slot: Slot, result: list[Any]) -> None:
        """Commit: state, timers and results take effect together."""
        try:
            refuse_state(result, slot.copy)
        except TypeError as error:
            self.failed(slot, error, 1)
            return
        state = self._state
        entry = state[slot.key]
        state.replace(entry, slot.copy)
        if slot.is_timer:
            state.timer_done(entry, slot.record)
        effects = slot.effects
        assert effects is not None
        effects.commit(state, entry)
        self._close(slot, result)

    def failed(self, slot: Slot, error: Exception, attempts: int) -> None:
        """Fail the job, or keep the failure until it is emitted; the state is untouched."""
        if slot.is_timer:
            raise self._reporter.step_failed(
                f"timer {slot.record} of {slot.key!r}", error
            ) from error
        record = slot.record
        if slot.frozen is not None:
            record = self.context.serializer.loads(slot.frozen)
        self._close(slot, Failed(self._reporter.failure(record, error, attempts)))

    def _close(self, slot: Slot, result: list[Any] | Failed) -> None:
        """The call of a slot is over: its key's next one may start."""
        if slot.effects is not None:
            slot.effects.ended = True
        slot.result = result
        slot.record = slot.frozen = slot.copy = slot.effects = None
        self._results.append(slot)
        queue = self._queues[slot.key]
        queue.popleft()
        if queue:
            self._ready.append(queue[0])
            self._pool.wake()
        else:
            del self._queues[slot.key]
        self.wakeup.set()

    # ---- snapshot

    def own_sections(self) -> list[Freezing]:
        """State, pending list, and the states of fused keyed steps."""
        sections: list[Freezing] = [self._state.snapshot(), *self.chain.snapshot()]
        sections += self.calls_sections()
        if self._slots:
            entries = [self._entry(slot) for slot in self._slots]
            sections.append(self.pending_section(lambda: entries, len(entries)))
        return sections

    @staticmethod
    def _entry(slot: Slot) -> tuple[int, Any]:
        if isinstance(slot.result, Failed):
            return _FAILURE, slot.result.failure
        if slot.result is not None:
            return _RESULT, (slot.key, slot.result)
        if slot.is_timer:
            return TIMER, (slot.key, slot.record)
        if slot.frozen is not None:
            return _FROZEN_RECORD[slot.port], slot.frozen
        return _RECORD[slot.port], slot.record

    def restore(self, kind: SectionKind, name: str, values: list[Any]) -> None:
        """Take back the state, the pending list, or the state of a fused step."""
        if kind == "state" and name == self._node.label:
            for rows in values:
                self._state.restore(rows)
        elif kind == "pending":
            for entries in values:
                for status, content in entries:
                    self._restore_entry(status, content)
        else:
            super().restore(kind, name, values)

    def key_of_entry(self, status: int, content: Any) -> Any:
        """The key of a stored entry, by which it goes to another subtask (rule P41); None for a
        failure, which only waits to be diverted."""
        match status:
            case Status.RECORD:
                return self._keys[0](content)
            case Status.RIGHT_RECORD:
                return self._keys[1](content)
            case Status.FAILURE:
                return None
            case _:
                return content[0]

    def _restore_entry(self, status: int, content: Any) -> None:
        match status:
            case Status.RECORD:
                self._append_record(content, 0)
            case Status.RIGHT_RECORD:
                self._append_record(content, 1)
            case 4:
                key, timestamp = content
                self._append(Slot(key, timestamp, is_timer=True))
            case Status.RESULT:
                key, result = content
                self._append_result(Slot(key, None), result)
            case Status.FAILURE:
                self._append_result(Slot(None, None), Failed(content))

    def _append_result(self, slot: Slot, result: list[Any] | Failed) -> None:
        slot.result = result
        self._slots[slot] = None
        self._results.append(slot)

    # ---- work

    @property
    def pending_count(self) -> int:
        """Records, results and timers that are pending."""
        return len(self._slots)

    def begin_round(self) -> None:
        """Timers that are due join the pending list."""
        self._admit_timers()

    def admit_records(self, records: list[Any]) -> None:
        """Append records to the pending list, each with the input that it came by."""
        port = self.gate.ports[self.gate.hand_channel]
        for record in records:
            self._append_record(record, port)

    def until_timer(self) -> float | None:
        """Seconds until the earliest timer of this step, if the pending list has room for it, or
        of those fused behind it."""
        fused = super().until_timer()
        due = self._state.next_timer()
        if due is None or len(self._slots) >= self._bound or self.timers_are_over:
            return fused
        own = max(0.0, (due - self.context.clock.wall_ms()) / 1000)
        return own if fused is None else min(own, fused)

    @property
    def timers_are_due(self) -> bool:
        """Those of this step join the pending list, as soon as the task looks."""
        due = self._state.next_timer()
        own = due is not None and due <= self.context.clock.wall_ms()
        return (own and not self.timers_are_over) or super().timers_are_due

    def _admit_timers(self) -> None:
        """Put timers that are due into the pending list, behind what arrived before (P21), as far
        as it has room."""
        due = self._state.next_timer()
        if due is None or self.timers_are_over:
            return
        now = self.context.clock.wall_ms()
        while len(self._slots) < self._bound:
            popped = self._state.pop_due(now)
            if popped is None:
                break
            timestamp, entry = popped
            self._append(Slot(entry.key, timestamp, is_timer=True))
        self._pool.wake()

    def _append_record(self, record: Any, port: int) -> None:
        slot = Slot(self._keys[port](record), record, port=port)
        if not is_deeply_immutable(record):
            try:
                slot.frozen = self.context.serializer.dumps(record, step=self._node.label)
            except SerializationError:
                # A snapshot that must hold it declines its checkpoint, with the reason.
                slot.frozen = None
        self._append(slot)

    def _append(self, slot: Slot) -> None:
        self._slots[slot] = None
        queue = self._queues.get(slot.key)
        if queue is None:
            self._queues[slot.key] = deque((slot,))
            self._ready.append(slot)
        else:
            queue.append(slot)

    def emit_results(self) -> bool:
        """Emit what has committed, in the order of the commits, as far as there is room."""
        if not self._results or not self.output.writable:
            return False
        room = self.output.room
        self.results_leave()
        started = self.context.clock.monotonic()
        values: list[Any] = []
        diverted: list[Any] = []
        taken = 0
        while self._results and len(values) + len(diverted) < room:
            slot = self._results.popleft()
            del self._slots[slot]
            taken += 1
            if isinstance(slot.result, Failed):
                if slot.result.failure is not None:
                    diverted.append(slot.result.failure)
            elif slot.result is not None:
                values += slot.result
        if diverted:
            self._reporter.divert(diverted)
        self._step_meter.records_out += len(values)
        if values:
            self._emit(values)
        self.slice_done(taken, started)
        return True
