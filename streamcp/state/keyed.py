"""One entry per key, with its timers: the state of one keyed step in one subtask.

Taking a snapshot costs a few list lengths, whatever the number of keys: the entries are listed
per key group in the order of their creation, a snapshot remembers how long each list was, and an
entry whose `epoch` is older than the state's still has the value that the snapshot wants.
Whoever changes an entry calls `preserve` first if its epoch is old; that is also where the changes
are noted that an incremental snapshot holds (rule P39). The entry and the timers of a key are
frozen as one unit. Several snapshots may be under way at a time (rule P10): each wants the entries
that are older than its own epoch. How they are frozen is told elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from streamcp.checkpoint.incremental import Base, base_of_next
from streamcp.checkpoint.key_groups import key_group
from streamcp.serialization.serializer import Serializer
from streamcp.serialization.stable_hash import stable_hash
from streamcp.state.changes import Changes
from streamcp.state.entries import (
    EVENT,
    GAP,
    PROCESSING,
    REMOVED,
    SIMPLE,
    Entry,
    Row,
    has_timer,
    is_part,
    is_removal,
)
from streamcp.state.keyed_snapshot import ChangedContent, Content, KeyedSnapshot, WholeContent
from streamcp.state.parts import Parts
from streamcp.state.timer_queue import TimerQueue


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
        *,
        incremental: bool = False,
    ) -> None:
        """Keep the state of `step`; snapshots hold changes only, where they may, if
        `incremental`."""
        self.step = step
        self.epoch = 0
        self.entries: dict[Any, Entry] = {}
        self._entry_class = Entry
        self._make = make
        self._serializer = serializer
        self._max_parallelism = max_parallelism
        self._groups: list[list[Entry]] = [[] for _ in range(max_parallelism)]
        self._changes = Changes() if incremental else None
        self._base: Base | None = None
        self._timers = (TimerQueue(), TimerQueue())  # per clock
        self._snapshots: list[KeyedSnapshot] = []  # being frozen, oldest first
        self._gaps: dict[int, list[int]] = {}  # per group, places in its list
        self.parts = Parts.of(make, serializer, step)

    def __getitem__(self, key: Any) -> Entry:
        """Find the entry of a key, or make a fresh one."""
        entry = self.entries.get(key)
        return entry if entry is not None else self.insert(key)

    def insert(self, key: Any) -> Entry:
        """Make a fresh entry for a key that has none."""
        return self._insert(key, self._make())

    def _insert(self, key: Any, value: Any) -> Entry:
        group = key_group(stable_hash(key), self._max_parallelism)
        entry = self.entries[key] = self._entry_class(key, value, group, self.epoch)
        listed = self._groups[group]
        gaps = self._gaps.get(group)
        if gaps:
            # No snapshot under way wants an entry of this epoch, wherever it stands.
            entry.place = gaps.pop()
            listed[entry.place] = entry
        else:
            entry.place = len(listed)
            listed.append(entry)
        if self._changes is not None:
            self._changes.note(entry)
        if self.parts is not None:
            self.parts.settle(entry, self.epoch)
        return entry

    def copy_of(self, key: Any) -> Any | None:
        """Give a copy of the value of a key; None if it has none, or none that may be seen.

        Raises SerializationError for a value that cannot be copied."""
        entry = self.entries.get(key)
        if entry is None or not self.is_visible(entry):
            return None
        return self._copy(entry.value)

    def _copy(self, value: Any) -> Any:
        if self.parts is not None:
            return self.parts.whole_copy(value)
        return self._serializer.copy(value, step=self.step)

    def private_copy(self, entry: Entry) -> Any:
        """Copy the value of an entry for a call that may fail; `replace` makes it the value.

        Raises SerializationError for a value that cannot be copied."""
        if self.parts is not None:
            return self.parts.private_copy(entry)
        return self._serializer.copy(entry.value, step=self.step)

    def is_visible(self, entry: Entry) -> bool:
        """Say whether the value of an entry may be seen now."""
        return True

    def copies(self) -> Iterator[tuple[Any, Any]]:
        """Give each key that may be seen with a copy of its value, while no entry is added or
        removed.

        Raises SerializationError for a value that cannot be copied."""
        for key, entry in self.entries.items():
            if self.is_visible(entry):
                yield key, self._copy(entry.value)

    # ---- changes

    def preserve(self, entry: Entry) -> None:
        """Before the first change after a snapshot: keep what snapshots want of the entry."""
        for snapshot in self._snapshots:
            snapshot.keep(entry)
        if self.parts is not None:
            self.parts.behind_cut(entry, self.epoch, self._base.cut if self._base else 0)
        entry.epoch = self.epoch
        if self._changes is not None:
            self._changes.note(entry)

    def replace(self, entry: Entry, value: Any) -> None:
        """Set an entry's value."""
        if entry.epoch != self.epoch:
            self.preserve(entry)
        if self.parts is not None:
            self.parts.replace(entry, value, self.epoch)
        else:
            entry.value = value

    def remove(self, key: Any) -> None:
        """Forget a key, with its timers; a later record of it gets a fresh value."""
        entry = self.entries.pop(key, None)
        if entry is None:
            return
        if entry.epoch != self.epoch:
            self.preserve(entry)
        if self.parts is not None:
            self.parts.leave(entry)
        entry.value = entry.timers = None
        place, entry.place = entry.place, REMOVED
        if self._snapshots:
            self._groups[entry.group][place] = GAP
            self._gaps.setdefault(entry.group, []).append(place)
        else:
            self._unlist(entry.group, place)

    def _unlist(self, group: int, place: int) -> None:
        """Close the place of a removed entry in its group's list, with the last one."""
        listed = self._groups[group]
        last = listed.pop()
        if place < len(listed):
            listed[place] = last
            last.place = place

    # ---- timers

    def set_timer(self, entry: Entry, timestamp: int, clock: int = PROCESSING) -> None:
        """Register a timer; the same time twice is one timer."""
        if entry.timers is None:
            entry.timers = (set(), set())
        timers = entry.timers[clock]
        if timestamp not in timers:
            if entry.epoch != self.epoch:
                self.preserve(entry)
            timers.add(timestamp)
            self._timers[clock].add(timestamp, entry)

    def next_timer(self, clock: int = PROCESSING) -> int | None:
        """The time of the earliest timer, which may have been cleared since."""
        return self._timers[clock].first

    def pop_due(self, now: int, clock: int = PROCESSING) -> tuple[int, Entry] | None:
        """Take the earliest timer up to `now` out of the queue; the entry keeps it until
        `timer_done`, so that a snapshot in between still holds it."""
        take = self._timers[clock].take
        while (due := take(now)) is not None:
            timestamp, entry = due
            timers = entry.timers
            if timers is not None and timestamp in timers[clock]:
                return due
        return None

    def is_due(self, now: int, clock: int = PROCESSING) -> bool:
        """Say whether a timer up to `now` is left in the queue."""
        queue = self._timers[clock]
        while (due := queue.next(now)) is not None:
            timestamp, entry = due
            if has_timer(entry, timestamp, clock):
                return True
            queue.take(now)
        return False

    def has_timer(self, key: Any, timestamp: int, clock: int = PROCESSING) -> bool:
        """Say whether the timer is set: it was neither done nor cleared."""
        entry = self.entries.get(key)
        return entry is not None and has_timer(entry, timestamp, clock)

    def timer_done(self, entry: Entry, timestamp: int, clock: int = PROCESSING) -> None:
        """Forget a timer: in the same step in which its effects are committed (rule P21)."""
        if entry.timers and timestamp in entry.timers[clock]:
            if entry.epoch != self.epoch:
                self.preserve(entry)
            entry.timers[clock].discard(timestamp)

    # ---- snapshot and restore

    def snapshot(self) -> KeyedSnapshot:
        """Begin a snapshot of all entries as they are now. It is under way until it is frozen or
        dropped; older ones are frozen first."""
        self.epoch += 1
        base, content = self._content_of_next()
        if self._changes is not None:
            self._changes.cut(self.epoch, self._size)
        if self.parts is not None:
            self.parts.restore_ended()
        snapshot = KeyedSnapshot(self, content, base)
        self._snapshots.append(snapshot)
        return snapshot

    def _content_of_next(self) -> tuple[Base | None, Content]:
        changes = self._changes
        if changes is not None:
            base = base_of_next(
                self._base,
                known_since=changes.known_since,
                changes=changes.count + self._changed_entries,
                keys=self._size,
            )
            if base is not None:
                return base, ChangedContent(changes.since(base.cut))
        return None, WholeContent(self._groups)

    @property
    def _size(self) -> int:
        """Keys, and what is stored one by one beside them."""
        return len(self.entries) + (0 if self.parts is None else self.parts.tally.entries)

    @property
    def _changed_entries(self) -> int:
        if self.parts is None or self._base is None:
            return 0
        return self.parts.tally.changes_since(self._base.cut)

    def restore(self, rows: Iterable[Row], *, one_group: bool = False) -> None:
        """Put entries back, before the first record. Rows that come later count: a key that is
        there already is replaced, or removed. `one_group`: all rows are of keys of one
        group."""
        if one_group and self.parts is None and self._entry_class is Entry:
            rows = self._restore_new(list(rows))
        for row in rows:
            if is_removal(row):
                self.remove(row[0])
                if self.parts is not None:
                    self.parts.detach(row[0])
            elif is_part(row):
                if self.parts is not None:
                    self.parts.apply(*row)
            else:
                self._restore(*row)

    def _restore_new(self, rows: list[Row]) -> list[Row]:
        """Put the simple entries of new keys back, of one group: most of all restored rows. Returns
        what there is from the first other row on."""
        entries, epoch, changes = self.entries, self.epoch, self._changes
        if not rows:
            return rows
        group = key_group(stable_hash(rows[0][0]), self._max_parallelism)
        listed = self._groups[group]
        for place, row in enumerate(rows):
            if row[2:] != SIMPLE or row[0] in entries:
                return rows[place:]
            entry = entries[row[0]] = Entry(row[0], row[1], group, epoch)
            entry.place = len(listed)
            listed.append(entry)
            if changes is not None:
                changes.note(entry)
        return []

    def _restore(
        self,
        key: Any,
        value: Any,
        processing: Iterable[int],
        event: Iterable[int] = (),
        *dated: int,
    ) -> None:
        """Put an entry back; `dated` is of one that expired when it was stored."""
        entry = self.entries.get(key)
        if entry is None:
            entry = self._insert(key, value)
        else:
            entry.value, entry.timers = value, None
        if self.parts is not None:
            self.parts.attach(entry)
        for clock, timers in ((PROCESSING, processing), (EVENT, event)):
            for timestamp in timers:
                self.set_timer(entry, timestamp, clock)

    # ---- what snapshots tell (SnapshotOwner)

    @property
    def serializer(self) -> Serializer:
        """By which entries are frozen."""
        return self._serializer

    @property
    def marks_touches(self) -> bool:
        """Each first touch behind a cut must be seen, also of an entry that is frozen already."""
        return self._changes is not None

    @property
    def under_way(self) -> list[KeyedSnapshot]:
        """The snapshots that are being frozen, oldest first."""
        return self._snapshots

    def snapshot_ended(self, snapshot: KeyedSnapshot) -> None:
        """A snapshot is frozen or dropped."""
        if snapshot in self._snapshots:
            self._snapshots.remove(snapshot)
        if not self._snapshots:
            self._close_gaps()

    def snapshot_complete(self, base: Base) -> None:
        """The checkpoint of a snapshot is complete: later ones may build on it."""
        if self._changes is not None and (self._base is None or self._base.cut < base.cut):
            self._base = base
            self._changes.forget_before(base.cut)
            if self.parts is not None:
                self.parts.tally.forget_before(base.cut)

    def _close_gaps(self) -> None:
        for group, places in self._gaps.items():
            for place in sorted(places, reverse=True):  # so that the last one is never a gap
                self._unlist(group, place)
        self._gaps.clear()
