"""Keyed state whose entries expire: one that no call has updated for its life is dropped.

An entry knows when it was last updated; whoever reads it asks first whether it has expired, so
that an expired value is never seen, swept or not. Sweeping only frees the memory: a few entries at
a time, found by an index, and as removals in the next snapshot (rule P39). The timers of a key
outlive its value: they fire, with a fresh one. What time it is is told by a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from streamcp.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from streamcp.serialization.serializer import Serializer
from streamcp.state.entries import (
    EVENT,
    PROCESSING,
    UNDATED,
    Entry,
    EventEntry,
    ExpiringEntry,
    has_timers,
)
from streamcp.state.expiry_index import ExpiryIndex
from streamcp.state.keyed import KeyedState


class ExpiringState(KeyedState):
    """A keyed state with expiry.

    `life` is in milliseconds, of the clock `clock`; `time_of(group)` is what that shows, for the
    keys of a group, MIN_TIMESTAMP while it shows nothing. A loop over records asks for expiry by
    itself (`entry.updated`), and calls `renew` only where it has come."""

    def __init__(
        self,
        step: str,
        make: Callable[[], Any],
        serializer: Serializer,
        max_parallelism: int,
        *,
        life: int,
        clock: int,
        time_of: Callable[[int], float],
        incremental: bool = False,
    ) -> None:
        super().__init__(step, make, serializer, max_parallelism, incremental=incremental)
        self.life = life
        self.clock = clock
        self.time_of = time_of
        self.index = ExpiryIndex(life)
        self._entry_class = EventEntry if clock == EVENT else ExpiringEntry

    def _insert(self, key: Any, value: Any) -> Entry:
        entry = super()._insert(key, value)
        assert isinstance(entry, ExpiringEntry)
        entry.updated = self.time_of(entry.group)
        self.index.add(entry, entry.updated + self.life)
        return entry

    def remove(self, key: Any) -> None:
        """Forget a key, with its timers and its place in the index."""
        entry = self.entries.get(key)
        if isinstance(entry, ExpiringEntry):
            self.index.remove(entry)
        super().remove(key)

    # ---- expiry

    def has_expired(self, entry: Entry, now: float) -> bool:
        """Say whether the value of an entry must not be seen any more at a time."""
        assert isinstance(entry, ExpiringEntry)
        return entry.updated + self.life <= now

    def renew(self, entry: Entry) -> None:
        """Give an expired entry a fresh value, before it is read. Its timers stay."""
        self.replace(entry, self._make())

    def update(self, entry: Entry, now: float) -> None:
        """A call for the entry has come to its end: its life begins anew. Never goes back; one that
        was not dated is from now on."""
        assert isinstance(entry, ExpiringEntry)
        if now > entry.updated or entry.updated == UNDATED:
            self._date(entry, now)

    def is_visible(self, entry: Entry) -> bool:
        """Say whether the value of an entry has not expired."""
        return not self.has_expired(entry, self.time_of(entry.group))

    def sweep(self, now: int, most: int) -> bool:
        """Free entries that have expired, or look when others will: up to `most` of those that are
        to be looked at by `now`. Returns whether there was one."""
        looked = 0
        while looked < most and (entry := self.index.due(now)) is not None:
            self._look_at(entry)
            looked += 1
        return looked > 0

    def _look_at(self, entry: ExpiringEntry) -> None:
        now = self.time_of(entry.group)
        if now == MIN_TIMESTAMP:  # no time passes for the group: nothing of it expires any more
            self.index.move(entry, MAX_TIMESTAMP)
            return
        if entry.updated == UNDATED:
            self._date(entry, now)
        elif self.has_expired(entry, now):
            if not has_timers(entry):
                self.remove(entry.key)
                return
            self.renew(entry)
            self.update(entry, now)
        self.index.move(entry, entry.updated + self.life)

    def _date(self, entry: ExpiringEntry, now: float) -> None:
        if entry.epoch != self.epoch:
            self.preserve(entry)
        entry.updated = now

    # ---- restore

    def _restore(
        self,
        key: Any,
        value: Any,
        processing: Iterable[int],
        event: Iterable[int] = (),
        *dated: int,
    ) -> None:
        """Put an entry back. One that was not dated, or by the other clock, begins its life when
        the time is known again: in processing time now, in event time with the first watermark."""
        super()._restore(key, value, processing, event)
        entry = self.entries[key]
        assert isinstance(entry, ExpiringEntry)
        if dated and dated[1] == self.clock:
            entry.updated = float(dated[0]) if self.clock == PROCESSING else dated[0]
        elif self.clock == PROCESSING:
            entry.updated = self.time_of(entry.group)
        else:
            entry.updated = UNDATED
            return
        self.index.move(entry, entry.updated + self.life)
