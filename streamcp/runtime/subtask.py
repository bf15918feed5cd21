"""What every subtask does: carry out the decisions of its alignment, wait, measure, end.

The kinds of subtask differ in what they take, work on and hold; see their own files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from streamcp.channel.channel import Channel
from streamcp.channel.input_gate import InputGate
from streamcp.channel.output_gate import OutputGate
from streamcp.checkpoint.alignment import (
    Abandon,
    Acknowledge,
    Alignment,
    Block,
    CloseCapture,
    Count,
    Decision,
    Extent,
    Forward,
    Resume,
    TakeSnapshot,
)
from streamcp.checkpoint.failure_reason import FailureReason
from streamcp.checkpoint.plan import Trigger
from streamcp.checkpoint.snapshot import SectionKind, SubtaskStatistics
from streamcp.elements import (
    MAX_TIMESTAMP,
    Batch,
    CheckpointBarrier,
    Element,
    EndOfInput,
    IdleStatus,
    InFlight,
    Watermark,
)
from streamcp.identifiers import SubtaskId
from streamcp.runtime.blocking import BLOCKING
from streamcp.runtime.event_time import EventTime, content_of_mark
from streamcp.runtime.gateway import TaskContext
from streamcp.runtime.iteration import Iteration
from streamcp.runtime.meters import TaskMeter, Waiting
from streamcp.runtime.open_capture import OpenCapture
from streamcp.runtime.snapshots import (
    CapturedSection,
    ChannelSection,
    Freezing,
    SnapshotWriter,
    SubtaskSnapshot,
)
from streamcp.runtime.steps import Chain
from streamcp.runtime.waking import SliceLength, Wakeup
from streamcp.serialization.captured import Captured

_NONE: frozenset[int] = frozenset()

# A partial batch waits no longer than this while the task is busy; an idle task hands on at once.
BUFFER_TIMEOUT = 0.01


class Overtaking(Protocol):
    """Hands an overtaking barrier to the receivers of channels: the work list of the process."""

    @property
    def newest(self) -> int:
        """The newest checkpoint under way; 0 if there is none."""
        ...

    def trigger_of(self, checkpoint_id: int) -> Trigger:
        """How a checkpoint under way was begun."""
        ...

    def forward(self, channels: Iterable[Channel]) -> None:
        """Let the receivers of `channels` handle the barrier after this subtask is done."""
        ...


@dataclass(slots=True)
class _Gathering:
    """One checkpoint between its first barrier here and its acknowledgement."""

    trigger: Trigger
    first_barrier_at: float
    records_at_first: int
    blocked_since: dict[int, float] = field(default_factory=dict)
    blocked: dict[str, float] = field(default_factory=dict)
    acted_at: float = 0.0
    sync: float = 0.0
    alignment: float = 0.0
    records_during: int = 0
    escalated_after: float | None = None
    sections: list[Freezing] = field(default_factory=list)
    open: dict[int, OpenCapture] = field(default_factory=dict)


class Subtask:
    """One parallel instance of a task.

    `ended` says that it will do nothing more by itself: it has finished, or (a sink) only waits
    for checkpoints to commit what it wrote. `has_failed`: its work has ended in the middle.
    `held`: it takes nothing and starts nothing now.
    `on_idle` is called whenever it has handed everything on and waits, or has finished. `time` is
    its event time, if its records have timestamps."""

    def __init__(
        self,
        context: TaskContext,
        subtask: SubtaskId,
        gate: InputGate,
        output: OutputGate,
        chain: Chain,
        snapshots: SnapshotWriter,
        overtaking: Overtaking,
    ) -> None:
        self.context = context
        self.id = subtask
        self.gate = gate
        self.output = output
        self.chain = chain
        self.meter = TaskMeter()
        self.finished = False
        self.has_failed = False  # it still ends what it has begun, but holds not all of its records
        self.ended = False
        self.held = False
        self._held_for = 0  # the checkpoint of the stop
        self.iteration: Iteration | None = None
        self.on_idle: Callable[[], None] | None = None
        self.wakeup = Wakeup()
        self.turns = context.turns()
        self.slices = SliceLength(self.turns.share)
        self._snapshots = snapshots
        self._overtaking = overtaking
        self._alignment = Alignment(
            len(gate.channels), gate.back, at_least_once=context.at_least_once
        )
        self._outer_inputs: frozenset[int] = frozenset()
        self._gathering: _Gathering | None = None
        self._stopping = False
        self._closed = False
        self._flushed_at = context.clock.monotonic()
        self.time = self._new_time() if chain.timed else None
        self.time_is_due = False
        chain.time = self.time
        for channel in gate.channels:
            channel.wake_receiver = self.wakeup.set
        for channel in output.channels:
            channel.wake_sender = self.wakeup.set

    def _new_time(self) -> EventTime:
        """A loop's event time is that of what comes in from outside."""
        gate, untimed = self.gate, self.chain.untimed_ports
        ignored = gate.back | {n for n, port in enumerate(gate.ports) if port in untimed}
        names = [str(channel.id) for channel in gate.channels]
        groups = self.context.max_parallelism
        fire, send, held = self.fire_event_timers, self.output.send, self.chain.held_timestamp
        return EventTime(names, ignored, fire, send, groups, held)

    def __repr__(self) -> str:
        """Say what it waits for."""
        state = "finished" if self.finished else "ended" if self.ended else "running"
        return f"<{type(self).__name__} {self.id}: {state}>"

    # ---- what the kinds of subtask add

    def prepare(self) -> None:
        """Wire the chain and make what the kind holds, once, before anything is restored."""
        raise NotImplementedError

    async def open(self, stack: AsyncExitStack) -> None:
        """Enter every sink of this subtask that is a context manager, until the job ends."""
        await self.chain.open_sinks(stack)

    async def run(self) -> None:
        """Work until finished or cancelled."""
        raise NotImplementedError

    async def run_guarded(self) -> None:
        """Run; what is left of a subtask that failed in mid-slice is in no snapshot, although its
        attempt learns of the failure some turns later. One that is cancelled has lost nothing."""
        try:
            await self.run()
        except BaseException as error:
            self.note_end(error)
            raise

    def note_end(self, error: BaseException) -> None:
        """Work has ended by an error: in the middle, unless it was cancelled where it waited."""
        task = asyncio.current_task()
        assert task is not None
        if not (isinstance(error, asyncio.CancelledError) and task.cancelling()):
            self.has_failed = True

    def own_sections(self) -> list[Freezing]:
        """What this subtask holds beside its channels, as it is now. Synchronous, never slow."""
        return [*self.chain.snapshot()]

    def restore(self, kind: SectionKind, name: str, values: list[Any]) -> None:
        """Take back one section of its snapshot, before it runs."""
        if kind == "state":
            self.chain.restore(name, values)
        elif kind == "broadcast":
            self.chain.restore_broadcast(name, values)
        elif kind == "batch":
            self.chain.restore_batch(name, values)
        else:
            raise AssertionError(f"{self.id} has no place for a section of kind {kind!r}")

    def drain(self) -> None:
        """A stop with drain has begun: whoever reads from outside reads no more (rule P33)."""

    @property
    def holds_records(self) -> bool:
        """Some record is in its inputs, in its hands, or in a batch that it has not handed on."""
        return self.gate.queued_records > 0 or self.output.has_partials

    def checkpoint_begins(self) -> None:
        """A checkpoint begins in this process; its barrier may come much later."""

    def on_complete(self, checkpoint_id: int) -> None:
        """A checkpoint is complete (rule P30)."""

    @property
    def commits_outstanding(self) -> bool:
        """A sink has something to commit now."""
        return False

    # ---- barriers

    def hand_on(self) -> None:
        """Hand partial output batches on."""
        self.output.flush()
        self._flushed_at = self.context.clock.monotonic()

    def triggered(self, trigger: Trigger) -> None:
        """The coordinator begins a checkpoint at this subtask."""
        self._carry_out(
            self._alignment.trigger(
                trigger.checkpoint_id,
                unaligned=trigger.unaligned,
                finished=self._finished_channels(trigger),
            )
        )

    def overtaken(self, trigger: Trigger, channel: int) -> None:
        """A barrier came ahead of the queue of a channel."""
        self._carry_out(
            self._alignment.barrier_overtaking(
                trigger.checkpoint_id,
                channel,
                finished=self._finished_channels(trigger),
                in_line=self.gate.with_barrier(trigger.checkpoint_id),
            )
        )

    def escalate(self, trigger: Trigger) -> None:
        """The alignment timeout has fired (rule P26)."""
        self._carry_out(
            self._alignment.escalate(
                trigger.checkpoint_id,
                finished=self._finished_channels(trigger),
                in_line=self.gate.with_barrier(trigger.checkpoint_id),
            )
        )

    def cancel(self, checkpoint_id: int) -> None:
        """A checkpoint has ended without completing (rule P10)."""
        self.gate.remove_barrier(checkpoint_id)
        self._carry_out(self._alignment.cancel(checkpoint_id))
        if checkpoint_id == self._held_for:
            self.release()

    def hold(self) -> None:
        """A stop has cut here: hold still until its outcome is known (rule P33)."""
        self._stopping = True
        self._hold_still()

    def release(self) -> None:
        """A stop has failed: go on (rule P33)."""
        self._stopping = False
        self._go_on_if_free()

    def close_for_replay(self) -> None:
        """Hold still: what is restored behind this subtask comes first (rule P41)."""
        self._closed = True
        self._hold_still()

    def open_after_replay(self) -> None:
        """What was restored behind this subtask is worked off."""
        self._closed = False
        self._go_on_if_free()

    def replay_is_over(self) -> None:
        """No restored record is left in the job."""

    def _hold_still(self) -> None:
        self.held = True

    def _go_on_if_free(self) -> None:
        if self.held and not self._stopping and not self._closed:
            self._go_on()

    def _go_on(self) -> None:
        self.held = False
        self.wakeup.set()

    def take_final_snapshot(self, trigger: Trigger) -> None:
        """Contribute the state of a finished subtask to a checkpoint (rule P7)."""
        now = self.context.clock.monotonic()
        self._gathering = _Gathering(trigger, now, self.meter.records_in, acted_at=now)
        self._gathering.sections = self._sections()
        self._acknowledge()

    def _finished_channels(self, trigger: Trigger) -> frozenset[int]:
        if not trigger.finished:
            return _NONE
        return frozenset(
            number
            for number, channel in enumerate(self.gate.channels)
            if channel.id.sender in trigger.finished
        )

    def _carry_out(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Block(channel):
                    self._block(channel)
                case Count():
                    self._gather(self._alignment.current)
                case Resume(channels):
                    self._resume(channels)
                case TakeSnapshot(checkpoint_id, captures, open_captures):
                    self._take_snapshot(checkpoint_id, captures, open_captures)
                case Forward(checkpoint_id, overtaking):
                    self._forward(checkpoint_id, overtaking=overtaking)
                case CloseCapture(channel):
                    self._close_capture(channel)
                case Acknowledge():
                    self._acknowledge()
                case Abandon():
                    self._abandon()

    def _gather(self, checkpoint_id: int) -> _Gathering:
        """Return the record of a checkpoint, beginning it at its first barrier. Here one comes
        after the other, however many are under way."""
        trigger = self._overtaking.trigger_of(checkpoint_id)
        if self._gathering is None or self._gathering.trigger is not trigger:
            now = self.context.clock.monotonic()
            self._gathering = _Gathering(trigger, now, self.meter.records_in)
        return self._gathering

    def _block(self, channel: int) -> None:
        self.gate.blocked.add(channel)
        gathering = self._gather(self._alignment.current)
        gathering.blocked_since[channel] = self.context.clock.monotonic()

    def _resume(self, channels: frozenset[int]) -> None:
        self.gate.resume(channels)
        now = self.context.clock.monotonic()
        gathering = self._gathering
        if gathering is not None:
            for channel in channels:
                since = gathering.blocked_since.pop(channel, now)
                gathering.blocked[str(self.gate.channels[channel].id)] = now - since
        self.wakeup.set()

    def _take_snapshot(
        self, checkpoint_id: int, captures: Mapping[int, Extent], open_captures: frozenset[int]
    ) -> None:
        gathering = self._gather(checkpoint_id)
        started = self.context.clock.monotonic()
        trigger = gathering.trigger
        if self.has_failed:
            reason = FailureReason.DECLINED
            self.context.coordinator.decline(self.id, checkpoint_id, reason, "it has failed")
        gathering.alignment = started - gathering.first_barrier_at
        gathering.records_during = self.meter.records_in - gathering.records_at_first
        gathering.sections = self._sections()
        for channel, extent in captures.items():
            before = checkpoint_id if extent == "before_barrier" else None
            elements = self.gate.capture(channel, self.capture_batch, before_barrier=before)
            if channel in open_captures:
                self._open_capture(gathering, channel, elements)
            elif elements:
                gathering.sections.append(self._channel_section(channel, elements))
        if not trigger.unaligned and captures.keys() - self.gate.back:
            gathering.escalated_after = started - trigger.at
        if trigger.stopping:
            self._held_for = checkpoint_id
            self.hold()
        gathering.acted_at = self.context.clock.monotonic()
        gathering.sync = gathering.acted_at - started

    def _sections(self) -> list[Freezing]:
        sections = self.own_sections()
        if self.time is not None:
            label = self.chain.head
            captured = Captured(self.time.content(), self.context.serializer, step=label)
            sections.append(CapturedSection("event_time", label, [captured], 0))
        return sections

    def _open_capture(self, gathering: _Gathering, channel: int, elements: list[InFlight]) -> None:
        n = gathering.trigger.checkpoint_id
        ended = partial(self._barrier_arrived, n, channel)
        capture = OpenCapture(n, elements, self.capture_batch, ended)
        gathering.open[channel] = self.gate.channels[channel].capturing = capture

    def _barrier_arrived(self, checkpoint_id: int, channel: int) -> None:
        self._carry_out(self._alignment.barrier_in_line(checkpoint_id, channel))

    def _channel_section(self, channel: int, elements: list[InFlight]) -> ChannelSection:
        name = str(self.gate.channels[channel].id)
        return ChannelSection(name, elements, self._handle_of)

    def _handle_of(self, element: InFlight) -> Captured:
        if isinstance(element, Batch):
            return self.capture_batch(element)
        return Captured(content_of_mark(element), self.context.serializer, step=self.id.task)

    def capture_batch(self, batch: Batch) -> Captured:
        """Give a batch the handle by which it is frozen; one that it has already is reused, with
        its frozen bytes (rule P16)."""
        if batch.captured is None:
            serializer, step = self.context.serializer, self.id.task
            batch.captured = Captured(batch.values, serializer, step=step, fixed_list=True)
        captured: Captured = batch.captured
        return captured

    def _close_capture(self, channel: int) -> None:
        gathering = self._gather(self._alignment.current)
        self.gate.channels[channel].capturing = None
        capture = gathering.open.pop(channel)
        if capture.elements:
            gathering.sections.append(self._channel_section(channel, capture.elements))

    def _forward(self, checkpoint_id: int, *, overtaking: bool) -> None:
        if overtaking:
            self._overtaking.forward(self.output.channels)
        else:
            self.output.send(CheckpointBarrier(checkpoint_id))

    def _acknowledge(self) -> None:
        """Hand the whole snapshot over to be frozen and written."""
        gathering = self._gathering
        assert gathering is not None
        self._gathering = None
        self._snapshots.add(self._finished_snapshot(gathering))

    def _finished_snapshot(self, gathering: _Gathering) -> SubtaskSnapshot:
        trigger = gathering.trigger
        statistics = SubtaskStatistics(
            start_delay=gathering.first_barrier_at - trigger.at,
            alignment=gathering.alignment,
            sync=gathering.sync,
            barrier_delay=gathering.acted_at - trigger.at,
            escalated_after=gathering.escalated_after,
            records_during_alignment=gathering.records_during,
            blocked=gathering.blocked,
        )
        return SubtaskSnapshot(
            self.id,
            trigger.checkpoint_id,
            trigger.at,
            gathering.acted_at,
            gathering.sections,
            statistics,
            self.finished,
        )

    def _abandon(self) -> None:
        gathering = self._gathering
        self._gathering = None
        if gathering is None:
            return
        for channel in gathering.open:
            self.gate.channels[channel].capturing = None
        for section in gathering.sections:
            section.drop()

    # ---- input

    def take_element(self, *, data: bool) -> Element | None:
        """Take the next element and handle it if it is a control element.

        Without `data` only control elements are taken: there is no room for records."""
        taken = self.gate.take() if data else self.gate.take_control()
        if taken is None:
            return None
        channel, element = taken
        if type(element) is CheckpointBarrier:
            self._carry_out(self._alignment.barrier_in_line(element.checkpoint_id, channel))
        elif type(element) is EndOfInput:
            self.gate.ended.add(channel)
            self._end_in_time(channel)
            self._carry_out(self._alignment.end_of_input(channel))
        elif type(element) is not Batch and self.time is not None:
            self._take_mark(channel, element)
        return element

    def _take_mark(self, channel: int, mark: Element) -> None:
        """Note what a channel announces; it is worked off before anything else is taken."""
        assert self.time is not None
        if isinstance(mark, Watermark):
            self.time.inputs.advance(channel, mark.timestamp)
        elif isinstance(mark, IdleStatus):
            self.time.inputs.set_idle(channel, mark.idle)
        self.note_time()

    def _end_in_time(self, channel: int) -> None:
        if self.time is not None:
            self.time.inputs.end(channel)
            self.note_time()

    def note_time(self) -> None:
        """The inputs may have announced something."""
        assert self.time is not None
        self.time_is_due = self.time.is_due

    def slice_done(self, records: int, started: float) -> None:
        """Account for a slice that was worked off; the coordinator gets its chance."""
        now = self.context.clock.monotonic()
        self.meter.busy += now - started
        self.slices.observe(records, now - started)
        if now - started >= BLOCKING:
            self.chain.measure_calls()
        if now - self._flushed_at >= BUFFER_TIMEOUT:
            self.hand_on()
        self.context.end_of_slice(now)
        self._note_released()

    def _note_released(self) -> None:
        """Lists that held event time back may have gone on."""
        if self.time is not None and self.chain.has_batches:
            self.note_time()

    @property
    def timers_are_over(self) -> bool:
        """The loop around this subtask has ended: what a timer emitted would find no loop head."""
        return self.iteration is not None and self.iteration.ended

    @property
    def timers_are_due(self) -> bool:
        """Timers of the fused steps wait for nothing but room in the outputs."""
        if self.timers_are_over:
            return False
        due = self.chain.next_timer()
        return self.time_is_due or (due is not None and due <= self.context.clock.wall_ms())

    def fire_timers(self) -> bool:
        """Fire one due timer of each fused step, or let event time go on; False if none is due."""
        if self.timers_are_over:
            return False
        if self.chain.fire_timers():
            self._note_released()
            return True
        return self.time_is_due and self.work_off_time()

    def fire_event_timers(self, watermark: int) -> bool:
        """Fire some timers of the fused steps up to a watermark, as far as there is room for what
        they emit; False if there is none."""
        return self.chain.fire_event_timers(watermark, max(1, self.output.room))

    def work_off_time(self) -> bool:
        """Let event time go on by one timer or one mark; False if nothing is due."""
        assert self.time is not None
        if self.time.inputs.watermark == MAX_TIMESTAMP:  # nothing more comes into any list
            self.chain.flush_batches()
        worked = self.time.work_off()
        self.note_time()
        return worked

    def until_timer(self) -> float | None:
        """Seconds until the earliest timer of the fused steps; None if there is none, or if there
        is no room for what it may emit."""
        due = self.chain.next_timer()
        if due is None or not self.output.writable or self.timers_are_over:
            return None
        return max(0.0, (due - self.context.clock.wall_ms()) / 1000)

    # ---- loops

    def join(self, iteration: Iteration, outer_inputs: frozenset[int]) -> None:
        """Become part of a loop; `outer_inputs` are the channels that come from outside."""
        self.iteration = iteration
        self._outer_inputs = outer_inputs
        iteration.join(self)

    @property
    def outer_inputs_ended(self) -> bool:
        """Every input from outside the loop has delivered its end."""
        return self._outer_inputs <= self.gate.ended

    @property
    def is_empty(self) -> bool:
        """Nothing is queued, in hand or in a partial batch, no timer is due, and no `batch` step
        waits for more."""
        return not (self.holds_records or self.timers_are_due or self.chain.has_open_batches)

    def end_back_edges(self) -> None:
        """The loop has ended: nothing comes round any more, and no barrier either (P19)."""
        for channel in self.gate.back - self.gate.ended:
            self.gate.ended.add(channel)
            self._end_in_time(channel)
            self._carry_out(self._alignment.end_of_input(channel))
        self.wakeup.set()

    # ---- waiting and ending

    async def wait(self, waiting: Waiting, timeout: float | None = None) -> None:
        """Hand everything on, then wait to be woken; the time counts as `waiting`."""
        self.hand_on()
        if self.iteration is not None:
            self.iteration.look()
        if self.on_idle is not None:
            self.on_idle()
        clock, meter = self.context.clock, self.meter
        meter.begin(waiting, clock.monotonic())
        await self.wakeup.wait(timeout)
        self.wait_has_ended()

    def wait_has_ended(self) -> None:
        """Everything was handed on before it: unless calls have emitted meanwhile, what comes now
        waits since now. The share of the loop's time begins anew."""
        now = self.context.clock.monotonic()
        if not self.output.has_partials:
            self._flushed_at = now
        self.meter.end(now)
        self.turns.begin(now)

    def finish(self) -> None:
        """Everything is done: hand on what `batch` steps hold, and end the outputs."""
        self.chain.flush_batches()
        self.finished = True
        self.output.send(EndOfInput())
        if self.on_idle is not None:
            self.on_idle()
        self.end()

    def stay_finished(self) -> None:
        """It had finished before the restore: end the outputs again, behind captured data (P7)."""
        self.finished = True
        self.ended = True
        for channel in self.output.channels:
            channel.push(EndOfInput())

    def end(self) -> None:
        """Tell the coordinator, once, that nothing more will happen here by itself."""
        if not self.ended:
            self.ended = True
            self.context.coordinator.subtask_ended(self.id)
