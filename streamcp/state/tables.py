"""Entries by key that know which of them changed since when, and that can be forked at no cost.

What lies under a `ListState` or `MapState`. The values cannot change (whoever puts them in sees to
that), so a snapshot may hold them by reference; what it writes is either all of them or what was
set and removed behind a cut. A call that may fail works on a fork: an own layer of changes upon a
table that nobody else changes meanwhile. Knows no states, no snapshots and no bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

_NEVER = 2**62
# Changes that are noted beside what pays for a small table, where counting costs more than writing.
_FEW = 16


class Tally:
    """Counts for all tables of a state: their entries, and those noted as changed, by cut."""

    __slots__ = ("changed", "entries")

    def __init__(self) -> None:
        self.entries = 0
        self.changed: dict[int, int] = {}

    def changes_since(self, cut: int) -> int:
        """How many were noted behind a cut; one that changed behind several counts as often."""
        return sum(count for number, count in self.changed.items() if number >= cut)

    def forget_before(self, cut: int) -> None:
        """No snapshot will build on an older one."""
        self.changed = {number: n for number, n in self.changed.items() if number >= cut}


class Part(NamedTuple):
    """What is stored of a table: first `removed` go, or all if it is `whole`; then values are set
    where they are (`overwritten`) and at the end (`placed`)."""

    whole: bool
    removed: Sequence[Any]
    overwritten: Mapping[Any, Any]
    placed: Mapping[Any, Any]


class Table:
    """Entries in the order in which they were put in; a fork if it has a `base`."""

    __slots__ = ("_base", "_data", "_gone", "_hidden", "_known_since", "_noted", "_tally", "owner")

    def __init__(self, entries: Mapping[Any, Any] | None = None, base: Table | None = None) -> None:
        self._data: dict[Any, Any] = dict(entries or {})
        self._base = base
        self._gone: set[Any] = set()  # of the base: removed, perhaps set anew since
        self._hidden = 0  # of the base: removed, or overwritten here
        self.owner: object = None  # of what state it is a part
        self._tally: Tally | None = None
        self._known_since = _NEVER
        # By cut: keys that changed behind it; true if the key went to the end.
        self._noted: dict[int, dict[Any, bool]] = {}

    def fork(self) -> Table:
        """Make a table that begins with these entries, and whose changes are its own until they
        are merged. This table must not change meanwhile."""
        return Table(base=self)

    @property
    def base(self) -> Table | None:
        """What this is a fork of."""
        return self._base

    # ---- reading

    def __len__(self) -> int:
        below = 0 if self._base is None else len(self._base) - self._hidden
        return below + len(self._data)

    def __contains__(self, key: object) -> bool:
        return key in self._data or self._is_below(key)

    def __getitem__(self, key: Any) -> Any:
        if self._base is None or key in self._data:
            return self._data[key]
        if key in self._gone:
            raise KeyError(key)
        return self._base[key]

    def __iter__(self) -> Iterator[Any]:
        base = self._base
        if base is None:
            yield from self._data
            return
        for key in base:
            if key not in self._gone:
                yield key
        for key in self._data:
            if key in self._gone or key not in base:
                yield key

    def _is_below(self, key: object) -> bool:
        return self._base is not None and key not in self._gone and key in self._base

    # ---- changes

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._base is not None:
            if key not in self._data and self._is_below(key):
                self._hidden += 1
        elif self._tally is not None:
            self._note(key, placed=key not in self._data)
        self._data[key] = value

    def __delitem__(self, key: Any) -> None:
        if self._base is None:
            del self._data[key]
            if self._tally is not None:
                self._note(key, placed=None)
            return
        below = self._is_below(key)
        if key in self._data:
            del self._data[key]
            self._hidden -= below
        elif not below:
            raise KeyError(key)
        if below:
            self._gone.add(key)
            self._hidden += 1

    def merge(self, fork: Table) -> None:
        """Make the changes of a fork here."""
        for key in fork._gone:
            del self[key]
        for key, value in fork._data.items():
            self[key] = value

    # ---- what changed since when

    def join(self, owner: object, tally: Tally, cut: int) -> None:
        """Become part of a state, behind its cut `cut`: what changes behind later ones is noted.
        Snapshots that build on an older one hold the table whole."""
        self.owner = owner
        self._tally = tally
        tally.entries += len(self)
        self._known_since = cut + 1

    def leave(self) -> None:
        """Be part of that state no more."""
        if self._tally is not None:
            self._tally.entries -= len(self)
            self._tally = self.owner = None
            self._known_since, self._noted = _NEVER, {}

    def behind_cut(self, cut: int, oldest: int) -> None:
        """What changes from now on is behind `cut`; nothing builds on one before `oldest`."""
        if self._tally is not None and cut not in self._noted:
            self._noted = {n: keys for n, keys in self._noted.items() if n >= oldest}
            self._noted[cut] = {}

    def _note(self, key: Any, *, placed: bool | None) -> None:
        """Note a key that is about to be set, at the end if `placed`, or (None) was removed."""
        tally = self._tally
        assert tally is not None
        if placed is not False:
            tally.entries += 1 if placed else -1
        cut = next(reversed(self._noted), None)
        if cut is None:
            return
        newest = self._noted[cut]
        if key not in newest:
            tally.changed[cut] = tally.changed.get(cut, 0) + 1
            newest[key] = bool(placed)
            if sum(map(len, self._noted.values())) > len(self._data) + _FEW:
                self._forget(cut)
        elif placed:
            del newest[key]  # it goes to the end
            newest[key] = True

    def _forget(self, cut: int) -> None:
        """So much has changed that writing all is cheaper."""
        self._known_since = cut + 1
        self._noted = {}

    def part_since(self, cut: int | None) -> Part:
        """Collect what was set and removed behind a cut; all, if it is None or too long ago."""
        if cut is None or cut < self._known_since:
            return Part(True, (), {}, {key: self[key] for key in self})
        noted: dict[Any, bool] = {}
        for number, keys in self._noted.items():
            for key, placed in keys.items() if number >= cut else ():
                if placed:
                    noted.pop(key, None)
                noted[key] = noted.get(key, False) or placed
        data = self._data
        return Part(
            False,
            [key for key in noted if key not in data],
            {key: data[key] for key, placed in noted.items() if key in data and not placed},
            {key: data[key] for key, placed in noted.items() if key in data and placed},
        )

    def apply(self, part: Part) -> None:
        """Make stored changes here."""
        if part.whole:
            for key in [*self]:
                del self[key]
        for key in part.removed:
            if key in self:
                del self[key]
        for key, value in part.overwritten.items():
            self[key] = value
        for key, value in part.placed.items():
            if key in self:
                del self[key]
            self[key] = value
