"""What one subtask does when barriers, ends of input, escalations and cancellations reach it.

    phase      | a barrier in line   | an overtaking barrier or escalation | end of input
    -----------+---------------------+-------------------------------------+------------------
    IDLE       | begin, block, or    | snapshot now, capture, forward      | note it
               | snapshot if all in  | ahead of the queues                 |
    ALIGNING   | block, or snapshot  | resume, snapshot, capture, forward  | may be the last
    CAPTURING  | ends one capture    | ends one capture                    | ends one capture

At least once (rule P29), ALIGNING counts barriers and blocks nothing. Several aligned checkpoints
may run at a time (rule P10): on every channel the older barrier stands first, so that here one is
aligned after the other; only a trigger, which is a call, may come too early, and waits.

The back edges of a loop are never waited for (P19): a snapshot that is taken without them goes on
capturing them until the barrier has come round, in every mode.

The machine knows channels by number and nothing of what they hold: the facts come in with each
event, the decisions go out as a list that the caller carries out in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Literal, TypeAlias

Extent: TypeAlias = Literal["all", "before_barrier"]
"""How much of a channel's queue is captured."""

_NONE: frozenset[int] = frozenset()


class Phase(Enum):
    """What the subtask is waiting for."""

    IDLE = auto()  # no checkpoint under way
    ALIGNING = auto()  # some barriers have come in line; their channels are blocked
    CAPTURING = auto()  # snapshot taken; records before the barriers not yet come are captured


@dataclass(frozen=True, slots=True)
class Block:
    """Stop consuming a channel (P8)."""

    channel: int


@dataclass(frozen=True, slots=True)
class Count:
    """A barrier has come on a channel, which is consumed on: at least once (P29)."""

    channel: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Consume blocked channels again."""

    channels: frozenset[int]


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Snapshot the state now. `captures` says which queues are in flight and how far; channels in
    `open` go on being captured until `CloseCapture` (P13, P14)."""

    checkpoint_id: int
    captures: Mapping[int, Extent] = field(default_factory=dict)
    open: frozenset[int] = _NONE


@dataclass(frozen=True, slots=True)
class Forward:
    """Send the barrier on: behind all emitted data, or ahead of everything queued."""

    checkpoint_id: int
    overtaking: bool


