"""From the moment of the cut to durable bytes: freezing in slices, then one file per checkpoint.

Freezing runs on the event loop's thread, a little at a time (pickling holds the interpreter lock
anyway); only the file work goes to a thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from streamcp.checkpoint.failure_reason import FailureReason
from streamcp.checkpoint.snapshot import (
    IN_FLIGHT,
    Acknowledgement,
    Section,
    SectionHandle,
    SectionKind,
    SubtaskStatistics,
)
from streamcp.elements import Batch, InFlight
from streamcp.errors import SerializationError, StorageError
from streamcp.identifiers import SubtaskId
from streamcp.runtime.gateway import DataWriter, TaskContext
from streamcp.runtime.waking import TURN, Wakeup
from streamcp.serialization.captured import Captured
from streamcp.storage.in_thread import in_thread

# Freezing works in slices, one per turn of the event loop. While the other tasks leave time to
# spare, short ones use all of it, and a record hardly waits for them. Of a thread that is busy for
# whole turns freezing gets half, a slice as long as the others took: so its end does not depend on
# the number of tasks. No user's coroutine waits longer than the longest.
SHORTEST_FREEZE = 0.0005
LONGEST_FREEZE = 0.01
# Short batches are frozen several at a time: to look at the clock takes as long as to freeze one.
SOME_RECORDS = 16
# What takes longer than this is no small snapshot: from then on the others get so many times as
# long as a slice took, before the next one. A large state would else halve the throughput for
# seconds (decision 0032). A turn of the loop as short as this says that they have nothing to do.
EAGER_FREEZE = 0.05
PATIENCE = 9
IDLE_TURN = 0.0002


class Freezing(Protocol):
    """Content that is frozen step by step."""

    error: SerializationError | None

    def freeze_some(self) -> bool:
        """Freeze a little; False when nothing is left."""
        ...

    def section(self) -> Section:
        """The frozen content."""
        ...

    def drop(self) -> None:
        """The checkpoint has ended: keep nothing."""
        ...

    def written(self, handle: SectionHandle) -> tuple[SectionHandle, ...]:
        """Storage has the section, at `handle`; returns all that hold the content now, in the
        order in which they are read: those that it builds on, and itself as the last one."""
        ...

    def completed(self) -> None:
        """The checkpoint is complete: later ones may build on this section (rule P16)."""
        ...


class CapturedSection:
    """A section made of captured values, each a frame: a channel, a rest, a pending list."""

    def __init__(
        self, kind: SectionKind, name: str, captured: Sequence[Captured], records: int
    ) -> None:
        self._kind = kind
        self._name = name
        self._captured = captured
        self._records = records
        self._next = 0
        self.error: SerializationError | None = None

    def freeze_some(self) -> bool:
        """Freeze the next value."""
        if self._next == len(self._captured) or self.error is not None:
            return False
        captured = self._captured[self._next]
        captured.freeze()
        self.error = captured.error
        self._next += 1
        return True

    def section(self) -> Section:
        """The frozen content."""
        frames = tuple(captured.frozen or b"" for captured in self._captured)
        return Section(self._kind, self._name, frames, self._records)

    def drop(self) -> None:
        """Nothing is kept here: the values belong to their owners."""

    def written(self, handle: SectionHandle) -> tuple[SectionHandle, ...]:
        """It stands alone; the values are needed no more."""
        self._captured = ()
        return (handle,)

    def completed(self) -> None:
        """Nothing ever builds on it."""


class ChannelSection:
    """The captured elements of a channel, each a frame. Nothing of them is touched before they are
    frozen: there may be hundreds of batches, and a barrier is passing when this is made."""

    def __init__(
        self, name: str, elements: Sequence[InFlight], handle_of: Callable[[InFlight], Captured]
    ) -> None:
        self._name = name
        self._elements = elements
        self._handle_of = handle_of
        self._frames: list[bytes] = []
        self._records = 0
        self.error: SerializationError | None = None

    def freeze_some(self) -> bool:
        """Freeze the next elements, until some records are frozen that were not before."""
        if len(self._frames) == len(self._elements) or self.error is not None:
            return False
        records = 0
        for element in self._elements[len(self._frames) :]:
            length = len(element.values) if type(element) is Batch else 0
            captured = self._handle_of(element)
            if captured.frozen is None:
                captured.freeze()
                records += max(1, length)
            self._frames.append(captured.frozen or b"")
            self._records += length
            if records >= SOME_RECORDS or captured.error is not None:
                self.error = captured.error
                break
        return True

    def section(self) -> Section:
        """The frozen content."""
        return Section("channel", self._name, tuple(self._frames), self._records)

    def drop(self) -> None:
        """Nothing is kept here: the elements belong to their channel."""

    def written(self, handle: SectionHandle) -> tuple[SectionHandle, ...]:
        """It stands alone; the elements are needed no more."""
        self._elements, self._frames = (), []
        return (handle,)

    def completed(self) -> None:
        """Nothing ever builds on it."""


@dataclass(slots=True)
class SubtaskSnapshot:
    """What one subtask contributes to one checkpoint, whole but not yet frozen."""

    subtask: SubtaskId
    checkpoint_id: int
    triggered_at: float
    acted_at: float
    sections: list[Freezing]
    statistics: SubtaskStatistics
    finished: bool = False
    frozen: list[Section] = field(default_factory=list)


class SnapshotWriter:
    """The background task of one process: freezes what subtasks add, writes it when all have."""

    def __init__(self, context: TaskContext, writer: DataWriter | None) -> None:
        """Write by `writer`; None keeps nothing (a job without checkpoint storage)."""
        self._context = context
        self._writer = writer
        self._expected: dict[int, int] = {}
        self._added: dict[int, list[SubtaskSnapshot]] = {}
        self._written: dict[int, list[Freezing]] = {}
        self._to_freeze: deque[SubtaskSnapshot] = deque()
        self._wakeup = Wakeup()
        self._since = self._until = 0.0  # beginning and end of a slice
        self._eager = 0.0  # how much longer the newest checkpoint gets as much as the others

    def expect(self, checkpoint_id: int, subtasks: int) -> None:
        """A checkpoint begins, to which that many subtasks of this process contribute."""
        self._expected[checkpoint_id] = subtasks
        self._added[checkpoint_id] = []
        self._eager = EAGER_FREEZE

    def add(self, snapshot: SubtaskSnapshot) -> None:
        """Take one subtask's contribution; it is dropped if the checkpoint has ended."""
        if snapshot.checkpoint_id not in self._expected:
            for section in snapshot.sections:
                section.drop()
            return
        if self._writer is None:
            # Nothing is kept, so nothing need be serializable.
            for section in snapshot.sections:
                section.drop()
            snapshot.sections.clear()
        self._added[snapshot.checkpoint_id].append(snapshot)
        self._to_freeze.append(snapshot)
        self._wakeup.set()

    def drop(self, checkpoint_id: int) -> None:
        """The checkpoint has ended without completing."""
        self._expected.pop(checkpoint_id, None)
        self._written.pop(checkpoint_id, None)
        for snapshot in self._added.pop(checkpoint_id, ()):
            for section in snapshot.sections:
                section.drop()

    def completed(self, checkpoint_id: int) -> None:
        """The checkpoint is complete."""
        for section in self._written.pop(checkpoint_id, ()):
            section.completed()

    async def run(self) -> None:
        """Work until cancelled."""
        self._begin_slice()
        while True:
            while self._to_freeze:
                snapshot = self._to_freeze.popleft()
                if snapshot.checkpoint_id in self._expected and await self._freeze(snapshot):
                    await self._write_if_whole(snapshot.checkpoint_id)
            await self._wakeup.wait()
            self._begin_slice()

    def _begin_slice(self) -> None:
        self._since = self._context.clock.monotonic()
        self._until = self._since + SHORTEST_FREEZE

    async def _freeze(self, snapshot: SubtaskSnapshot) -> bool:
        monotonic = self._context.clock.monotonic
        for section in snapshot.sections:
            while section.freeze_some():
                if (now := monotonic()) >= self._until:
                    await self._let_others_run(now)
            if snapshot.checkpoint_id not in self._expected:
                return False
            if section.error is not None:
                self._decline(snapshot, FailureReason.FREEZE_FAILED, str(section.error))
                return False
            snapshot.frozen.append(section.section())
        return True

    async def _let_others_run(self, now: float) -> None:
        """End a slice, which may have been of several subtasks, and measure the next one."""
        took = now - self._since
        self._eager -= took
        turn = await self._turn(now)
        length = SHORTEST_FREEZE
        if self._eager > 0 and turn >= TURN:
            length = min(turn, LONGEST_FREEZE)
        elif self._eager <= 0:
            others = turn
            while others < PATIENCE * took and turn >= IDLE_TURN:
                turn = await self._turn(self._since)
                others += turn
        self._until = self._since + length

    async def _turn(self, now: float) -> float:
        """Let the others have one turn; returns how long it took."""
        self._context.end_of_slice(now)
        await asyncio.sleep(0)
        self._since = self._context.clock.monotonic()
        return self._since - now

    def _decline(self, snapshot: SubtaskSnapshot, reason: FailureReason, detail: str) -> None:
        self.drop(snapshot.checkpoint_id)
        self._context.coordinator.decline(snapshot.subtask, snapshot.checkpoint_id, reason, detail)

    async def _write_if_whole(self, checkpoint_id: int) -> None:
        snapshots = self._added[checkpoint_id]
        frozen = sum(len(one.frozen) == len(one.sections) for one in snapshots)
        if frozen < self._expected[checkpoint_id]:
            return
        sections = [(one.subtask, section) for one in snapshots for section in one.frozen]
        handles: Sequence[SectionHandle] = ()
        if self._writer is not None:
            try:
                handles = await self._stored(self._writer, checkpoint_id, sections)
            except StorageError as error:
                self._decline(snapshots[0], FailureReason.STORAGE_ERROR, str(error))
                return
        if self._expected.pop(checkpoint_id, None) is not None:
            self._added.pop(checkpoint_id)
            self._acknowledge(snapshots, handles)
            # Now, not when its own task gets its turn: in a busy job that is milliseconds later.
            self._context.coordinator.look(self._context.clock.monotonic())

    async def _stored(
        self, writer: DataWriter, checkpoint_id: int, sections: Sequence[tuple[SubtaskId, Section]]
    ) -> Sequence[SectionHandle]:
        """Hand sections over: small ones need no way to a thread and back of their own."""
        handles = writer.defer_data(checkpoint_id, sections)
        if handles is None:
            try:
                handles = await in_thread(writer.write_data, checkpoint_id, sections)
            finally:
                self._begin_slice()  # the disk's time was nobody's turn
        return handles

    def _acknowledge(
        self, snapshots: Sequence[SubtaskSnapshot], handles: Sequence[SectionHandle]
    ) -> None:
        now = self._context.clock.monotonic()
        place = 0
        for one in snapshots:
            own = handles[place : place + len(one.frozen)]
            place += len(one.frozen)
            sections = self._told_where(one, own)
            in_flight = [handle for handle in own if handle.kind in IN_FLIGHT]
            in_flight_bytes = _size(in_flight)
            own_bytes = _size(own)
            statistics = replace(
                one.statistics,
                asynchronous=now - one.acted_at,
                end_to_end=now - one.triggered_at,
                state_bytes=own_bytes - in_flight_bytes,
                referenced_bytes=_size(sections) - own_bytes if len(sections) > len(own) else 0,
                in_flight_bytes=in_flight_bytes,
                in_flight_records=sum(handle.records for handle in in_flight),
            )
            self._context.coordinator.acknowledge(
                Acknowledgement(
                    one.checkpoint_id,
                    self._context.attempt,
                    one.subtask,
                    sections,
                    statistics,
                    one.finished,
                )
            )

    def _told_where(
        self, snapshot: SubtaskSnapshot, own: Sequence[SectionHandle]
    ) -> tuple[SectionHandle, ...]:
        """Tell the sections of a subtask where they lie; return them with those they build on."""
        written = self._written.setdefault(snapshot.checkpoint_id, [])
        written += snapshot.sections
        pairs = zip(snapshot.sections, own, strict=False)  # no handles without a storage
        return tuple(handle for section, at in pairs for handle in section.written(at))


def _size(handles: Sequence[SectionHandle]) -> int:
    return sum(handle.size for handle in handles)
