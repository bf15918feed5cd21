"""What is kept of one key, and the form in which it is stored.

A stored row is (key, value, timers), with a fourth field where there are event-time timers; a row
of one field, (key,), says that the key was removed.
Sections that hold changes are read behind those that they build on, row by row: the last row of a
key counts. Knows neither snapshots nor how keys are found.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, TypeAlias

Row: TypeAlias = tuple[Any, ...]
"""What is stored of an entry: key, value, timers in processing time and in event time
(milliseconds since the epoch; the last field is left out if there are none); or the key alone of
one that was removed."""

PROCESSING, EVENT = 0, 1
"""The clock of a timer: its place in what an entry has of both."""

Timers: TypeAlias = tuple[set[int], set[int]]
"""The timers of a key, by their clock."""

REMOVED = -1
"""The place of an entry that was removed."""


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


# Stands in the lists where an entry was removed while snapshots went by them; newer than all.
GAP = Entry(None, None, 0, sys.maxsize)


def row_of(entry: Entry) -> Row:
    """Make the row of an entry that is there."""
    if entry.timers is None:
        return entry.key, entry.value, ()
    processing, event = entry.timers
    row = entry.key, entry.value, tuple(sorted(processing))
    return (*row, tuple(sorted(event))) if event else row


def is_removal(row: Row) -> bool:
    """Say whether a row tells that its key was removed."""
    return len(row) == 1


def without_timers(rows: Iterable[Row]) -> list[Row]:
    """Leave the timers of stored rows out."""
    return [row if is_removal(row) else (row[0], row[1], ()) for row in rows]


def apply_rows(rows: Iterable[Row], to: dict[Any, Row]) -> None:
    """Apply stored rows, in their order, to those that were read before, by key."""
    for row in rows:
        to.pop(row[0], None)
        if not is_removal(row):
            to[row[0]] = row
