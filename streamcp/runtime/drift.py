"""Sources that keep together in event time: who is too far ahead of the slowest has to wait.

Plain numbers in, plain answers out. Nobody waits for himself, and the slowest of those that count
never waits, so at least one may always go on. Members that are idle or have ended do not count.
Knows no source: a member is a number that moves, and what wakes whoever moves it.
"""

from __future__ import annotations

from collections.abc import Callable

from streamcp.elements import MIN_TIMESTAMP


class DriftGroup:
    """Members that keep together. `slowest` is the least watermark of those that count; None if
    none does."""

    __slots__ = ("members", "slowest")

    def __init__(self) -> None:
        """Nobody has joined yet."""
        self.members: list[DriftMember] = []
        self.slowest: int | None = None

    def join(self, max_drift: int, wake: Callable[[], None]) -> DriftMember:
        """Add a member that waits while it is more than `max_drift` milliseconds ahead; `wake` is
        called once it has been told to wait and need not any longer."""
        member = DriftMember(self, max_drift, wake)
        self.members.append(member)
        self.look()
        return member

    def look(self) -> None:
        """Find the slowest anew, and wake whoever may go on."""
        self.slowest = min((one.watermark for one in self.members if one.counts), default=None)
        for member in self.members:
            member.wake_if_free()


class DriftMember:
    """One member: how far it has come, in milliseconds since the epoch, and whether it counts."""

    __slots__ = ("_group", "_idle", "_max_drift", "_waits", "_wake", "ended", "watermark")

    def __init__(self, group: DriftGroup, max_drift: int, wake: Callable[[], None]) -> None:
        self._group = group
        self._max_drift = max_drift
        self._wake = wake
        self._idle = False
        self._waits = False
        self.ended = False
        self.watermark = MIN_TIMESTAMP

    @property
    def counts(self) -> bool:
        """The others wait for it."""
        return not (self._idle or self.ended)

    @property
    def must_wait(self) -> bool:
        """It is too far ahead now; whoever asks is woken when that is over."""
        self._waits = self._is_ahead
        return self._waits

    @property
    def _is_ahead(self) -> bool:
        slowest = self._group.slowest
        return slowest is not None and self.watermark > slowest + self._max_drift

    def advance(self, watermark: int) -> None:
        """It has come so far."""
        if watermark > self.watermark:
            held_back = self.watermark == self._group.slowest
            self.watermark = watermark
            if held_back:
                self._group.look()

    def set_idle(self, idle: bool) -> None:
        """It becomes idle, or active again."""
        if idle != self._idle:
            self._idle = idle
            self._group.look()

    def end(self) -> None:
        """Nothing comes from it any more."""
        if not self.ended:
            self.ended = True
            self._group.look()

    def wake_if_free(self) -> None:
        """Wake whoever was told to wait, once, if that is over."""
        if self._waits and not self._is_ahead:
            self._waits = False
            self._wake()
