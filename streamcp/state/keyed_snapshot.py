"""One snapshot of a keyed state: its entries, frozen group by group while the state goes on.

It holds the entries as they were at its cut: all of them, or those that changed since the snapshot
that it builds on, with the keys that were removed (rule P39). An entry that is older than its
`epoch` still has the value of the cut; of one that is touched before it is frozen, `keep` takes
that value. It knows neither timers nor how keys are found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from streamcp.checkpoint.incremental import Base, chain_with
from streamcp.checkpoint.snapshot import Section, SectionHandle
from streamcp.errors import SerializationError
from streamcp.serialization.immutable import is_deeply_immutable
from streamcp.serialization.serializer import NOT_FLAT, Serializer
from streamcp.state.changes import Noted
from streamcp.state.entries import REMOVED, SIMPLE, Entry, Row, are_simple
from streamcp.state.parts import CHUNK as PART_CHUNK
from streamcp.state.parts import Parts

# Entries frozen together: large enough that the cost of one frame disappears, small enough that
# a slice of background work stays well under a millisecond.
CHUNK = 128

Part: TypeAlias = tuple[Sequence[Entry], int]
"""A list of entries, and how many of them there were at the cut."""


Taken: TypeAlias = tuple[list[Any], list[tuple[Any, ...]]]
"""Keys, and of the instance of each the values of its fields."""


class Dump(Protocol):
    """Makes the bytes of a frame."""

    def __call__(self, *, step: str) -> bytes:
        """Raises SerializationError."""
        ...


class SnapshotOwner(Protocol):
    """What a snapshot needs of its state."""

    step: str
    epoch: int
    parts: Parts | None

    @property
    def serializer(self) -> Serializer:
        """By which entries are frozen."""
        ...

    @property
    def marks_touches(self) -> bool:
        """Each first touch behind a cut must be seen, also of an entry that is frozen already."""
        ...

    @property
    def under_way(self) -> Sequence[KeyedSnapshot]:
        """The snapshots that are being frozen, oldest first."""
        ...

    def snapshot_ended(self, snapshot: KeyedSnapshot) -> None:
        """A snapshot is frozen or dropped."""
        ...

    def snapshot_complete(self, base: Base) -> None:
        """The checkpoint of a snapshot is complete."""
        ...


class Content(Protocol):
    """Where the entries of a snapshot are found."""

    @property
    def groups(self) -> Sequence[int]:
        """The key groups that may have entries."""
        ...

    def parts(self, group: int) -> Sequence[Part]:
        """List the parts of a group; an entry may be in several."""
        ...


class WholeContent:
    """All entries that there are now."""

    def __init__(self, lists: Sequence[Sequence[Entry]]) -> None:
        """Remember how long the list of each group is."""
        self.groups = [group for group, listed in enumerate(lists) if listed]
        self._lists = lists
        self._lengths = {group: len(lists[group]) for group in self.groups}

    def parts(self, group: int) -> Sequence[Part]:
        """The one list of a group."""
        return ((self._lists[group], self._lengths[group]),)


class ChangedContent:
    """The entries that were noted as changed."""

    def __init__(self, noted: Sequence[Noted]) -> None:
        """Take what was noted up to now, by the cuts before it."""
        self.groups = sorted(set().union(*noted))
        self._noted = noted

    def parts(self, group: int) -> Sequence[Part]:
        """The lists in which a group has changes."""
        return [(listed, len(listed)) for one in self._noted if (listed := one.get(group))]


class KeyedSnapshot:
    """The entries of one snapshot, frozen by `freeze_some`.

    `base` is what it builds on; None if it is whole."""

    def __init__(self, state: SnapshotOwner, content: Content, base: Base | None) -> None:
        """Begin at the epoch that `state` has now."""
        self.records = 0
        self.epoch = state.epoch
        self.base = base
        self.error: SerializationError | None = None
        self._state = state
        self._since = 0 if base is None else base.cut
        self._content = content
        self._group_place = 0
        self._part_place = 0
        self._place = 0
        self._kept: dict[int, list[Row]] = {}
        self._taken: dict[int, dict[int, Taken]] = {}  # by group, then by class
        self._parts: deque[tuple[int, int, Row]] = deque()  # group, entries, row
        self._frames: list[bytes] = []
        self._frame_groups: list[int] = []
        self._removals: list[bytes] = []
        self._removal_groups: list[int] = []
        self._chain: tuple[SectionHandle, ...] = ()
        self._dropped = False

    def wants(self, entry: Entry) -> bool:
        """Say whether an entry, not touched since `entry.epoch`, is still to be frozen."""
        return self._since <= entry.epoch < self.epoch and entry.frozen < self.epoch

    def keep(self, entry: Entry) -> None:
        """Keep an entry that is about to be changed: a copy if that is cheap, itself if it cannot
        change, else its bytes."""
        if self._state.parts is not None:
            self._freeze_rows(entry.group, self._rows_beside_parts([entry], self._state.parts))
            return
        serializer = self._state.serializer
        if entry.timers is None and type(entry) is Entry:
            taken = serializer.taken(entry.value)
            if taken is not None:
                self._keep_taken(entry, *taken)
                return
        key, value, *rest = entry.row()
        copy = serializer.flat_copy(value)
        if copy is NOT_FLAT and not is_deeply_immutable(value):
            self._freeze_rows(entry.group, [(key, value, *rest)])
            return
        kept = (key, value if copy is NOT_FLAT else copy, *rest)
        self._kept.setdefault(entry.group, []).append(kept)

    def _keep_taken(self, entry: Entry, number: int, fields: tuple[Any, ...]) -> None:
        by_class = self._taken.get(entry.group)
        if by_class is None:
            by_class = self._taken[entry.group] = {}
        kept = by_class.get(number)
        if kept is None:
            kept = by_class[number] = ([], [])
        kept[0].append(entry.key)
        kept[1].append(fields)

    def freeze_some(self) -> bool:
        """Freeze the next chunk; returns False when there is nothing left to freeze.

        While an older snapshot of the state is under way, this freezes of that one."""
        under_way = self._state.under_way
        oldest = next(iter(under_way), self)
        if oldest is not self and self in under_way:
            oldest.freeze_some()
            return True
        if self._parts and self.error is None:
            self._freeze_parts()
            return True
        groups = self._content.groups
        while not self._dropped and self.error is None and self._group_place < len(groups):
            group = groups[self._group_place]
            if self._freeze_untouched(group) or self._freeze_kept(group):
                return True
            self._group_place += 1
            self._part_place = self._place = 0
        self._state.snapshot_ended(self)
        return False

    def drop(self) -> None:
        """The checkpoint has ended: keep nothing any more."""
        self._dropped = True
        self._parts.clear()
        self._state.snapshot_ended(self)

    def section(self) -> Section:
        """The frozen content: removals first, for a removed key may be there again."""
        return Section(
            "state",
            self._state.step,
            (*self._removals, *self._frames),
            self.records,
            (*self._removal_groups, *self._frame_groups),
        )

    def written(self, handle: SectionHandle) -> tuple[SectionHandle, ...]:
        """The section is durable; returns the sections that hold the state now, in the order in
        which they are read. The last one is `handle`."""
        self._chain = chain_with(self.base, handle)
        self._frames.clear()
        self._removals.clear()
        return (handle,) if self.base is None else (*self.base.chain, handle)

    def completed(self) -> None:
        """The checkpoint is complete."""
        self._state.snapshot_complete(Base(self.epoch, self._chain))

    # ---- freezing

    def _freeze_untouched(self, group: int) -> bool:
        """Freeze entries that nobody has touched since the cut; False if there are none."""
        taken = self._next_entries(group)
        if self._state.parts is None and taken and are_simple(taken):
            self._freeze_simple(group, [e.key for e in taken], [e.value for e in taken])
            return True
        present = [entry for entry in taken if entry.place != REMOVED]
        if self._state.parts is not None:
            rows = self._rows_beside_parts(present, self._state.parts)
        else:
            rows = [entry.row() for entry in present]
        removals = [(entry.key,) for entry in taken if entry.place == REMOVED]
        if rows:
            self._freeze_rows(group, rows)
        if removals:
            self._freeze(removals, group, self._removals, self._removal_groups, len(removals))
        return bool(taken)

    def _rows_beside_parts(self, entries: Sequence[Entry], parts: Parts) -> list[Row]:
        """Make the rows of entries, and keep what is stored beside them: nothing in it can change,
        so it is frozen when its turn comes."""
        base, rows = None if self.base is None else self.base.cut, list[Row]()
        for entry in entries:
            key, value, *rest = entry.row()
            try:
                rows.append((key, parts.stand_in(value), *rest))
            except SerializationError as error:
                self.error = error
                break
            self._parts += ((entry.group, n, row) for n, row in parts.rows(entry, base))
        return rows

    def _freeze_parts(self) -> None:
        """Freeze the next rows that are stored beside those of keys, of one group."""
        group, count, row = self._parts.popleft()
        rows = [row]
        while self._parts and self._parts[0][0] == group and count < PART_CHUNK:
            _, more, row = self._parts.popleft()
            rows.append(row)
            count += more
        self._freeze(rows, group, self._frames, self._frame_groups, count)

    def _next_entries(self, group: int) -> list[Entry]:
        parts = self._content.parts(group)
        taken: list[Entry] = []
        while not taken and self._part_place < len(parts):
            listed, length = parts[self._part_place]
            end = min(self._place + CHUNK, length)
            self._take(listed[self._place : end], taken)
            self._place = end
            if end == length:
                self._part_place, self._place = self._part_place + 1, 0
        return taken

    def _take(self, entries: Sequence[Entry], taken: list[Entry]) -> None:
        epoch = self.epoch
        if self._state.marks_touches:
            wanted = [e for e in entries if e.epoch < epoch and e.frozen < epoch]
            for entry in wanted:
                entry.frozen = epoch
        else:
            wanted = [e for e in entries if e.epoch < epoch]
            for entry in wanted:
                entry.epoch = epoch  # so that nobody calls `preserve` for nothing
        taken += wanted

    def _freeze_kept(self, group: int) -> bool:
        """Freeze entries that were kept as they were touched: no more can come."""
        kept = self._kept.get(group)
        if kept:
            self._kept[group] = kept[CHUNK:]
            self._freeze_rows(group, kept[:CHUNK])
            return True
        for number, (keys, taken) in self._taken.get(group, {}).items():
            if keys:
                some = keys[-CHUNK:], number, taken[-CHUNK:], SIMPLE
                del keys[-CHUNK:], taken[-CHUNK:]
                self._add(group, len(some[0]), partial(self._state.serializer.dumps_taken, *some))
                return True
        return False

    def _freeze_rows(self, group: int, rows: list[Row]) -> None:
        if all(row[2:] == SIMPLE for row in rows):
            self._freeze_simple(group, [row[0] for row in rows], [row[1] for row in rows])
        else:
            self._freeze(rows, group, self._frames, self._frame_groups, len(rows))

    def _freeze_simple(self, group: int, keys: list[Any], values: list[Any]) -> None:
        if keys:
            dump = self._state.serializer.dumps_rows
            self._add(group, len(keys), partial(dump, keys, values, SIMPLE))

    def _freeze(
        self, rows: list[Row], group: int, frames: list[bytes], groups: list[int], count: int
    ) -> None:
        dump = partial(self._state.serializer.dumps, rows)
        self._add(group, count, dump, frames=frames, groups=groups)

    def _add(
        self,
        group: int,
        count: int,
        dump: Dump,
        *,
        frames: list[bytes] | None = None,
        groups: list[int] | None = None,
    ) -> None:
        """Add a frame with the rows of `count` keys."""
        try:
            data = dump(step=self._state.step)
        except SerializationError as error:
            self.error = error
            return
        (self._frames if frames is None else frames).append(data)
        (self._frame_groups if groups is None else groups).append(group)
        self.records += count
