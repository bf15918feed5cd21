"""One entry per key, with its timers: the state of one keyed step in one subtask.

Taking a snapshot costs a few list lengths, whatever the number of keys: the entries are listed
per key group in the order of their creation, a snapshot remembers how long each list was, and an
entry whose `epoch` is older than the state's still has the value that the snapshot wants.
Whoever changes an entry calls `preserve` first if its epoch is old. The entry and the timers of
a key are frozen as one unit. Several snapshots may be under way at a time (rule P10): each wants
the entries that are older than its own epoch.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from streamcp.checkpoint.key_groups import key_group
from streamcp.checkpoint.snapshot import Section
from streamcp.errors import SerializationError
from streamcp.serialization.immutable import is_deeply_immutable
from streamcp.serialization.serializer import NOT_FLAT, Serializer
from streamcp.serialization.stable_hash import stable_hash

# Entries frozen together: large enough that the cost of one frame disappears, small enough that
# a slice of background work stays well under a millisecond.
CHUNK = 64

Row = tuple[Any, Any, tuple[int, ...]]
"""What is stored of an entry: key, value, timers (milliseconds since the epoch)."""


class Entry:
    """The state of one key."""

    __slots__ = ("epoch", "group", "key", "place", "timers", "value")

    def __init__(self, key: Any, value: Any, group: int, epoch: int) -> None:
        self.key = key
        self.value = value
        self.group = group
        self.epoch = epoch
        self.place = 0
        self.timers: set[int] | None = None


# Stands in the lists where an entry was removed while snapshots went by them; newer than all.
_GAP = Entry(None, None, 0, sys.maxsize)


class KeyedState:
    """Entries by key; a missing key gets a fresh value from `make`.

    `entries` is a plain dictionary, so that loops over records look keys up at full speed and
    call `insert` only for those that are new."""

    def __init__(
        self,
        step: str,
        make: Callable[[], Any],
        serializer: Serializer,
        max_parallelism: int,
    ) -> None:
        self.step = step
        self.epoch = 0
        self.entries: dict[Any, Entry] = {}
        self._make = make
        self._serializer = serializer
        self._max_parallelism = max_parallelism
        self._groups: list[list[Entry]] = [[] for _ in range(max_parallelism)]
        self._timers: list[tuple[int, int, Any]] = []
        self._timer_count = 0
        self._snapshots: list[KeyedSnapshot] = []  # being frozen, oldest first
        self._gaps: dict[int, list[int]] = {}  # per group, places in its list

    def __getitem__(self, key: Any) -> Entry:
        """Find the entry of a key, or make a fresh one."""
        entry = self.entries.get(key)
        return entry if entry is not None else self.insert(key)

    def insert(self, key: Any) -> Entry:
        """Make a fresh entry for a key that has none."""
        return self._insert(key, self._make())

    def _insert(self, key: Any, value: Any) -> Entry:
        group = key_group(stable_hash(key), self._max_parallelism)
        entry = self.entries[key] = Entry(key, value, group, self.epoch)
        listed = self._groups[group]
        gaps = self._gaps.get(group)
        if gaps:
            # No snapshot under way wants an entry of this epoch, wherever it stands.
            entry.place = gaps.pop()
            listed[entry.place] = entry
        else:
            entry.place = len(listed)
            listed.append(entry)
        return entry

    def copies(self) -> Iterator[tuple[Any, Any]]:
        """Give each key with a copy of its value, while no entry is added or removed.

        Raises SerializationError for a value that cannot be copied."""
        for key, entry in self.entries.items():
            yield key, self._serializer.copy(entry.value, step=self.step)

    # ---- changes

    def preserve(self, entry: Entry) -> None:
        """Before the first change after a snapshot: keep what snapshots want of the entry."""
        for snapshot in self._snapshots:
            if entry.epoch < snapshot.epoch:
                snapshot.keep(entry)
        entry.epoch = self.epoch

    def replace(self, entry: Entry, value: Any) -> None:
        """Set an entry's value."""
        if entry.epoch != self.epoch:
            self.preserve(entry)
        entry.value = value

    def remove(self, key: Any) -> None:
        """Forget a key, with its timers; a later record of it gets a fresh value."""
        entry = self.entries.pop(key, None)
        if entry is None:
            return
        if entry.epoch != self.epoch:
            self.preserve(entry)
        entry.timers = None
        if self._snapshots:
            self._groups[entry.group][entry.place] = _GAP
            self._gaps.setdefault(entry.group, []).append(entry.place)
        else:
            self._unlist(entry.group, entry.place)

    def _unlist(self, group: int, place: int) -> None:
        """Close the place of a removed entry in its group's list, with the last one."""
        listed = self._groups[group]
        last = listed.pop()
        if place < len(listed):
            listed[place] = last
            last.place = place

    # ---- timers

    def set_timer(self, entry: Entry, timestamp: int) -> None:
        """Register a timer; the same time twice is one timer."""
        if entry.timers is None:
            entry.timers = set()
        if timestamp not in entry.timers:
            if entry.epoch != self.epoch:
                self.preserve(entry)
            entry.timers.add(timestamp)
            self._push_timer(timestamp, entry.key)

    def _push_timer(self, timestamp: int, key: Any) -> None:
        # The count keeps the order of registration, and keys from being compared.
        self._timer_count += 1
        heapq.heappush(self._timers, (timestamp, self._timer_count, key))

    def next_timer(self) -> int | None:
        """The time of the earliest timer, which may have been cleared since."""
        return self._timers[0][0] if self._timers else None

    def pop_due(self, now: int) -> tuple[int, Entry] | None:
        """Take the earliest timer up to `now` out of the queue; the entry keeps it until
        `timer_done`, so that a snapshot in between still holds it."""
        while self._timers and self._timers[0][0] <= now:
            timestamp, _, key = heapq.heappop(self._timers)
            entry = self.entries.get(key)
            if entry is not None and entry.timers and timestamp in entry.timers:
                return timestamp, entry
        return None

    def has_timer(self, key: Any, timestamp: int) -> bool:
        """Say whether the timer is set: it was neither done nor cleared."""
        entry = self.entries.get(key)
        return entry is not None and entry.timers is not None and timestamp in entry.timers

    def timer_done(self, entry: Entry, timestamp: int) -> None:
        """Forget a timer: in the same step in which its effects are committed (rule P21)."""
        if entry.timers and timestamp in entry.timers:
            if entry.epoch != self.epoch:
                self.preserve(entry)
            entry.timers.discard(timestamp)

    # ---- snapshot and restore

    def snapshot(self) -> KeyedSnapshot:
        """Begin a snapshot of all entries as they are now. It is under way until it is frozen or
        dropped; older ones are frozen first."""
        self.epoch += 1
        snapshot = KeyedSnapshot(self, [len(listed) for listed in self._groups])
        self._snapshots.append(snapshot)
        return snapshot

    def restore(self, rows: Iterable[Row]) -> None:
        """Put entries back, before the first record."""
        for key, value, timers in rows:
            entry = self._insert(key, value)
            if timers:
                entry.timers = set(timers)
                for timestamp in timers:
                    self._push_timer(timestamp, key)

    def _end_snapshot(self, snapshot: KeyedSnapshot) -> None:
        if snapshot in self._snapshots:
            self._snapshots.remove(snapshot)
        if not self._snapshots:
            self._close_gaps()

    def _close_gaps(self) -> None:
        for group, places in self._gaps.items():
            for place in sorted(places, reverse=True):  # so that the last one is never a gap
                self._unlist(group, place)
        self._gaps.clear()


