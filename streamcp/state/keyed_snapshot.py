"""One snapshot of a keyed state: its entries, frozen group by group while the state goes on.

It holds the entries as they were at its cut: all of them, or those that changed since the snapshot
that it builds on, with the keys that were removed (rule P39). An entry that is older than its
`epoch` still has the value of the cut; of one that is touched before it is frozen, `keep` takes
that value. It knows neither timers nor how keys are found.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from streamcp.checkpoint.incremental import Base, chain_with
from streamcp.checkpoint.key_groups import Runs
from streamcp.checkpoint.snapshot import Section, SectionHandle
from streamcp.errors import SerializationError
from streamcp.serialization.immutable import is_deeply_immutable
from streamcp.serialization.serializer import NOT_FLAT, PLAIN, Serializer
from streamcp.state.changes import Noted
from streamcp.state.entries import REMOVED, SIMPLE, Entry, Row, add_simple
from streamcp.state.parts import CHUNK as PART_CHUNK
from streamcp.state.parts import Parts

# So many entries of a group are taken at a time, and as many of several are frozen together:
# enough that the cost of one frame disappears, few enough that a slice of background work stays
# well under a millisecond. Frames of large values hold no more than a group.
CHUNK = 256
LARGE_FRAME = 1 << 16

T = TypeVar("T")

Part: TypeAlias = tuple[Sequence[Entry], int]
"""A list of entries, and how many of them there were at the cut."""


Taken: TypeAlias = tuple[list[Any], list[Any]]
"""Keys, and what the serializer has taken of the value of each, one after the other: no tuple is
left per key, which would be work for the collector of garbage."""


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
        self._serializer = state.serializer
        self._is_whole = state.parts is None  # nothing is stored beside the rows of keys
        self._since = 0 if base is None else base.cut
        self._content = content
        self._work: Iterator[None] = self._freezing()
        self._kept: dict[int, list[Row]] = {}
        self._taken: dict[int, dict[int, Taken]] = {}  # by group, then by number of class
        self._parts: deque[tuple[int, int, Row]] = deque()  # group, entries, row
        self._frames: list[bytes] = []
        self._frame_groups: list[Runs] = []
        self._removals: list[bytes] = []
        self._removal_groups: list[Runs] = []
        self._gathered: defaultdict[int, _Gathered] = defaultdict(_Gathered)  # by kind
        self._is_enough = False  # something that was gathered is as long as a frame
        self._enough = CHUNK
        self._chain: tuple[SectionHandle, ...] = ()
        self._dropped = False

    def keep(self, entry: Entry) -> None:
        """An entry, not touched since `entry.epoch`, is about to be changed: if it is still to be
        frozen, keep a copy if that is cheap, itself if it cannot change, else its bytes."""
        epoch = self.epoch
        if not self._since <= entry.epoch < epoch or entry.frozen >= epoch:
            return
        if entry.timers is None and type(entry) is Entry and self._is_whole:
            taken = self._serializer.taken(entry.value)
            if taken is not None:
                number, fields = taken
                try:
                    keys, values = self._taken[entry.group][number]
                except KeyError:
                    keys, values = self._taken.setdefault(entry.group, {})[number] = [], []
                keys.append(entry.key)
                values += fields
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
        copy = self._serializer.flat_copy(value)
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
        """Freeze frame by frame. What is gathered of untouched entries refers to values that may
        change at each `yield`: nothing is left there. Raises SerializationError."""
        for group in self._content.groups:
            for listed, length in self._content.parts(group):
                for start in range(0, length, CHUNK):
                    taken = self._take(listed[start : min(start + CHUNK, length)])
                    if taken:
                        self._gather_untouched(group, taken)
                    if self._parts:
                        self._freeze_gathered()
                        yield from self._freeze_parts()
                    elif self._is_enough:
                        self._freeze_gathered()
                        yield
            if group in self._kept or group in self._taken:
                yield from self._gather_touched(group)
        if self._gathered:
            self._freeze_gathered()
            yield

    def _gather_touched(self, group: int) -> Iterator[None]:
        """Gather what was kept as it was touched: no more can come."""
        for rows in _chunks(self._kept.pop(group, [])):
            self._gather_rows(group, rows)
            if self._is_enough:
                self._freeze_gathered()
                yield
        for number, (keys, values) in self._taken.pop(group, {}).items():
            width = len(values) // len(keys)
            chunks = zip(_chunks(keys), _chunks(values, width), strict=True)
            for some, taken in chunks:
                self._gather(number, group, some, taken)
                if self._is_enough:
                    self._freeze_gathered()
                    yield

    def _gather_untouched(self, group: int, entries: Sequence[Entry]) -> None:
        """Gather entries that nobody has touched since the cut."""
        parts = self._state.parts
        if parts is None:
            simple = self._gathered[PLAIN]
            entries = add_simple(entries, simple.rows, simple.values)
            self._is_enough |= simple.note(group) >= self._enough
            if not entries:
                return
        removals = [(entry.key,) for entry in entries if entry.place == REMOVED]
        if removals:
            self._gather(_REMOVALS, group, removals)
        present = [entry for entry in entries if entry.place != REMOVED]
        if present and parts is not None:
            self._gather_rows(group, self._rows_beside_parts(present, parts))
        elif present:
            self._gather_rows(group, [entry.row() for entry in present])

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
            self._add((group,), count, self._dump(rows))
            yield

    # ---- frames of several groups

    def _gather_rows(self, group: int, rows: list[Row]) -> None:
        if _are_simple(rows):
            self._gather(PLAIN, group, [row[0] for row in rows], [row[1] for row in rows])
        else:
            self._gather(_ROWS, group, rows)

    def _gather(self, kind: int, group: int, rows: list[Any], values: Sequence[Any] = ()) -> None:
        """Take rows of a group; of simple ones, the keys and what the serializer takes."""
        gathered = self._gathered[kind]
        gathered.rows += rows
        gathered.values += values
        self._is_enough |= gathered.note(group) >= self._enough

    def _freeze_gathered(self) -> None:
        """Make a frame of what is gathered of each kind."""
        for kind, gathered in self._gathered.items():
            if not gathered.rows:
                continue
            runs, count = (*gathered.runs[:-1],), len(gathered.rows)
            if kind == _REMOVALS:
                self._removals.append(self._dump(gathered.rows))
                self._removal_groups.append(runs)
                self.records += count
            elif kind == _ROWS:
                self._add(runs, count, self._dump(gathered.rows))
            else:
                self._add(runs, count, self._dump_columns(gathered.rows, gathered.values, kind))
        self._gathered.clear()
        self._is_enough = False

    def _freeze_rows(self, group: int, rows: list[Row]) -> None:
        """Make a frame of rows at once: what they hold is about to change."""
        if _are_simple(rows):
            data = self._dump_columns([row[0] for row in rows], [row[1] for row in rows])
        else:
            data = self._dump(rows)
        self._add((group,), len(rows), data)

    def _dump_columns(self, keys: list[Any], values: list[Any], number: int = PLAIN) -> bytes:
        step = self._state.step
        return self._serializer.dumps_taken(keys, number, values, SIMPLE, step=step)

    def _dump(self, rows: list[Row]) -> bytes:
        return self._serializer.dumps(rows, step=self._state.step)

    def _add(self, runs: Runs, count: int, frame: bytes) -> None:
        """Add a frame with the rows of `count` keys."""
        self._enough = CHUNK if len(frame) < LARGE_FRAME else 1
        self._frames.append(frame)
        self._frame_groups.append(runs)
        self.records += count


# Kinds of what is gathered, beside the numbers of the serializer.
_ROWS = -2
_REMOVALS = -3


class _Gathered:
    """Rows that become one frame: few keys of many groups would else be as many frames."""

    __slots__ = ("_noted", "rows", "runs", "values")

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.values: list[Any] = []
        self.runs: list[int] = []
        self._noted = 0

    def note(self, group: int) -> int:
        """The rows that came last are of this group. Returns how many there are."""
        count = len(self.rows)
        more = count - self._noted
        if more:
            self.runs += group, more
            self._noted = count
        return count


def _are_simple(rows: Sequence[Row]) -> bool:
    return all(row[2:] == SIMPLE for row in rows)


def _chunks(rows: list[T], width: int = 1) -> Sequence[list[T]]:
    """Divide a list that has `width` items per entry."""
    size = CHUNK * width
    if len(rows) <= size:
        return (rows,) if rows else ()
    return [rows[start : start + size] for start in range(0, len(rows), size)]