@dataclass(frozen=True, slots=True)
class CloseCapture:
    """The barrier has come on this channel: nothing more of it is captured."""

    channel: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The snapshot is whole; it may be frozen, written and acknowledged."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """A newer checkpoint has begun, or this one was cancelled: drop what was gathered for it."""

    checkpoint_id: int


Decision: TypeAlias = (
    Block | Count | Resume | TakeSnapshot | Forward | CloseCapture | Acknowledge | Abandon
)


class Alignment:
    """The state machine of one subtask with `channels` input channels, of which `back` are back
    edges of a loop.

    After the end of a channel a barrier comes only where a loop has ended, and is dropped: its
    head may have finished before the subtask that sends the barrier round.

    `last` is the newest checkpoint that was snapshotted or abandoned here: barriers up to it are
    old and dropped, and so are those of cancelled ones (P10). `at_least_once`: barriers are
    counted, and no channel is blocked (P29); then none may overtake."""

    __slots__ = (
        "_arrived",
        "_at_least_once",
        "_back",
        "_blocked",
        "_cancelled",
        "_channels",
        "_ended",
        "_waiting",
        "current",
        "last",
        "phase",
    )

    def __init__(
        self, channels: int, back: Set[int] = _NONE, *, at_least_once: bool = False
    ) -> None:
        self.phase = Phase.IDLE
        self.current = 0
        self.last = 0
        self._channels = frozenset(range(channels))
        self._back = frozenset(back)
        self._arrived: set[int] = set()
        self._blocked: set[int] = set()
        self._ended: set[int] = set()
        self._at_least_once = at_least_once
        self._cancelled: set[int] = set()  # newer than every one that has begun here
        self._waiting: list[int] = []  # triggered here; older barriers are still to come in line

    def trigger(
        self, checkpoint_id: int, *, unaligned: bool, finished: Set[int] = _NONE
    ) -> list[Decision]:
        """The coordinator begins a checkpoint here: at a source, or where all senders are
        finished in the plan (P6, P7).

        Aligned, it is the snapshot's turn when every channel has ended (P9): behind the barriers
        of older checkpoints that are still on their way."""
        if unaligned:
            return self.barrier_overtaking(checkpoint_id, None, finished=finished)
        if self._is_old(checkpoint_id):
            return []
        self._waiting.append(checkpoint_id)
        return self._snapshot_waiting()

    def barrier_in_line(self, checkpoint_id: int, channel: int) -> list[Decision]:
        """A barrier was taken from a channel in its turn (P8)."""
        if channel in self._ended:
            return []
        if checkpoint_id == self.current and self.phase is Phase.CAPTURING:
            return self._close(channel)
        if self._is_old(checkpoint_id):
            return []
        decisions = self._begin(checkpoint_id)
        self._arrived.add(channel)
        missing = self._missing() - self._back
        if missing and self._at_least_once:
            return [*decisions, Count(channel)]
        if missing:
            self._blocked.add(channel)
            return [*decisions, Block(channel)]
        return [*decisions, *self._snapshot_if_aligned()]

    def barrier_overtaking(
        self,
        checkpoint_id: int,
        channel: int | None,
        *,
        finished: Set[int] = _NONE,
        in_line: Set[int] = _NONE,
    ) -> list[Decision]:
        """A barrier came ahead of the queue of `channel` (None: from the coordinator).

        `finished` are the channels whose sender is finished in the plan: they count as arrived
        (P9). `in_line` are those in which this barrier is queued in line (P26)."""
        if channel in self._ended:
            return []
        if checkpoint_id == self.current and self.phase is Phase.CAPTURING:
            return self._close(channel) if channel is not None else []
        if self._is_old(checkpoint_id):
            return []
        decisions = self._begin(checkpoint_id)
        return decisions + self._go_unaligned(channel, finished - self._ended, in_line)

    def escalate(
        self, checkpoint_id: int, *, finished: Set[int] = _NONE, in_line: Set[int] = _NONE
    ) -> list[Decision]:
        """The alignment timeout has fired: go on unaligned, if the barrier has come as far as
        this subtask's inputs. One that it has not reached gets it overtaking, later."""
        aligning = self.phase is Phase.ALIGNING and self.current == checkpoint_id
        if not aligning and not in_line and checkpoint_id not in self._waiting:
            return []
        return self.barrier_overtaking(checkpoint_id, None, finished=finished, in_line=in_line)

    def end_of_input(self, channel: int) -> list[Decision]:
        """The last element of a channel was taken, or its loop has ended: then the end itself may
        still come, and changes nothing."""
        if channel in self._ended:
            return []
        self._ended.add(channel)
        decisions: list[Decision] = []
        if self.phase is Phase.ALIGNING:
            decisions = self._snapshot_if_aligned()
        elif self.phase is Phase.CAPTURING:
            decisions = self._close(channel)
        return decisions + self._snapshot_waiting()

    def cancel(self, checkpoint_id: int) -> list[Decision]:
        """The checkpoint has ended without completing; its barrier is dropped if it comes later
        (P10). Others, older and newer, go on."""
        if checkpoint_id in self._waiting:
            self._waiting.remove(checkpoint_id)
        if checkpoint_id == self.current and self.phase is not Phase.IDLE:
            return self._abandon()
        if not self._is_old(checkpoint_id):
            self._cancelled.add(checkpoint_id)
        return []

    # ---- steps of the machine

    def _is_old(self, checkpoint_id: int) -> bool:
        if checkpoint_id == self.current:
            return self.phase is Phase.IDLE
        return checkpoint_id < self.current or checkpoint_id in self._cancelled

    def _begin(self, checkpoint_id: int) -> list[Decision]:
        if checkpoint_id == self.current and self.phase is not Phase.IDLE:
            return []
        decisions = self._abandon() if self.phase is not Phase.IDLE else []
        # Whatever is older has come before, or will not come any more.
        self._waiting = [one for one in self._waiting if one > checkpoint_id]
        self._cancelled = {one for one in self._cancelled if one > checkpoint_id}
        self.phase = Phase.ALIGNING
        self.current = checkpoint_id
        self._arrived.clear()
        return decisions

    def _abandon(self) -> list[Decision]:
        resumed = self._resume()
        self.phase = Phase.IDLE
        self.last = max(self.last, self.current)
        return [Abandon(self.current), *resumed]

    def _missing(self) -> frozenset[int]:
        return self._channels - self._arrived - self._ended

    def _snapshot_waiting(self) -> list[Decision]:
        """Everything has come that can stand before the triggered ones, oldest first."""
        decisions: list[Decision] = []
        while self._waiting and self._channels - self._back <= self._ended:
            decisions += self._begin(self._waiting[0])
            decisions += self._snapshot_if_aligned()
        return decisions

    def _snapshot_if_aligned(self) -> list[Decision]:
        missing = self._missing()
        if missing - self._back:
            return []
        if missing:
            return self._snapshot_with_back_edges(missing)
        n = self.current
        self._finish()
        return [TakeSnapshot(n), Forward(n, overtaking=False), *self._resume(), Acknowledge(n)]

    def _snapshot_with_back_edges(self, back: frozenset[int]) -> list[Decision]:
        """What goes round when the loop head cuts is in flight, until the barrier that it sends
        now has come round behind it (P19). A back edge from the head to itself delivers it while
        `Forward` is carried out, so nothing may be left to do behind that."""
        n = self.current
        self.phase = Phase.CAPTURING
        self.last = n
        captures: dict[int, Extent] = dict.fromkeys(sorted(back), "all")
        resumed = self._resume()
        return [*resumed, TakeSnapshot(n, captures, back), Forward(n, overtaking=False)]

    def _go_unaligned(
        self, channel: int | None, finished: Set[int], in_line: Set[int]
    ) -> list[Decision]:
        """Everything that has not been delivered before the barrier is in flight (P13, P26)."""
        n = self.current
        delivered = self._arrived | self._ended
        captures: dict[int, Extent] = {
            c: "before_barrier" if c in in_line else "all"
            for c in sorted(self._channels - delivered)
        }
        self._arrived |= in_line | finished | ({channel} if channel is not None else set())
        open_captures = self._missing()
        self.phase = Phase.CAPTURING
        self.last = n
        decisions: list[Decision] = [
            *self._resume(),
            TakeSnapshot(n, captures, open_captures),
            Forward(n, overtaking=True),
        ]
        return decisions + self._acknowledge_if_whole()

    def _close(self, channel: int) -> list[Decision]:
        if channel in self._arrived:
            return []
        self._arrived.add(channel)
        return [CloseCapture(channel), *self._acknowledge_if_whole()]

    def _acknowledge_if_whole(self) -> list[Decision]:
        if self._missing():
            return []
        self._finish()
        return [Acknowledge(self.current)]

    def _finish(self) -> None:
        self.phase = Phase.IDLE
        self.last = self.current

    def _resume(self) -> list[Decision]:
        if not self._blocked:
            return []
        channels = frozenset(self._blocked)
        self._blocked.clear()
        return [Resume(channels)]
