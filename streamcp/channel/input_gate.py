"""All input channels of a subtask, and the batch that it has in hand.

The hand is kept here and never in a local variable of a suspended coroutine, so that a snapshot
always finds it (rule P15).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from streamcp.channel.channel import Channel, GiveHandle
from streamcp.elements import Batch, CheckpointBarrier, Element, EndOfInput, InFlight

_NONE: frozenset[int] = frozenset()


class InputGate:
    """Takes elements from the channels in turn, leaving out blocked ones. `back` numbers those
    that are back edges of a loop."""

    __slots__ = (
        "_next",
        "back",
        "blocked",
        "channels",
        "ended",
        "hand",
        "hand_channel",
        "hand_offset",
        "ports",
    )

    def __init__(
        self,
        channels: Sequence[Channel],
        ports: Sequence[int] = (),
        back: frozenset[int] = frozenset(),
    ) -> None:
        """Attach to `channels`; their order gives each its number.

        `ports` says per channel to which input of the step it belongs: all to the first one if
        it is empty."""
        self.channels = tuple(channels)
        self.ports = tuple(ports) or (0,) * len(channels)
        self.back = back
        self.blocked: set[int] = set()
        self.ended: set[int] = set()
        self.hand: Batch | None = None
        self.hand_channel = -1
        self.hand_offset = 0
        self._next = 0

    @property
    def all_ended(self) -> bool:
        """Every channel has delivered its end of input."""
        return len(self.ended) == len(self.channels)

    @property
    def queued_records(self) -> int:
        """Records in the channels and in the hand."""
        return sum(channel.occupied for channel in self.channels)

    def take(self) -> tuple[int, Element] | None:
        """Take the next element of an open channel, in turn; None if all are empty or blocked.

        A batch becomes the hand."""
        number = self._next_open(self.blocked)
        return None if number is None else self._take_from(number)

    def _next_open(self, left_out: Collection[int]) -> int | None:
        """Number the channel whose turn it is, of those that hold something."""
        channels = self.channels
        count = len(channels)
        for step in range(count):
            number = (self._next + step) % count
            if len(channels[number]) and number not in left_out:
                return number
        return None

    def _take_from(self, number: int) -> tuple[int, Element]:
        self._next = (number + 1) % len(self.channels)
        element = self.channels[number].take()
        if type(element) is Batch:
            self._take_in_hand(number, element)
        return number, element

    def take_control(self) -> tuple[int, Element] | None:
        """Take a barrier or an end of input that stands first in an open channel.

        These need no room in the outputs, so a subtask that waits for room takes them too."""
        for number, channel in enumerate(self.channels):
            if number in self.blocked:
                continue
            if isinstance(channel.head(), CheckpointBarrier | EndOfInput):
                return number, channel.take()
        return None

    def _take_in_hand(self, number: int, batch: Batch) -> None:
        self.hand, self.hand_channel, self.hand_offset = batch, number, 0

    def slice(self, limit: int) -> list[Any]:
        """Return the next records of the hand, at most `limit`, and move past them.

        A captured batch is frozen first: its records are about to be used (copy on consume).
        The records occupy their channel until `release`."""
        batch = self.hand
        assert batch is not None
        if batch.captured is not None:
            batch.captured.before_use()
        start, values = self.hand_offset, batch.values
        end = start + limit
        if end >= len(values):
            self.hand = None
            return values[start:] if start else values
        self.hand_offset = end
        return values[start:end]

    def take_whole(self, limit: int) -> list[Any] | None:
        """Take the records of the next element, if it is a batch of at most `limit` that comes by
        the port of the last one; None if it is not, or nothing is queued. Only without a hand.

        As those of a slice they occupy their channel, `hand_channel`, until `release`."""
        number, ports = self._next_open(self.blocked), self.ports
        if number is None or ports[number] != ports[self.hand_channel]:
            return None
        head = self.channels[number].head()
        if type(head) is not Batch or len(head.values) > limit:
            return None
        self._take_from(number)
        return self.slice(limit)

    def release(self, number: int, records: int) -> None:
        """Free the room of worked-off records of one channel."""
        self.channels[number].release(records)

    def with_barrier(self, checkpoint_id: int) -> frozenset[int]:
        """Number the channels in which the barrier is queued in line."""
        found = [n for n, channel in enumerate(self.channels) if channel.has_barrier(checkpoint_id)]
        return frozenset(found) if found else _NONE

    def capture(
        self, number: int, give_handle: GiveHandle, *, before_barrier: int | None
    ) -> list[InFlight]:
        """List the elements of a channel that are in flight, the rest of the hand first.

        With `before_barrier`, that barrier is taken out of the line and only what stood before it
        is listed. `give_handle` is called for each batch before it is used."""
        elements = self.channels[number].capture(give_handle, before_barrier=before_barrier)
        rest = self._rest_of_hand(number)
        if rest is None:
            return elements
        give_handle(rest)
        return [rest, *elements]

    def _rest_of_hand(self, number: int) -> Batch | None:
        """Make the rest of the hand a batch of its own, so that it can be captured."""
        if self.hand is None or self.hand_channel != number:
            return None
        if self.hand_offset:
            self.hand = Batch(self.hand.values[self.hand_offset :])
            self.hand_offset = 0
        return self.hand

    def remove_barrier(self, checkpoint_id: int) -> None:
        """Take a cancelled barrier out of every channel."""
        for channel in self.channels:
            channel.remove_barrier(checkpoint_id)

    def resume(self, numbers: Iterable[int]) -> None:
        """Unblock channels."""
        self.blocked.difference_update(numbers)
