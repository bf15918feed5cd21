"""One bounded first-in-first-out channel between two subtasks of a process.

`push` never blocks and never refuses: the sender keeps to the capacity by looking at `room`
before its next slice (rule I6). A record occupies room until it is *worked off*, not until it is
taken, so a slow receiver cannot hide records in its hand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from streamcp.elements import Batch, CheckpointBarrier, Element, IdleStatus, InFlight, Watermark
from streamcp.identifiers import ChannelId

# A sender that waits goes on when a sixteenth of the capacity is free, not one record: the last
# slices before a channel is full would else become ever shorter, and cost more than they carry.
_SHARE_TO_GO_ON = 16

# The capacity of a back edge of a loop: a limit could be reached all around the loop, and then
# every one would wait for the next (rule P19).
UNLIMITED = 1 << 60


# Short batches that wait behind one another become one, up to this length: under backpressure a
# queue would else hold a batch per record or two, each to be taken, captured and frozen by itself.
# Shorter lists belong to their batch alone (output gates hand longer ones on as they are), so
# they may grow.
JOINED_LENGTH = 256
# But no more than an eighth of the capacity: a receiver works a batch off as a whole, and a channel
# that is emptied at one go stays empty while its sender waits for room in another one.
_JOINED_SHARE = 8

_IN_FLIGHT = (Batch, Watermark, IdleStatus)


def _wakes_nobody() -> None:
    """Until a gate is attached there is nobody to wake."""


GiveHandle: TypeAlias = Callable[[Batch], object]
"""Makes a batch one that is frozen before it is used."""


def _needs_none(batch: Batch) -> None:
    """No snapshot has captured anything."""


class OpenCapture(Protocol):
    """Gathers what is handed on between a snapshot of the receiver and the arrival of its barrier
    (rule P14)."""

    def add(self, element: InFlight) -> None:
        """An element was handed on; called before the receiver can take it."""
        ...

    def ends_at(self, checkpoint_id: int) -> bool:
        """A barrier has arrived in line: say whether it is the one that ends the capture. Then it
        has been handled, and does not queue."""
        ...


class Channel:
    """The queue of one edge between two subtasks.

    `capacity` (`UNLIMITED` for a back edge), `occupied` and `pushed` (all ever sent) count records.
    `wake_receiver` is called after each push, `wake_sender` when there is `room_to_go_on` again
    after there was not.
    """

    __slots__ = (
        "_barriers",
        "_captured",
        "_give_handle",
        "_joined_length",
        "_queue",
        "capacity",
        "capturing",
        "id",
        "occupied",
        "pushed",
        "room_to_go_on",
        "wake_receiver",
        "wake_sender",
    )

    def __init__(self, channel_id: ChannelId, capacity: int) -> None:
        """Make an empty channel for `capacity` records (at least 1)."""
        self.id = channel_id
        self.capacity = capacity
        self.room_to_go_on = 1 if capacity == UNLIMITED else max(1, capacity // _SHARE_TO_GO_ON)
        self._joined_length = min(JOINED_LENGTH, capacity // _JOINED_SHARE)
        self.occupied = 0
        self.pushed = 0
        self.capturing: OpenCapture | None = None
        self.wake_receiver: Callable[[], None] = _wakes_nobody
        self.wake_sender: Callable[[], None] = _wakes_nobody
        self._queue: deque[Element] = deque()
        self._captured = 0  # so many elements, the first ones, belong to a snapshot
        self._give_handle: GiveHandle = _needs_none
        self._barriers: set[int] = set()  # of those in line: there is seldom one, and often asked

    def __len__(self) -> int:
        """Count the queued elements."""
        return len(self._queue)

    def __repr__(self) -> str:
        """Say how full it is."""
        return f"<Channel {self.id}: {self.occupied} of {self.capacity} records>"

    @property
    def room(self) -> int:
        """Records that may still be pushed; negative after an overshoot."""
        return self.capacity - self.occupied

    def push(self, element: Element) -> None:
        """Put an element at the end."""
        if type(element) is Batch:
            records = len(element.values)
            self.occupied += records
            self.pushed += records
            if self.capturing is not None:
                self.capturing.add(element)
        elif type(element) is CheckpointBarrier:
            if self.capturing is not None and self.capturing.ends_at(element.checkpoint_id):
                return
            self._barriers.add(element.checkpoint_id)
        elif self.capturing is not None and isinstance(element, _IN_FLIGHT):
            self.capturing.add(element)
        self._queue.append(element)
        self.wake_receiver()

    def push_records(self, values: list[Any]) -> None:
        """Put records at the end: as a batch of their own, or as part of a short one that waits
        there. `values` must not be changed afterwards."""
        last = self._queue[-1] if self._queue else None
        if type(last) is not Batch or self._is_fixed(last, len(values)):
            self.push(Batch(values))
            return
        last.values += values
        self.occupied += len(values)
        self.pushed += len(values)

    def _is_fixed(self, batch: Batch, more: int) -> bool:
        """A snapshot refers to the last batch, or may come to, or it is long enough."""
        if len(batch.values) + more > self._joined_length or self.capturing is not None:
            return True
        return batch.captured is not None or self._captured >= len(self._queue)

    def head(self) -> Element | None:
        """Look at the first element without taking it."""
        return self._queue[0] if self._queue else None

    def take(self) -> Element:
        """Take the first element. Its records go on occupying room until `release`."""
        element = self._queue.popleft()
        if type(element) is CheckpointBarrier:
            self._barriers.discard(element.checkpoint_id)
        if self._captured:
            self._captured -= 1
            if type(element) is Batch:
                self._give_handle(element)
        return element

    def release(self, records: int) -> None:
        """Free the room of `records` that were worked off."""
        was_writable = self.room >= self.room_to_go_on
        self.occupied -= records
        if not was_writable and self.room >= self.room_to_go_on:
            self.wake_sender()

    def has_barrier(self, checkpoint_id: int) -> bool:
        """Say whether barrier `checkpoint_id` is queued in line."""
        return checkpoint_id in self._barriers

    def capture(
        self, give_handle: GiveHandle, *, before_barrier: int | None = None
    ) -> list[InFlight]:
        """List what is queued, in order, without barriers and the end; with `before_barrier`, take
        that barrier out of the line and list only what stood before it (rules P15 and P26).

        `give_handle` is called for each of the batches when it is taken: it must be frozen before
        it is used, and there may be too many of them to be touched while a barrier passes."""
        ahead: Sequence[Element] = self._queue
        if before_barrier is not None:
            place = self._queue.index(CheckpointBarrier(before_barrier))
            del self._queue[place]
            self._barriers.discard(before_barrier)
            ahead = list(self._queue)[:place]
        self._captured = max(self._captured, len(ahead))
        self._give_handle = give_handle
        return [e for e in ahead if isinstance(e, _IN_FLIGHT)]

    def remove_barrier(self, checkpoint_id: int) -> None:
        """Take a cancelled barrier out of the line, if it is there (rule P10)."""
        if checkpoint_id in self._barriers:
            self._barriers.discard(checkpoint_id)
            self._queue.remove(CheckpointBarrier(checkpoint_id))

    def refill(self, element: InFlight) -> None:
        """Put a restored element into the queue. It may exceed the capacity (rule I6)."""
        if type(element) is Batch:
            self.occupied += len(element.values)
        self._queue.append(element)


NewChannel: TypeAlias = Callable[[ChannelId, int], Channel]
"""Makes an empty channel for so many records: `Channel`, or a test's own kind of it."""
