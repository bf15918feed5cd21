"""The task of a keyed step with a coroutine function: keys run side by side, one key in order.

Each call is a small transaction: it works on a private copy of the state, and what it returned,
changed and asked for takes effect in one synchronous step when it has returned. A snapshot in
between holds the state before the call, and the record among the pending ones (rule P20).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import Any

from streamcp.checkpoint.snapshot import SectionKind
from streamcp.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Mark, Watermark
from streamcp.errors import SerializationError
from streamcp.operators.context import KeyContext
from streamcp.operators.steps import ProcessStep
from streamcp.runtime.event_time import mark_of
from streamcp.runtime.keyed_steps import Effects, refuse_state
from streamcp.runtime.pending import JUDGED, Failed, Status
from streamcp.runtime.pending_marks import PendingMarks
from streamcp.runtime.pooled_subtask import PooledSubtask, gathered
from streamcp.runtime.snapshots import Freezing
from streamcp.runtime.steps import keyed_functions, keys_of
from streamcp.serialization.immutable import is_deeply_immutable
from streamcp.state.entries import EVENT, PROCESSING, Entry
from streamcp.state.keyed import KeyedState

TIMER = 4
"""Status of a stored entry that is a due timer: its content is (key, timestamp)."""
EVENT_TIMER = 9
"""The same of an event-time timer."""
# Of a record, and of one in frozen form, per input.
_RECORD = (Status.RECORD.value, Status.RIGHT_RECORD.value)
_FROZEN_RECORD = (Status.FROZEN_RECORD.value, Status.RIGHT_FROZEN_RECORD.value)
_RESULT, _FAILURE = Status.RESULT.value, Status.FAILURE.value
_TIMERS = {PROCESSING: TIMER, EVENT: EVENT_TIMER}


class Slot:
    """One pending record or due timer, or its result that was not emitted yet.

    `clock` is that of a timer, None for a record. `epoch` counts the marks that came before."""

    __slots__ = (
        "clock",
        "copy",
        "effects",
        "epoch",
        "found",
        "frozen",
        "judged",
        "key",
        "port",
        "record",
        "result",
        "sides",
    )

    def __init__(
        self, key: Any, record: Any, *, port: int = 0, clock: int | None = None, epoch: int = 0
    ) -> None:
        self.key = key
        self.record = record  # of a timer: its timestamp
        self.port = port
        self.clock = clock
        self.epoch = epoch
        self.judged: int | None = None  # the watermark for it, if it is not that of its place
        self.sides: list[tuple[str, Any]] = []
        self.frozen: bytes | None = None
        self.found = b""  # digest of the state that its call has found, if it is journaled
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
        self._keys = [self.context.strict.key(self._node, key) for key in keys_of(self._node)]
        functions, on_timer = keyed_functions(spec, self.context)
        if self._executing is not None:
            functions = [self._executing.coroutine_of(fn) for fn in functions]
            on_timer = None if on_timer is None else self._executing.coroutine_of(on_timer)
        self._functions = [self._called(fn) for fn in functions]
        self._on_timer = None if on_timer is None else self._called(on_timer)
        self._expiry = self.chain.expiry(self._node)
        if self._expiry is not None:
            self._state: KeyedState = self._expiry.state
        else:
            self._state = self.chain.keyed_state(self._node, spec.state)
        self._side = self.chain.side(self._node)
        self._timed = self.chain.timed
        self._marks = PendingMarks()
        self._floors = [] if self.time is None else self.time.floors_of(self._node.label)
        # Arrival order; a dictionary, since slots leave from the middle.
        self._slots: dict[Slot, None] = {}
        self._queues: dict[Any, deque[Slot]] = {}
        self._ready: deque[Slot] = deque()
        self._results: deque[Slot] = deque()
        self.make_pool(self)

    def _called(self, fn: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        return self.context.strict.keyed_coroutine(self._node, gathered(fn))

    # ---- what the pool asks

    @property
    def waiting(self) -> int:
        """Calls that could be started: the first of each key that has none running."""
        return len(self._ready)

    def start(self) -> Slot:
        """Take the next call; a timer that was cleared while it waited is none."""
        while True:
            slot = self._ready.popleft()
            if slot.clock is not None and not self._state.has_timer(
                slot.key, slot.record, slot.clock
            ):
                self._close(slot, [])
            elif not self.has_left_answers or not self._replayed(slot):
                return slot

    def record_of(self, slot: Slot) -> tuple[Any, ...]:
        """The record of a call, alone in a tuple; nothing for that of a timer."""
        if slot.clock is not None:
            return ()
        return (slot.record[0] if self._timed else slot.record,)

    def content_of(self, slot: Slot) -> tuple[Hashable, Any]:
        """The key, and what is called for: the record as it came, by its input, or a timer."""
        if slot.clock is not None:
            return slot.key, (slot.key, "timer", slot.clock, slot.record)
        return slot.key, (slot.key, slot.port, self._as_it_came(slot))

    def has_ended(self, slot: Slot) -> bool:
        """Its effects are committed, or it has failed."""
        return slot.result is not None

    def call(self, slot: Slot, attempt: int) -> Awaitable[Any]:
        """Begin an attempt on a fresh copy of the state."""
        entry = self._state[slot.key]
        if slot.effects is not None:
            slot.effects.ended = True  # of the attempt before
        slot.effects = self._effects(slot)
        if self._expiry is not None:
            self._expiry.before(entry, self._expires_by(slot, entry))
        if self._journal is not None:
            slot.found = self._digest_of(entry)  # it may expire while it is called
        slot.copy = self._state.private_copy(entry)
        if slot.clock is not None:
            assert self._on_timer is not None, "a timer is set only with on_timer"
            context = self._timer_context(slot, entry, slot.effects)
            fired: Awaitable[Any] = self._on_timer(slot.record, slot.copy, context)
            return fired
        record = slot.record if attempt == 1 else self._as_it_came(slot)
        if not self._timed:
            context = KeyContext(slot.key, slot.effects.now(), slot.effects)
            return self._functions[slot.port](record, slot.copy, context)
        judged = slot.judged
        watermark = self._watermark_of(entry, slot.epoch) if judged is None else judged
        context = KeyContext(slot.key, record[1], slot.effects, watermark)
        return self._functions[slot.port](record[0], slot.copy, context)

    def _effects(self, slot: Slot) -> Effects:
        return Effects(
            may_set_timers=self._on_timer is not None,
            now=self.context.clock.wall_ms,
            timed=self._timed,
            # Ids are counted by the event loop's thread alone.
            own_call=None if self._executing is not None else partial(self.call_id, slot),
        )

    def _timer_context(self, slot: Slot, entry: Entry, effects: Effects) -> KeyContext[Any]:
        if self.time is None:
            return KeyContext(slot.key, effects.now(), effects)
        if slot.clock == EVENT:
            made_due_by = self._marks.watermark_at(slot.epoch, self.time.watermark)
            return KeyContext(slot.key, slot.record, effects, made_due_by)
        return KeyContext(slot.key, effects.now(), effects, self._watermark_of(entry, slot.epoch))

    def _expires_by(self, slot: Slot, entry: Entry) -> float:
        """The time by which the state that a call sees must not have expired."""
        assert self._expiry is not None
        if self._expiry.time is None or slot.clock == PROCESSING:
            return self._expiry.moment(entry, MIN_TIMESTAMP)
        if slot.clock == EVENT:
            return self._expiry.moment(entry, slot.record)
        judged = slot.judged
        return self._watermark_of(entry, slot.epoch) if judged is None else judged

    def _updated_at(self, slot: Slot, entry: Entry) -> float:
        """The time of an update by a call; that of a record, if the watermark is not further."""
        assert self._expiry is not None
        by = self._expires_by(slot, entry)
        of_record = self._expiry.time is not None and slot.clock is None
        return max(by, slot.record[1]) if of_record else by

    def _watermark_of(self, entry: Entry, epoch: int) -> int:
        """What a record in its place is judged by (P21, P42)."""
        assert self.time is not None
        before = self._marks.watermark_before(epoch, self.time.watermark)
        return max(before, self._floors[entry.group])

    def succeeded(self, slot: Slot, result: list[Any]) -> None:
        """Commit, once the answer is durable if it is to be."""
        try:
            refuse_state(result, slot.copy)
        except TypeError as error:
            self.failed(slot, error, 1)
            return
        if self._journal is None:
            self._commit(slot, result)
            return
        assert slot.effects is not None
        slot.effects.ended = True  # what it asks for now would not be in the journal
        value = result, slot.copy, slot.effects.asked()
        self.journaled(slot, value, partial(self._commit, slot, result), state=slot.found)

    def _replayed(self, slot: Slot) -> bool:
        """Take the answer of a call from before the restore, which found the same state."""
        entry = self._state[slot.key]
        if self._expiry is not None:
            self._expiry.before(entry, self._expires_by(slot, entry))
        return self.replayed(slot, self._digest_of(entry))

    def _digest_of(self, entry: Entry) -> bytes:
        return self.context.serializer.digest(entry.value, step=self._node.label)

    def replay(self, slot: Slot, value: Any) -> None:
        """Commit what a call before the restore came to."""
        result, slot.copy, asked = value
        slot.effects = self._effects(slot)
        slot.effects.ask_again(asked)
        self._commit(slot, result)

    def _commit(self, slot: Slot, result: list[Any]) -> None:
        """State, timers and results take effect together."""
        state = self._state
        entry = state[slot.key]
        state.replace(entry, slot.copy)
        if self._expiry is not None:
            self._expiry.state.update(entry, self._updated_at(slot, entry))
        if slot.clock is not None:
            state.timer_done(entry, slot.record, slot.clock)
        effects = slot.effects
        assert effects is not None
        effects.commit(state, entry, time_is_over=self._time_is_over(slot))
        if self._timed:
            at = self._emitted_at(slot)
            result = [(value, at) for value in result]
            effects.sides = [(output, (value, at)) for output, value in effects.sides]
            self._queue_event_timers(slot.key)
        slot.sides = effects.sides
        self._close(slot, result)

    def _emitted_at(self, slot: Slot) -> int:
        """The timestamp of what comes of a call."""
        assert self.time is not None
        if slot.clock == PROCESSING:
            return self.time.earliest
        at: int = slot.record if slot.clock == EVENT else slot.record[1]
        return at

    def _time_is_over(self, slot: Slot) -> bool:
        if slot.clock != EVENT or self.time is None:
            return False
        return self._marks.watermark_at(slot.epoch, self.time.watermark) == MAX_TIMESTAMP

    def failed(self, slot: Slot, error: Exception, attempts: int) -> None:
        """Fail the job, or keep the failure until it is emitted; the state is untouched."""
        if slot.clock is not None:
            raise self._reporter.step_failed(
                f"timer {slot.record} of {slot.key!r}", error
            ) from error
        record = self._as_it_came(slot)
        value = record[0] if self._timed else record
        failure: Any = self._reporter.failure(value, error, attempts)
        if self._timed and failure is not None:
            failure = failure, record[1]
        self._close(slot, Failed(failure))

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
        if self._slots or self._marks:
            entries = self._marks.between(self._slots, self._entry)
            sections.append(self.pending_section(lambda: entries, len(self._slots)))
        return sections

    def _as_it_came(self, slot: Slot) -> Any:
        """The record of a call, whatever an attempt has made of it."""
        return slot.record if slot.frozen is None else self.context.serializer.loads(slot.frozen)

    def _entry(self, slot: Slot) -> tuple[int, Any]:
        if isinstance(slot.result, Failed):
            return _FAILURE, slot.result.failure
        if slot.result is not None:
            content = slot.key, slot.result
            return _RESULT, (*content, slot.sides) if slot.sides else content
        if slot.clock is not None:
            return _TIMERS[slot.clock], (slot.key, slot.record)
        if slot.judged is not None:
            return JUDGED[_RECORD[slot.port]], (self._as_it_came(slot), slot.judged)
        if slot.frozen is not None:
            return _FROZEN_RECORD[slot.port], slot.frozen
        return _RECORD[slot.port], slot.record

    def restore(self, kind: SectionKind, name: str, values: list[Any]) -> None:
        """Take back the state, the pending list, or the state of a fused step."""
        if kind == "state" and name == self._node.label:
            for rows in values:
                self._state.restore(rows, one_group=True)
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
                return self._key(content, 0)
            case Status.RIGHT_RECORD:
                return self._key(content, 1)
            case Status.JUDGED_RECORD:
                return self._key(content[0], 0)
            case Status.JUDGED_RIGHT_RECORD:
                return self._key(content[0], 1)
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
            case Status.JUDGED_RECORD | Status.JUDGED_RIGHT_RECORD:
                record, judged = content
                self._append_record(record, int(status == Status.JUDGED_RIGHT_RECORD), judged)
            case 4 | 9:
                key, timestamp = content
                clock = PROCESSING if status == TIMER else EVENT
                self._append(Slot(key, timestamp, clock=clock, epoch=self._marks.epoch))
            case Status.RESULT:
                key, result, *sides = content
                slot = Slot(key, None, epoch=self._marks.epoch)
                slot.sides = sides[0] if sides else []
                self._append_result(slot, result)
            case Status.FAILURE:
                self._append_result(Slot(None, None, epoch=self._marks.epoch), Failed(content))
            case Status.WATERMARK | Status.IDLE_STATUS:
                self._marks.add(mark_of(content))

    def _append_result(self, slot: Slot, result: list[Any] | Failed) -> None:
        slot.result = result
        self._slots[slot] = None
        self._marks.opened(slot.epoch)
        self._results.append(slot)

    # ---- event time

    @property
    def marks(self) -> Sequence[Mark]:
        """What is pending of event time."""
        return self._marks.marks

    def mark(self, mark: Mark) -> None:
        """Put a mark behind everything that is pending; the timers that it makes due come before
        it, and before whatever is admitted from now on."""
        self._marks.add(mark)
        self._admit_event_timers()

    @property
    def due_mark(self) -> Mark | None:
        """The first mark, if nothing before it is pending and none of its timers is left."""
        mark = self._marks.due
        if isinstance(mark, Watermark) and self._state.is_due(mark.timestamp, EVENT):
            return None
        return mark

    def pass_mark(self) -> None:
        """The due mark has gone on."""
        self._marks.pass_first()

    def _admit_event_timers(self) -> None:
        """Put timers that a pending watermark has made due into the list, as far as it has room."""
        watermark = self._marks.newest_watermark
        if watermark is None or self.timers_are_over:
            return
        while len(self._slots) < self._bound:
            popped = self._state.pop_due(watermark, EVENT)
            if popped is None:
                break
            timestamp, entry = popped
            self._append_event_timer(entry.key, timestamp)
        self._pool.wake()
        self._look_at_marks()

    def _queue_event_timers(self, key: Any) -> None:
        """A call has committed: timers of its key that are due already come before the records
        that were admitted behind their watermark (P21)."""
        watermark = self._marks.newest_watermark
        entry = self._state.entries.get(key)
        if watermark is None or entry is None or entry.timers is None:
            return
        queued = {slot.record for slot in self._queues.get(key, ()) if slot.clock == EVENT}
        for timestamp in sorted(at for at in entry.timers[EVENT] if at <= watermark):
            if timestamp not in queued:
                self._append_event_timer(key, timestamp)

    def _append_event_timer(self, key: Any, timestamp: int) -> None:
        slot = Slot(key, timestamp, clock=EVENT, epoch=self._marks.epoch_of(timestamp))
        queue = self._queues.get(key)
        if queue is None:
            self._append(slot)
            return
        # The first one is running, or may be at any moment.
        later = next((n for n, one in enumerate(queue) if n and one.epoch > slot.epoch), None)
        self._slots[slot] = None
        self._marks.opened(slot.epoch)
        queue.insert(len(queue) if later is None else later, slot)

    @property
    def _room(self) -> int:
        """Records behind a watermark wait until all of its timers are in the list."""
        watermark = self._marks.newest_watermark
        if watermark is not None and self._state.is_due(watermark, EVENT):
            return 0
        return super()._room

    # ---- work

    @property
    def pending_count(self) -> int:
        """Records, results and timers that are pending."""
        return len(self._slots)

    def begin_round(self) -> None:
        """Timers that are due join the pending list."""
        self._admit_timers()
        self._admit_event_timers()

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
            self._append(Slot(entry.key, timestamp, clock=PROCESSING, epoch=self._marks.epoch))
        self._pool.wake()

    def _key(self, record: Any, port: int) -> Any:
        return self._keys[port](record[0] if self._timed else record)

    def _append_record(self, record: Any, port: int, judged: int | None = None) -> None:
        slot = Slot(self._key(record, port), record, port=port, epoch=self._marks.epoch)
        slot.judged = judged
        if not is_deeply_immutable(record):
            try:
                slot.frozen = self.context.serializer.dumps(record, step=self._node.label)
            except SerializationError:
                # A snapshot that must hold it declines its checkpoint, with the reason.
                slot.frozen = None
        self._append(slot)

    def _append(self, slot: Slot) -> None:
        self._slots[slot] = None
        self._marks.opened(slot.epoch)
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
            self._marks.closed(slot.epoch)
            taken += 1
            if isinstance(slot.result, Failed):
                if slot.result.failure is not None:
                    diverted.append(slot.result.failure)
            elif slot.result is not None:
                values += slot.result
                for output, value in slot.sides:
                    self._side(output, [value])
        if diverted:
            self._reporter.divert(diverted)
        self._step_meter.records_out += len(values)
        if values:
            self._emit(values)
        self.slice_done(taken, started)
        return True
