"""What is kept of one key, and the form in which it is stored.

A stored row is (key, value, timers), with a fourth field where there are event-time timers, and six
where the state expires: when it was last updated, and by which clock. A row of one field, (key,),
says that the key was removed; one of two holds entries of a field that are stored one by one.
Sections that hold changes are read behind those that they build on, row by row: the last row of a
key counts. Knows neither snapshots nor how keys are found.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeAlias

from streamcp.elements import MAX_TIMESTAMP

Row: TypeAlias = tuple[Any, ...]
"""What is stored of an entry: key, value, timers in processing time and in event time
(milliseconds since the epoch; left out if there are none and nothing follows), its last update and
the clock of that (of a state that expires); or the key alone of one that was removed."""

PROCESSING, EVENT = 0, 1
"""The clock of a timer: its place in what an entry has of both."""

Timers: TypeAlias = tuple[set[int], set[int]]
"""The timers of a key, by their clock."""

REMOVED = -1
"""The place of an entry that was removed."""

UNDATED = MAX_TIMESTAMP
"""The last update of an entry of which it is not known: it has not expired."""


class Entry:
    """The state of one key.

    `epoch` is the number of the state's snapshots when it was last touched, `frozen` the number
    of the newest snapshot that has frozen it."""

    __slots__ = ("epoch", "frozen", "group", "key", "place", "timers", "value")

    def __init__(self, key: Any, value: Any, group: int, epoch: int) -> None:
        self.key = key
        self.value = value
        self.group = group
        self.epoch = epoch
        self.frozen = 0
        self.place = 0
        self.timers: Timers | None = None

    def row(self) -> Row:
        """Make the row of an entry that is there."""
        if self.timers is None:
            return self.key, self.value, ()
        processing, event = self.timers
        row = self.key, self.value, tuple(sorted(processing))
        return (*row, tuple(sorted(event))) if event else row


class ExpiringEntry(Entry):
    """The same of a state that expires. `updated` is when a call has last updated it, by the clock
    of the class, in whole milliseconds: a float in processing time, which is compared faster, and
    an int in event time, as timestamps are; `bucket` and `seat` are its place in the index."""

    __slots__ = ("bucket", "seat", "updated")

    clock: ClassVar[int] = PROCESSING

    def __init__(self, key: Any, value: Any, group: int, epoch: int) -> None:
        super().__init__(key, value, group, epoch)
        self.updated: float = UNDATED
        self.bucket = 0
        self.seat = 0

    def row(self) -> Row:
        """Make the row, with the last update if it is known."""
        row = super().row()
        if self.updated == UNDATED:
            return row
        return (*row, *((),) * (4 - len(row)), int(self.updated), self.clock)


class EventEntry(ExpiringEntry):
    """One whose last update is in event time."""

    __slots__ = ()

    clock = EVENT


# Stands in the lists where an entry was removed while snapshots went by them; newer than all.
GAP = Entry(None, None, 0, sys.maxsize)


SIMPLE: Row = ((),)
"""What follows key and value in the row of a simple entry: there is no timer."""


def add_simple(entries: Sequence[Entry], keys: list[Any], values: list[Any]) -> list[Entry]:
    """Add keys and values of those entries, of one state, whose rows are no more than these and no
    timer: they are stored column by column. Returns the others."""
    if type(entries[0]) is not Entry:
        return [*entries]
    others: list[Entry] = []
    for entry in entries:
        if entry.timers is None and entry.place != REMOVED:
            keys.append(entry.key)
            values.append(entry.value)
        else:
            others.append(entry)
    return others


def has_timers(entry: Entry) -> bool:
    """Say whether a timer of the key is set."""
    return entry.timers is not None and any(entry.timers)


def has_timer(entry: Entry, timestamp: int, clock: int) -> bool:
    """Say whether a timer of the key is set for a time."""
    return entry.timers is not None and timestamp in entry.timers[clock]


def is_removal(row: Row) -> bool:
    """Say whether a row tells that its key was removed."""
    return len(row) == 1


def is_part(row: Row) -> bool:
    """Say whether a row holds entries of a field of the state, and not the state."""
    return len(row) == 2


def without_timers(rows: Iterable[Row]) -> list[Row]:
    """Leave the timers of stored rows out."""
    return [row if is_removal(row) or is_part(row) else _without_timers(row) for row in rows]


def _without_timers(row: Row) -> Row:
    key, value, _, *rest = row
    return (key, value, (), (), *rest[1:]) if len(rest) > 1 else (key, value, ())


def apply_rows(rows: Iterable[Row], to: dict[Any, Row]) -> None:
    """Apply stored rows, in their order, to those that were read before, by key; what is stored
    beside them is left out."""
    for row in rows:
        if is_part(row):
            continue
        to.pop(row[0], None)
        if not is_removal(row):
            to[row[0]] = row
