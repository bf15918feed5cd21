"""Which timers of a state are due next: by time, equal times in the order of their registration.

Many timers have the same time, such as all windows that end together: each time is in the heap
once, with a list of whose timers they are. A timer that was cleared is listed until its time comes;
whoever takes it looks whether its entry still has it. Knows no clock.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from streamcp.state.entries import Entry


class TimerQueue:
    """Timers of one clock; an entry whose key was removed may be among them."""

    __slots__ = ("_listed", "_times")

    def __init__(self) -> None:
        self._times: list[int] = []  # a heap
        # Per time an entry; or, for several: the place of the next one to be taken, then they.
        self._listed: dict[int, Entry | list[Any]] = {}

    @property
    def first(self) -> int | None:
        """The earliest time; None if there is none."""
        return self._times[0] if self._times else None

    def add(self, at: int, entry: Entry) -> None:
        """List a timer of an entry."""
        listed = self._listed.get(at)
        if listed is None:
            self._listed[at] = entry
            heappush(self._times, at)
        elif isinstance(listed, list):
            listed.append(entry)
        else:
            self._listed[at] = [1, listed, entry]

    def next(self, now: int) -> tuple[int, Entry] | None:
        """Give the earliest timer up to `now`, and leave it; None if there is none."""
        if not self._times or (at := self._times[0]) > now:
            return None
        listed = self._listed[at]
        return at, listed[listed[0]] if isinstance(listed, list) else listed

    def take(self, now: int) -> tuple[int, Entry] | None:
        """Take the earliest timer up to `now`; None if there is none."""
        times = self._times
        if not times or (at := times[0]) > now:
            return None
        listed = self._listed[at]
        if isinstance(listed, list):
            place = listed[0]
            entry = listed[place]
            if place + 1 < len(listed):
                listed[0] = place + 1
                return at, entry
        else:
            entry = listed
        del self._listed[heappop(times)]
        return at, entry
