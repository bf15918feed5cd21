"""What the tasks of coroutine steps have in common: admit records, let a pool call, emit results.

This task admits and emits; workers make the calls (`call_pool`). A barrier passes both: what is
pending is in the snapshot, and no call is waited for (rule P20).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any

from streamcp.checkpoint.journal import AnswersOfSubtask
from streamcp.checkpoint.snapshot import SectionKind
from streamcp.elements import IdleStatus, Mark, Watermark
from streamcp.operators.steps import Call
from streamcp.runtime.call_ids import SubtaskCallIds
from streamcp.runtime.call_pool import CallPool
from streamcp.runtime.calling import expanded
from streamcp.runtime.calls import Calls
from streamcp.runtime.executing import Executing
from streamcp.runtime.journal import Journal
from streamcp.runtime.meters import Waiting
from streamcp.runtime.pending import CapturedPending
from streamcp.runtime.processes import Processes
from streamcp.runtime.snapshots import CapturedSection, Freezing
from streamcp.runtime.subtask import Subtask
from streamcp.runtime.threads import Threads
from streamcp.serialization.captured import Captured

# Records, results and waiters together, per call that may run at once: enough that a worker
# always finds a next record while results wait for their turn (rule P21).
PENDING_PER_CALL = 4
# Each time the list is emptied and filled costs as much as twenty short calls: it may always hold
# so many, but with few calls at once no more than an input channel.
CHEAP_PENDING = 256
# It is refilled when so much of it is free: one record at a time would also leave a snapshot as
# many pieces to copy, while the barrier passes.
SHARE_TO_REFILL = 8


class PooledSubtask(Subtask):
    """Runs a coroutine function in a pool. The kinds differ in what their pending list is."""

    def prepare(self) -> None:
        """Wire the step and what is fused behind it."""
        self._node = next(iter(self.chain.meters))
        spec = self._node.spec
        assert isinstance(spec, Call)
        assert spec.calls is not None
        self._options = spec.calls
        self._step_meter = self.chain.meters[self._node]
        self._reporter = self.chain.reporter(self._node)
        self._emit = self.chain.push_behind(self._node)
        capacity = max(channel.capacity for channel in self.gate.channels)
        few = min(CHEAP_PENDING, capacity)
        self._bound = max(few, PENDING_PER_CALL * spec.calls.concurrency)
        self._refilled_at = self._bound - max(1, self._bound // SHARE_TO_REFILL)
        self.turns.held = self.chain.measure_calls
        self._captured: dict[int, Captured] = {}  # pending lists of checkpoints under way

        self._ids: SubtaskCallIds | None = None  # once the first one is asked for
        self._journal: Journal | None = self.context.journal if spec.calls.journal else None
        if self._journal is not None:
            self._answers = AnswersOfSubtask(self._journal.head.base)

        self._executing: Executing | None = None
        if spec.calls.executor is not None:
            kind = Threads if spec.calls.executor == "thread" else Processes
            self._executing = kind(spec.calls.concurrency, self._node.label)
        self.direct: Callable[[Any], Awaitable[Any]] | None = None
        self.in_place = False
        self.told = False

    def make_pool(self, calls: Calls) -> None:
        """Make the pool, when everything that it asks for is there."""
        context, options, node = self.context, self._options, self._node
        limits = context.limits_of(node.label, options.rates, options.breaker)
        chance = context.chances(self.id)
        self._pool = CallPool(calls, options, context, self._step_meter, node, limits, chance)

    @property
    def wait_returned(self) -> Callable[[], Awaitable[None]] | None:
        """Waits until a call that timed out has ended; None if it has, as all but those
        in an executor have."""
        return None if self._executing is None else self._executing.wait_returned

    def tell(self) -> None:
        """There are results: wake the task, once until it has looked."""
        if not self.told:
            self.told = True
            self.wakeup.set()

    # ---- what the kinds add

    @property
    def pending_count(self) -> int:
        """Records, results and timers that are pending."""
        raise NotImplementedError

    def record_of(self, ticket: Any) -> tuple[Any, ...]:
        """The record of a call, alone in a tuple; nothing for that of a timer."""
        raise NotImplementedError

    def content_of(self, ticket: Any) -> tuple[Hashable, Any]:
        """The key of what a call is for, None without one, and its content as it came."""
        raise NotImplementedError

    def has_ended(self, ticket: Any) -> bool:
        """A call will not be made again."""
        raise NotImplementedError

    def admit_records(self, records: list[Any]) -> None:
        """Append records to the pending list."""
        raise NotImplementedError

    @property
    def marks(self) -> Sequence[Mark]:
        """What is pending of event time, between the records."""
        raise NotImplementedError

    def mark(self, mark: Mark) -> None:
        """Put a mark behind everything that is pending."""
        raise NotImplementedError

    @property
    def due_mark(self) -> Mark | None:
        """The first mark, if nothing before it is pending any more (rule P21)."""
        raise NotImplementedError

    def pass_mark(self) -> None:
        """The due mark has gone on."""
        raise NotImplementedError

    def emit_results(self) -> bool:
        """Emit results whose turn has come, as far as there is room; False if there are none."""
        raise NotImplementedError

    @property
    def holds_records(self) -> bool:
        """Pending records, results and timers count."""
        return self.pending_count > 0 or super().holds_records

    def begin_round(self) -> None:
        """The task looks at everything anew."""

    # ---- ids of calls

    def call_id(self, ticket: Any) -> str:
        """The id of a call that has not ended; see `operators.calls`."""
        ids = self._call_ids()
        if len(ids) > 2 * self._bound:
            ids.forget(self.has_ended)
        key, content = self.content_of(ticket)
        step = self._node.label
        return ids.of(ticket, key, self.context.serializer.digest(content, step=step))

    def _call_ids(self) -> SubtaskCallIds:
        if self._ids is None:
            self._ids = SubtaskCallIds(self.context.call_ids_of(self._node.label))
        return self._ids

    def calls_sections(self) -> list[Freezing]:
        """Capture the ids of calls, and which journaled answers the cut divides, if there are
        any."""
        sections: list[Freezing] = []
        if self._ids is not None:
            self._ids.forget(self.has_ended)
            sections.append(self._captured_section("calls", self._ids.snapshot()))
        if self._journal is not None:
            assert self._gathering is not None
            divided = self._answers.snapshot(self._gathering.trigger.checkpoint_id)
            if divided is not None:
                sections.append(self._captured_section("journal", divided))
        return sections

    def _captured_section(self, kind: SectionKind, content: Any) -> CapturedSection:
        step = self._node.label
        captured = Captured(content, self.context.serializer, step=step)
        return CapturedSection(kind, step, [captured], 0)

    def restore(self, kind: SectionKind, name: str, values: list[Any]) -> None:
        """Take back the ids of calls, or the state of a fused step."""
        if kind == "calls":
            for pages, open_calls in values:
                self._call_ids().restore(pages, open_calls)
        else:
            super().restore(kind, name, values)

    # ---- the journal of answers

    @property
    def has_left_answers(self) -> bool:
        """There are answers of the step from before the restore."""
        return self._journal is not None and len(self._journal.left[self._node.label]) > 0

    def replay(self, ticket: Any, value: Any) -> None:
        """Let the answer count that a call had before the restore."""
        raise NotImplementedError

    def replayed(self, ticket: Any, state: bytes = b"") -> bool:
        """Let the answer count that a call had before the restore, if it was found; False if not.
        `state` is the digest of the state that the call finds."""
        if not self.has_left_answers:
            return False
        assert self._journal is not None
        content = self._digest_of_content(ticket)
        answer = self._journal.take(self._answers, self._node.label, content, state)
        if answer is None:
            return False
        if answer.number is not None:
            self._call_ids().answered(answer.content, answer.number)
        self.replay(ticket, self.context.serializer.loads(answer.value))
        return True

    def journaled(
        self, ticket: Any, value: Any, counts: Callable[[], None], state: bytes = b""
    ) -> None:
        """Make an answer durable, then let it count; `state` is the digest of the state that the
        call has found."""
        assert self._journal is not None
        step = self._node.label
        self._journal.add(
            self._answers,
            counts,
            step=step,
            content=self._digest_of_content(ticket),
            state=state,
            number=None if self._ids is None else self._ids.number_of(ticket),
            value=self.context.serializer.dumps(value, step=step),
        )

    def _digest_of_content(self, ticket: Any) -> bytes:
        _, content = self.content_of(ticket)
        return self.context.serializer.digest(content, step=self._node.label)

    # ---- event time

    def note_time(self) -> None:
        """What the inputs have announced waits for all that is pending before it (rule P21)."""
        time = self.time
        assert time is not None
        newest = (mark.timestamp for mark in reversed(self.marks) if isinstance(mark, Watermark))
        if time.inputs.watermark > next(newest, time.watermark):
            self.mark(Watermark(time.inputs.watermark))
        idle = (mark.idle for mark in reversed(self.marks) if isinstance(mark, IdleStatus))
        if time.inputs.all_idle != next(idle, time.idle):
            self.mark(IdleStatus(time.inputs.all_idle))
        self._look_at_marks()

    def _look_at_marks(self) -> None:
        self.time_is_due = self.due_mark is not None

    def work_off_time(self) -> bool:
        """Fire a timer of the fused steps, or let the due mark go on; False if none is due."""
        mark, time = self.due_mark, self.time
        assert time is not None
        if isinstance(mark, Watermark):
            if self.fire_event_timers(mark.timestamp):
                return True
            time.reached(mark.timestamp)
        elif mark is not None:
            time.send_idle(mark.idle)
        if mark is not None:
            self.pass_mark()
        self._look_at_marks()
        return mark is not None

    # ---- snapshot

    def pending_section(
        self, entries: Callable[[], list[tuple[int, Any]]], count: int
    ) -> CapturedSection:
        """Capture the pending list: what `entries()` lists, `count` entries."""
        assert self._gathering is not None
        step = self._node.label
        captured = CapturedPending(entries, self.context.serializer, step=step)
        self._captured[self._gathering.trigger.checkpoint_id] = captured
        return CapturedSection("pending", step, [captured], count)

    def results_leave(self) -> None:
        """Results are about to leave the captured lists: whoever gets them may change them."""
        for captured in self._captured.values():
            captured.before_use()
        self._captured.clear()

    def on_complete(self, checkpoint_id: int) -> None:
        """What a complete checkpoint holds is frozen."""
        self._captured.pop(checkpoint_id, None)

    def cancel(self, checkpoint_id: int) -> None:
        """What a cancelled checkpoint was to hold need not be frozen any more."""
        super().cancel(checkpoint_id)
        self._captured.pop(checkpoint_id, None)

    # ---- work

    async def run(self) -> None:
        """Admit, call and emit until all inputs have ended and nothing is pending."""
        try:
            async with asyncio.TaskGroup() as group:
                self._pool.begin(group)
                self._pool.wake()
                try:
                    await self._run()
                except BaseException as error:  # the calls take their time to end
                    self.note_end(error)
                    raise
                finally:
                    self._pool.close()
        finally:
            if self._executing is not None:
                await self._executing.close()
        self.finish()

    async def _run(self) -> None:
        clock = self.context.clock
        while True:
            if self.held:
                await self.wait("idle")
                continue
            self.begin_round()
            while not self.held and self.output.writable and self.fire_timers():
                await self.turns.end_if_over(clock.monotonic())
            if self.refill():
                await self.turns.end_if_over(clock.monotonic())
            elif self._drained and not self.timers_are_due:
                return
            elif self.time_is_due and self.output.writable and not self.held:
                continue
            elif not self.held:
                await self.wait(self._waiting_for(), timeout=self.until_timer())

    def _hold_still(self) -> None:
        """No further call is started."""
        super()._hold_still()
        self._pool.pause()

    def _go_on(self) -> None:
        """Calls are started again."""
        super()._go_on()
        self._pool.go_on()

    def refill(self) -> bool:
        """Emit results and admit records, as far as there is room; False if nothing was done."""
        if self.held:
            return False
        try:
            emitted = self.emit_results()
        except BaseException:
            # Perhaps in a worker: the task itself ends some turns later.
            self.has_failed = True
            raise
        if emitted and self.time is not None:
            self._look_at_marks()
            if self.time_is_due:
                self.wakeup.set()
        return self._admit() or emitted

    @property
    def _drained(self) -> bool:
        return self.gate.hand is None and self.gate.all_ended and not self.pending_count

    def _waiting_for(self) -> Waiting:
        if not self.output.writable:
            return "backpressured"
        return "busy" if self.pending_count > self._refilled_at else "idle"

    @property
    def _room(self) -> int:
        """How many records may be admitted now."""
        count = self.pending_count
        return self._bound - count if count <= self._refilled_at else 0

    def _admit(self) -> bool:
        """Move records from the input to the pending list, as many as it may hold."""
        gate = self.gate
        room = self._room
        while gate.hand is None and not self.held:
            if self.take_element(data=room > 0) is None:
                return False
        if room <= 0 or self.held:
            return False
        channel = gate.hand_channel
        records = gate.slice(room)
        self.admit_records(records)
        gate.release(channel, len(records))
        self.meter.records_in += len(records)
        self._step_meter.records_in += len(records)
        self._pool.wake()
        return True


def gathered(fn: Callable[..., Any]) -> Callable[..., Awaitable[list[Any]]]:
    """Make one coroutine function of one that returns an iterable, at once or to be awaited, or
    is an async generator."""

    async def call(*arguments: Any) -> list[Any]:
        result = fn(*arguments)
        if hasattr(result, "__aiter__"):
            return [value async for value in result]
        if hasattr(result, "__await__"):
            result = await result
        return list(expanded(result))

    return call