class KeyedSnapshot:
    """The entries of one snapshot, frozen group by group by `freeze_some`.

    It is at (group, place) of the lists; what was changed before it came there was kept. It holds
    the entries that are older than its `epoch`."""

    def __init__(self, state: KeyedState, lengths: list[int]) -> None:
        self.kind = "state"
        self.records = 0
        self.epoch = state.epoch
        self.error: SerializationError | None = None
        self._state = state
        self._lengths = lengths
        self._group = 0
        self._place = 0
        self._kept: dict[int, list[Row]] = {}
        self._frames: list[bytes] = []
        self._frame_groups: list[int] = []
        self._dropped = False

    def keep(self, entry: Entry) -> None:
        """Keep an entry that is about to be changed: a copy if that is cheap, itself if it cannot
        change, else its bytes."""
        key, value, timers = _row(entry)
        copy = self._state._serializer.flat_copy(value)
        if copy is NOT_FLAT and not is_deeply_immutable(value):
            self._freeze(entry.group, [(key, value, timers)])
            return
        kept = (key, value if copy is NOT_FLAT else copy, timers)
        self._kept.setdefault(entry.group, []).append(kept)

    def freeze_some(self) -> bool:
        """Freeze the next chunk; returns False when there is nothing left to freeze.

        While an older snapshot of the state is under way, this freezes of that one."""
        oldest = next(iter(self._state._snapshots), self)
        if oldest is not self and self in self._state._snapshots:
            oldest.freeze_some()
            return True
        while not self._dropped and self.error is None and self._group < len(self._lengths):
            rows = self._next_rows() or self._next_kept()
            if rows:
                self._freeze(self._group, rows)
                return True
            self._group += 1
            self._place = 0
        self._state._end_snapshot(self)
        return False

    def drop(self) -> None:
        """The checkpoint has ended: keep nothing any more."""
        self._dropped = True
        self._state._end_snapshot(self)

    def section(self) -> Section:
        """The frozen content."""
        return Section(
            "state",
            self._state.step,
            tuple(self._frames),
            self.records,
            tuple(self._frame_groups),
        )

    def _next_rows(self) -> list[Row]:
        """Take entries of the group that nobody has touched since the cut."""
        epoch, length = self.epoch, self._lengths[self._group]
        rows: list[Row] = []
        while not rows and self._place < length:
            end = min(self._place + CHUNK, length)
            for entry in self._state._groups[self._group][self._place : end]:
                if entry.epoch < epoch:
                    entry.epoch = epoch
                    rows.append(_row(entry))
            self._place = end
        return rows

    def _next_kept(self) -> list[Row]:
        """Take entries of the group that were kept as they were touched: no more can come."""
        kept = self._kept.get(self._group, [])
        self._kept[self._group] = kept[CHUNK:]
        return kept[:CHUNK]

    def _freeze(self, group: int, rows: list[Row]) -> None:
        try:
            frame = self._state._serializer.dumps(rows, step=self._state.step)
        except SerializationError as error:
            self.error = error
            return
        self._frames.append(frame)
        self._frame_groups.append(group)
        self.records += len(rows)


def _row(entry: Entry) -> Row:
    timers = tuple(sorted(entry.timers)) if entry.timers else ()
    return entry.key, entry.value, timers
