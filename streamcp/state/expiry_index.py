"""Which entries of a state are to be looked at by when, found without looking at all of them.

Each entry is listed exactly once, in a bucket of times. A call that updates an entry does not come
here: the entry stays where it is, and is moved on when its bucket is due. So an update costs
nothing here, and an index never has more places than the state has keys. Knows no clock.
"""

from __future__ import annotations

import heapq

from streamcp.state.entries import ExpiringEntry

# A bucket is due when its last time has passed: an entry is looked at this part of its life late.
BUCKETS_PER_LIFE = 32


class ExpiryIndex:
    """The entries of one state, each of which lives `life` milliseconds behind its last update."""

    def __init__(self, life: int) -> None:
        self.count = 0
        self._width = max(1, life // BUCKETS_PER_LIFE)
        self._buckets: dict[int, list[ExpiringEntry]] = {}
        self._order: list[int] = []  # a heap of the buckets' numbers

    def add(self, entry: ExpiringEntry, at: float) -> None:
        """List an entry that is not listed, to be looked at when `at` has passed."""
        number = int(at) // self._width
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = []
            heapq.heappush(self._order, number)
        entry.bucket, entry.seat = number, len(bucket)
        bucket.append(entry)
        self.count += 1

    def remove(self, entry: ExpiringEntry) -> None:
        """Strike out an entry that is listed; the last one of its bucket takes its seat."""
        bucket = self._buckets[entry.bucket]
        last = bucket.pop()
        if last is not entry:
            bucket[entry.seat] = last
            last.seat = entry.seat
        self.count -= 1

    def move(self, entry: ExpiringEntry, at: float) -> None:
        """List an entry anew."""
        self.remove(entry)
        self.add(entry, at)

    @property
    def next_look(self) -> int | None:
        """When the earliest entries are to be looked at; None if there are none."""
        while self._order and not self._buckets[self._order[0]]:
            del self._buckets[heapq.heappop(self._order)]
        return (self._order[0] + 1) * self._width if self._order else None

    def due(self, now: int) -> ExpiringEntry | None:
        """Find an entry to be looked at; whoever asks removes or moves it before the next one."""
        at = self.next_look
        return None if at is None or at > now else self._buckets[self._order[0]][-1]
