"""One snapshot of a keyed state: its entries, frozen group by group while the state goes on.

It holds the entries as they were at its cut: all of them, or those that changed since the snapshot
that it builds on, with the keys that were removed (rule P39). An entry that is older than its
`epoch` still has the value of the cut; of one that is touched before it is frozen, `keep` takes
that value. It knows neither timers nor how keys are found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from streamcp.checkpoint.incremental import Base, chain_with
from streamcp.checkpoint.snapshot import Section, SectionHandle
from streamcp.errors import SerializationError
from streamcp.serialization.immutable import is_deeply_immutable
from streamcp.serialization.serializer import NOT_FLAT, PLAIN, Serializer
from streamcp.state.changes import Noted
from streamcp.state.entries import REMOVED, SIMPLE, Entry, Row, simple_columns
from streamcp.state.parts import CHUNK as PART_CHUNK
from streamcp.state.parts import Parts

# Entries frozen together: large enough that the cost of one frame disappears, small enough that
# a slice of background work stays well under a millisecond.
CHUNK = 128

T = TypeVar("T")

Part: TypeAlias = tuple[Sequence[Entry], int]
"""A list of entries, and how many of them there were at the cut."""


Taken: TypeAlias = tuple[list[Any], list[Any]]
"""Keys, and for each what the serializer has taken of its value."""


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
        self._work: Iterator[None] = self._freezing()
        self._kept: dict[int, list[Row]] = {}
        self._taken: dict[int, dict[int, Taken]] = {}  # by group, then by number of class
        self._parts: deque[tuple[int, int, Row]] = deque()  # group, entries, row
        self._frames: list[bytes] = []
        self._frame_groups: list[int] = []
        self._removals: list[bytes] = []
        self._removal_groups: list[int] = []
        self._chain: tuple[SectionHandle, ...] = ()
        self._dropped = False

    def keep(self, entry: Entry) -> None:
        """An entry, not touched since `entry.epoch`, is about to be changed: if it is still to be
        frozen, keep a copy if that is cheap, itself if it cannot change, else its bytes."""
        epoch = self.epoch
        if not self._since <= entry.epoch < epoch or entry.frozen >= epoch:
            return
        state = self._state
        if entry.timers is None and type(entry) is Entry and state.parts is None:
            taken = state.serializer.taken(entry.value)
            if taken is not None:
                number, value = taken
                try:
                    keys, values = self._taken[entry.group][number]
                except KeyError:
                    keys, values = self._taken.setdefault(entry.group, {})[number] = [], []
                keys.append(entry.key)
                values.append(value)
                return
        try:
            self._keep_row(entry)
        except SerializationError as error:
            self.error = error

    def _keep_row(self, entry: Entry) -> None:
        """Raises SerializationError."""
        if self._state.parts is not None:
            self._freeze_rows(entry.group, self._rows_beside_parts([entry], self._state.parts))
            return
        key, value, *rest = entry.row()
        copy = self._state.serializer.flat_copy(value)
        if copy is NOT_FLAT and not is_deeply_immutable(value):
            self._freeze_rows(entry.group, [(key, value, *rest)])
            return
        kept = (key, value if copy is NOT_FLAT else copy, *rest)
        self._kept.setdefault(entry.group, []).append(kept)

    def freeze_some(self) -> bool:
        """Freeze the next chunk; returns False when there is nothing left to freeze.

        While an older snapshot of the state is under way, this freezes of that one."""
        under_way = self._state.under_way
        oldest = next(iter(under_way), self)
        if oldest is not self and self in under_way:
            oldest.freeze_some()
            return True
        if not self._dropped and self.error is None:
            try:
                for _ in self._work:
                    return True
            except SerializationError as error:
                self.error = error
        self._state.snapshot_ended(self)
        return False

    def drop(self) -> None:
        """The checkpoint has ended: keep nothing any more."""
        self._dropped = True
        self._parts.clear()
        self._work = iter(())  # which refers back to this
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
        """Storage has the section; returns the sections that hold the state now, in the order in
        which they are read. The last one is `handle`."""
        self._chain = chain_with(self.base, handle)
        self._frames.clear()
        self._removals.clear()
        return (handle,) if self.base is None else (*self.base.chain, handle)

    def completed(self) -> None:
        """The checkpoint is complete."""
        self._state.snapshot_complete(Base(self.epoch, self._chain))

    # ---- freezing

    def _freezing(self) -> Iterator[None]:
        """Freeze frame by frame. Raises SerializationError."""
        for group in self._content.groups:
            for listed, length in self._content.parts(group):
                for start in range(0, length, CHUNK):
                    taken = self._take(listed[start : min(start + CHUNK, length)])
                    if taken:
                        self._freeze_untouched(group, taken)
                        yield
                    if self._parts:
                        yield from self._freeze_parts()
            yield from self._freeze_touched(group)

    def _freeze_touched(self, group: int) -> Iterator[None]:
        """Freeze what was kept as it was touched: no more can come."""
        if group in self._kept:
            for rows in _chunks(self._kept.pop(group)):
                self._freeze_rows(group, rows)
                yield
        if group in self._taken:
            for number, (keys, values) in self._taken.pop(group).items():
                for some, taken in zip(_chunks(keys), _chunks(values), strict=True):
                    self._freeze_columns(group, some, taken, number)
                    yield
        if self._parts:
            yield from self._freeze_parts()

    def _freeze_untouched(self, group: int, entries: Sequence[Entry]) -> None:
        """Freeze entries that nobody has touched since the cut."""
        parts = self._state.parts
        if parts is None:
            keys, values, entries = simple_columns(entries)
            self._freeze_columns(group, keys, values)
            if not entries:
                return
        removals = [(entry.key,) for entry in entries if entry.place == REMOVED]
        if removals:
            self._removals.append(self._dump(removals))
            self._removal_groups.append(group)
            self.records += len(removals)
        present = [entry for entry in entries if entry.place != REMOVED]
        if present and parts is not None:
            self._freeze_rows(group, self._rows_beside_parts(present, parts))
        elif present:
            self._freeze_rows(group, [entry.row() for entry in present])

    def _take(self, entries: Sequence[Entry]) -> list[Entry]:
        epoch = self.epoch
        if self._state.marks_touches:
            taken = [e for e in entries if e.epoch < epoch and e.frozen < epoch]
            for entry in taken:
                entry.frozen = epoch
        else:
            taken = [e for e in entries if e.epoch < epoch]
            for entry in taken:
                entry.epoch = epoch  # so that nobody calls `preserve` for nothing
        return taken

    def _rows_beside_parts(self, entries: Sequence[Entry], parts: Parts) -> list[Row]:
        """Make the rows of entries, and keep what is stored beside them: nothing in it can change,
        so it is frozen when its turn comes. Raises SerializationError."""
        base = None if self.base is None else self.base.cut
        rows: list[Row] = []
        for entry in entries:
            key, value, *rest = entry.row()
            rows.append((key, parts.stand_in(value), *rest))
            self._parts += ((entry.group, n, row) for n, row in parts.rows(entry, base))
        return rows

    def _freeze_parts(self) -> Iterator[None]:
        """Freeze rows that are stored beside those of keys, frame by frame, each of one group."""
        while self._parts:
            group, count, row = self._parts.popleft()
            rows = [row]
            while self._parts and self._parts[0][0] == group and count < PART_CHUNK:
                _, more, row = self._parts.popleft()
                rows.append(row)
                count += more
            self._add(group, count, self._dump(rows))
            yield

    def _freeze_rows(self, group: int, rows: list[Row]) -> None:
        """Add a frame of rows. Raises SerializationError."""
        if all(row[2:] == SIMPLE for row in rows):
            self._freeze_columns(group, [row[0] for row in rows], [row[1] for row in rows])
        else:
            self._add(group, len(rows), self._dump(rows))

    def _freeze_columns(
        self, group: int, keys: list[Any], values: list[Any], number: int = PLAIN
    ) -> None:
        """Add a frame of simple rows, with what the serializer has taken of their values if these
        are of a class. Raises SerializationError."""
        if not keys:
            return
        state = self._state
        data = state.serializer.dumps_taken(keys, number, values, SIMPLE, step=state.step)
        self._add(group, len(keys), data)

    def _dump(self, rows: list[Row]) -> bytes:
        return self._state.serializer.dumps(rows, step=self._state.step)

    def _add(self, group: int, count: int, frame: bytes) -> None:
        """Add a frame with the rows of `count` keys."""
        self._frames.append(frame)
        self._frame_groups.append(group)
        self.records += count


def _chunks(rows: Sequence[T]) -> Iterator[list[T]]:
    return ([*rows[start : start + CHUNK]] for start in range(0, len(rows), CHUNK))
