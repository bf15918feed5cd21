"""The task of a source: it drives generators and works what they yield through its chain.

Position and data belong together (rule P6): a position is taken over in the same step in which
its records become the rest in hand, and what is not worked off of the rest is in the snapshot
beside it. What a reader has only collected counts as unread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import anyio

from streamcp.channel.input_watermarks import InputWatermarks
from streamcp.checkpoint.snapshot import SectionKind
from streamcp.elements import Batch
from streamcp.errors import StepFailed
from streamcp.operators.steps import SourceStep
from streamcp.operators.watermarks import Stamper
from streamcp.runtime.blocking import BLOCKING, COROUTINE
from streamcp.runtime.calling import describe, failure_of
from streamcp.runtime.drift import DriftMember
from streamcp.runtime.meters import Waiting
from streamcp.runtime.readers import Reader
from streamcp.runtime.snapshots import CapturedSection, Freezing
from streamcp.runtime.stepping import Stepping
from streamcp.runtime.subtask import BUFFER_TIMEOUT, Subtask
from streamcp.serialization.captured import Captured

_logger = logging.getLogger(__name__)

# A batch of so many records is worked off before the next one is asked for.
_ENOUGH = 256

# A user's generator may close a connection; a job that stops does not wait longer than this.
CLOSING_TIME = 5.0


class SourceSubtask(Subtask):
    """Reads one or several splits and works their records through the chain."""

    def prepare(self) -> None:
        """Wire the chain."""
        self._node = next(iter(self.chain.meters))
        spec = self._node.spec
        assert isinstance(spec, SourceStep)
        self._source = spec.source
        self._watermarks = spec.watermarks
        self._idle_after = None if spec.watermarks is None else spec.watermarks.idle_after
        self._push_ahead = self.chain.push_behind(self._node, "ahead")
        self._announced_at = 0.0
        self._unannounced = False  # stampers are ahead of what was announced
        self._push = self.chain.push_behind(self._node)
        if self.chain.has_timers:
            self.turns.held = self.chain.measure_calls
        self._feeds_loop = self.chain.only_step_behind(self._node, "main") is not None
        self._step_meter = self.chain.meters[self._node]
        self._rest: Batch | None = None
        self._offset = 0
        self._reads = True
        self.readers: list[Reader] = []
        self._draining = False
        self._reading: asyncio.Timeout | None = None
        self._freeing: asyncio.TimerHandle | None = None

    def set_splits(self, splits: Sequence[Any]) -> None:
        """Read these splits, from the start."""
        step, serializer = self._node.label, self.context.serializer
        self.readers = [
            Reader(
                self._source, split, step, serializer, self._new_stamper(step), self._new_member()
            )
            for split in splits
        ]

    def _new_stamper(self, step: str) -> Stamper[Any] | None:
        return None if self._watermarks is None else self._watermarks.stamper(step)

    def _new_member(self) -> DriftMember | None:
        """Before anything is read: whoever is fast must know whom to wait for."""
        marks = self._watermarks
        if marks is None or marks.align is None:
            return None
        return self.context.drift_group(marks.align).join(marks.max_drift, self.wakeup.set)

    # ---- snapshot

    def own_sections(self) -> list[Freezing]:
        """Positions and the rest, beside the states of fused keyed steps."""
        serializer, step = self.context.serializer, self._node.label
        # A reader that has collected its last records, which are not taken over, has not ended.
        positions = tuple(map(self._stored_position, self.readers))
        captured = Captured(positions, serializer, step=step)
        # The thawed copies are the snapshot's own, but immutable ones are shared: both are safe
        # to freeze later.
        sections: list[Freezing] = [CapturedSection("position", step, [captured], 0)]
        sections += self.chain.snapshot()
        rest = self._rest_in_hand()
        if rest is not None:
            sections.append(CapturedSection("rest", step, [self.capture_batch(rest)], len(rest)))
        return sections

    def _stored_position(self, reader: Reader) -> tuple[Any, ...]:
        """What is stored of a split: with event time also what is known of it there."""
        ended = self._draining or reader.has_ended
        stored = reader.split, reader.thawed_position(), ended
        return stored if reader.stamper is None else (*stored, reader.stamper.snapshot())

    def _rest_in_hand(self) -> Batch | None:
        """Make the rest a batch of its own, so that it can be captured."""
        rest = self._rest
        if rest is not None and (self._offset or rest.captured is None):
            self._rest = Batch(list(rest.values[self._offset :]))
            self._offset = 0
        return self._rest

    def restore(self, kind: SectionKind, name: str, values: list[Any]) -> None:
        """Take back positions, the rest, or the state of a fused step."""
        match kind:
            case "position":
                for positions in values:
                    for split, position, ended, *stamped in positions:
                        self._restore_reader(split, position, stamped, ended=ended)
            case "rest":
                self._rest = Batch([record for frame in values for record in frame])
            case _:
                super().restore(kind, name, values)

    def _restore_reader(
        self, split: Any, position: Any, stamped: Sequence[Any], *, ended: bool
    ) -> None:
        reader = self.reader_of(split)
        if reader is not None:
            reader.keep(position)
            reader.take_over()
            reader.ended = ended
            if reader.stamper is not None and stamped:
                reader.stamper.restore(stamped[0])
        elif not ended:
            _logger.warning(
                "source %r: split %r is no longer there; it was read up to position %r",
                self._node.label,
                split,
                position,
            )

    def reader_of(self, split: Any) -> Reader | None:
        """The reader of a split, if this subtask reads it."""
        return next((reader for reader in self.readers if reader.split == split), None)

    @property
    def all_read(self) -> bool:
        """Nothing is left to be read or worked off."""
        return self._rest is None and all(reader.ended for reader in self.readers)

    # ---- work

    @property
    def holds_records(self) -> bool:
        """The rest counts; what is not read does not."""
        return self._rest is not None or super().holds_records

    def close_for_replay(self) -> None:
        """Read nothing until the replay is over, and hold still until this subtask is opened."""
        super().close_for_replay()
        self._reads = False

    def replay_is_over(self) -> None:
        """Read on."""
        self._reads = True
        self.wakeup.set()

    async def _replay(self) -> None:
        """Work off what was restored, until this source may read on (rule P41)."""
        while not self._reads:
            await self._work_off_rest()
            if not self._reads:
                await self.wait("idle", timeout=self.until_timer())

    async def run(self) -> None:
        """Read until every generator has ended, or a drain, and everything is worked off."""
        self._begin_time()
        try:
            await self._replay()
            if not self._draining:
                await self._read()
            self._unannounced = True  # that the splits have ended
            await self._work_off_rest()
        except BaseException as error:  # closing may take its time
            self.note_end(error)
            raise
        finally:
            await self._close()
        self.finish()

    def stay_finished(self) -> None:
        """Its splits hold nobody back."""
        super().stay_finished()
        for reader in self.readers:
            self._tell_drift(reader)

    def drain(self) -> None:
        """Read no more, as if every split had its end where it was taken over (rule P33).

        What was only collected counts as unread. In the same step for all that follows: a
        snapshot from now on says that the splits have ended."""
        if self._draining:
            return
        self._draining = True
        for reader in self.readers:
            reader.end()
        if self._reading is not None:
            self._reading.reschedule(asyncio.get_running_loop().time())  # a generator may wait
        self.wakeup.set()

    async def _read(self) -> None:
        """Read and work off until every generator has ended, or is interrupted by a drain.

        The interruption is one cancellation, so that a generator may close what it holds."""
        try:
            async with asyncio.timeout(None) as self._reading:
                alone = len(self.readers) == 1 and self._idle_after is None
                if alone and not self.chain.calls_by_time:
                    await self._run_inline(self.readers[0])
                else:
                    await self._run_beside()
        except TimeoutError:
            if not self._draining:
                raise
        finally:
            self._reading = None

    async def _run_inline(self, reader: Reader) -> None:
        """One split is read by this task itself: no hand-over between tasks."""

        def before_wait() -> None:
            if reader.collected and not self.held:
                self._take_over(reader)
                while self._rest is not None:
                    self._work_slice(len(self._rest))
            self._announce_now()
            self.hand_on()
            self.meter.begin("idle", self.context.clock.monotonic())
            self._free_in_time()

        while True:
            await self._work_off_rest()
            if reader.ended:
                return
            if reader.is_ahead:
                self._announce_now()
                await self.wait("aligning")
                continue
            limit = min(self._most(reader), self.output.room)
            try:
                await self._collect(reader, limit, before_wait)
            finally:
                if self._freeing is not None:
                    self._freeing.cancel()
            if self.meter.waits:
                self.wait_has_ended()
            if not self.held:
                self._take_over(reader)

    def _free_in_time(self) -> None:
        """The generator waits, and this task with it: let the loop free what expires meanwhile."""
        due = self.until_timer() if self.chain.has_timers else None
        if due is not None:
            self._freeing = asyncio.get_running_loop().call_later(due, self._free)

    def _free(self) -> None:
        self.chain.fire_timers()
        self._free_in_time()

    async def _run_beside(self) -> None:
        """Tasks of their own collect, one per split; this one takes over, in turn."""
        async with asyncio.TaskGroup() as group:
            for reader in self.readers:
                if not reader.ended:
                    group.create_task(self._keep_collecting(reader), name=f"read {self.id}")
            while True:
                await self._work_off_rest()
                ready = (r for r in self.readers if r.collected and not self._must_wait(r))
                reader_ready = next(ready, None)
                if reader_ready is not None:
                    # It goes to the end: the others are served first the next time.
                    self.readers.remove(reader_ready)
                    self.readers.append(reader_ready)
                    self._take_over(reader_ready)
                elif all(reader.ended for reader in self.readers):
                    return
                elif self._announce() and self.output.writable:
                    continue
                else:
                    waits = any(reader.must_wait for reader in self.readers)
                    waiting: Waiting = "aligning" if waits else "idle"
                    await self.wait(waiting, timeout=self._until_timer_or_idle())

    async def _keep_collecting(self, reader: Reader) -> None:
        while not reader.ended:
            await self._collect(reader, self._most(reader), self.wakeup.set)
            self.wakeup.set()
            while reader.collected:
                reader.taken_over.clear()
                await reader.taken_over.wait()

    def _most(self, reader: Reader) -> int:
        """How many records are read in a row: of a source that keeps together with others so few
        that it does not get far ahead with them."""
        records = self.slices.records
        return records if reader.member is None else min(records, _ENOUGH)

    def _must_wait(self, reader: Reader) -> bool:
        """Say whether a split must not be read on: it waits for others, so it is not idle."""
        if not reader.must_wait:
            return False
        self._active(reader)
        return reader.must_wait  # whoever was idle may be the slowest

    async def _collect(self, reader: Reader, limit: int, before_wait: Callable[[], None]) -> None:
        """Read until `limit` records are collected, the source ends, or it had to wait."""
        generator = reader.begin()
        batches = self._source.batches
        if batches:
            limit = min(limit, _ENOUGH)
        waited = False
        started = self.context.clock.monotonic()

        def about_to_wait() -> None:
            nonlocal waited
            waited = True
            self._look_back(reader, started)
            before_wait()

        while not waited and len(reader.collected) < limit:
            try:
                read = await Stepping(generator.__anext__(), about_to_wait)
            except StopAsyncIteration:
                reader.ended = True
                break
            except StepFailed:
                raise
            except asyncio.CancelledError as error:
                raise self._failed(reader, failure_of(error)) from error
            except Exception as error:  # whatever a user's generator raises
                raise self._failed(reader, error) from error
            try:
                records, position = read
            except (TypeError, ValueError):
                raise self._failed(reader, _no_pair(read, batches)) from None
            if batches:
                reader.collect_batch(records)
            else:
                reader.collect(records)
            reader.keep(position)
        if not waited:
            self._look_back(reader, started)

    def _look_back(self, reader: Reader, started: float) -> None:
        """Notice a generator that has worked for too long without a wait."""
        seconds = self.context.clock.monotonic() - started
        if seconds >= BLOCKING:
            doing = f"while it made {len(reader.collected)} records"
            self.context.blocking.notice(self._node, seconds, doing, COROUTINE)

    def _failed(self, reader: Reader, error: Exception) -> StepFailed:
        split = "" if reader.split is None else f", split {reader.split!r},"
        return StepFailed(
            f"source {self._node.label!r} ({self._node.place}){split} failed after position "
            f"{reader.thawed_position()!r}: {describe(error)}"
        )

    def _take_over(self, reader: Reader) -> None:
        if self._draining:
            reader.end()  # its generator went on until it was interrupted
            return
        records = reader.take_over()
        self.meter.records_in += len(records)
        self._step_meter.records_in += len(records)
        self._step_meter.records_out += len(records)
        if records:
            # Loops take any sequence; whatever else is behind the source wants lists.
            needs_list = reader.stamper is not None or not self._feeds_loop
            values: Any = list(records) if needs_list else records
            self.context.strict.look(self._node, values)
            if reader.stamper is not None:
                values = self._stamped(reader, reader.stamper, values)
            if values:
                self._rest, self._offset = Batch(values), 0

    # ---- event time

    def _begin_time(self) -> None:
        """Every split that is read here is an input of event time."""
        if self.time is None:
            return
        self.time.inputs = InputWatermarks(len(self.readers))
        for number, reader in enumerate(self.readers):
            reader.number = number
            self._tell_drift(reader)
        self._all_active()
        self._unannounced = True

    def _stamped(
        self, reader: Reader, stamper: Stamper[Any], records: list[Any]
    ) -> list[tuple[Any, int]]:
        assert self.time is not None
        stamped = stamper.stamp(records, self.context.clock.wall_ms())
        if stamped.ahead:
            # Their own timestamps are what is wrong with them.
            self._push_ahead([(record, self.time.earliest) for record in stamped.ahead])
        self._active(reader)
        self._tell_drift(reader)
        self._unannounced = True
        return list(zip(stamped.records, stamped.timestamps, strict=True))

    def _tell_drift(self, reader: Reader) -> None:
        """Tell the sources that a split keeps together with how far it has come."""
        if reader.member is not None and reader.stamper is not None:
            reader.member.advance(reader.stamper.watermark)
            if reader.has_ended:
                reader.member.end()

    def _active(self, reader: Reader) -> None:
        assert self.time is not None
        reader.active_at = self.context.clock.monotonic()
        if reader.number in self.time.inputs.idle:
            self.time.inputs.set_idle(reader.number, False)
            if reader.member is not None:
                reader.member.set_idle(False)
            self.note_time()

    def _all_active(self) -> None:
        """Whoever waits for room is not idle."""
        if self._idle_after is None:
            return
        now = self.context.clock.monotonic()
        for reader in self.readers:
            reader.active_at = now

    def _announce(self) -> bool:
        """Note how far event time has come behind all that is worked off; say whether that is to
        be worked off now."""
        if self.time is None:
            return False
        inputs, now = self.time.inputs, self.context.clock.monotonic()
        self._announced_at, self._unannounced = now, False
        for reader in self.readers:
            stamper, number = reader.stamper, reader.number
            assert stamper is not None
            ended = reader.has_ended
            self._tell_drift(reader)
            if stamper.watermark > inputs.watermarks[number]:
                # Also before an end, so that what fires until then does not depend on haste.
                inputs.advance(number, stamper.watermark)
                self._unannounced |= ended
            elif ended:
                inputs.end(number)
            elif self._idle_after is not None and now - reader.active_at >= self._idle_after:
                inputs.set_idle(number, True)
                if reader.member is not None:
                    reader.member.set_idle(True)
        self.note_time()
        return self.time_is_due

    def _announce_now(self) -> None:
        """The generator is about to wait: what is worked off goes on at once."""
        if self.time is not None and self._rest is None and not self.held:
            self._announce()
            while self.time_is_due and self.output.writable:
                self.work_off_time()

    def _announce_in_time(self) -> bool:
        """While there is always something to read a watermark goes on now and then; say whether
        something is to be worked off now."""
        if not self._unannounced:
            return self.time_is_due
        late = self.context.clock.monotonic() - self._announced_at >= BUFFER_TIMEOUT
        return (late or self.all_read) and (self._announce() or self._unannounced)

    def _until_timer_or_idle(self) -> float | None:
        """Seconds until the next timer, or until the next split is idle."""
        due = self.until_timer()
        if self._idle_after is None or self.time is None:
            return due
        now, idle = self.context.clock.monotonic(), self.time.inputs.idle
        active = [r for r in self.readers if not r.ended and r.number not in idle]
        left = [max(0.0, r.active_at + self._idle_after - now) for r in active]
        return min(left if due is None else [*left, due], default=None)

    async def _work_off_rest(self) -> None:
        """Work the rest in hand off, slice by slice, and wait until there is room for more."""
        clock, output = self.context.clock, self.output
        timed = self.chain.has_timers or self.time is not None
        while True:
            room = output.room
            if self.held:
                await self.wait("idle")
                self._all_active()
            elif room < output.enough:
                await self.wait("backpressured")
                self._all_active()
            elif timed and self.fire_timers():
                await self.turns.end_if_over(clock.monotonic())
            elif self._rest is not None:
                self._work_slice(min(self.slices.records, room))
                await self.turns.end_if_over(clock.monotonic())
            elif not (self.time is not None and self._announce_in_time()):
                return

    def _work_slice(self, limit: int) -> None:
        rest = self._rest
        assert rest is not None
        if rest.captured is not None:
            rest.captured.before_use()
        end = self._offset + limit
        whole = self._offset == 0 and end >= len(rest)
        records = rest.values if whole else rest.values[self._offset : end]
        if end >= len(rest):
            self._rest = None
        self._offset = end
        started = self.context.clock.monotonic()
        self._push(records)
        self.slice_done(len(records), started)

    async def _close(self) -> None:
        """Close the generators, whatever ended the task."""
        for reader in self.readers:
            close = getattr(reader.generator, "aclose", None)
            if close is None:
                continue
            try:
                with anyio.move_on_after(CLOSING_TIME, shield=True):
                    await close()
            except Exception:  # whatever a user's generator raises: it is read no more
                _logger.warning("source %r: closing it failed", self._node.label, exc_info=True)


def _no_pair(read: object, batches: bool) -> TypeError:
    pair = "(records, position after them)" if batches else "(record, position after it)"
    return TypeError(f"it yielded {read!r}; yield {pair}")
