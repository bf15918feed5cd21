"""The fields of a keyed state whose entries are stored one by one: how they are taken out of the
value that is stored, what is stored of them beside it, and how both come together again.

In the row of a key such a field is only an `Elsewhere`, its name. Its entries follow in rows of two
fields, (key, part): all of them, or what changed since the snapshot that the row's section builds
on (rule P39). A call that may fail works on a copy whose fields are forks, which become changes of
the tables when the copy becomes the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from streamcp.errors import SerializationError
from streamcp.serialization.registry import TypeCodec, codec
from streamcp.serialization.serializer import Serializer
from streamcp.state.collections import Collection, ListState, MapState
from streamcp.state.entries import Entry, Row
from streamcp.state.tables import Part, Tally

# Entries in one stored row.
CHUNK = 1000

_KINDS: tuple[type[Collection], ...] = (ListState, MapState)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Stands in a stored value for the field of this name, whose entries are stored beside it."""

    name: str


# Where a collection is no field of a keyed state, it is stored whole.
CODECS: Sequence[TypeCodec] = (
    codec(ListState, list, ListState),
    codec(MapState, lambda found: [*found.items()], MapState),
    codec(Elsewhere, lambda place: place.name, Elsewhere),
)


PartRows: TypeAlias = Sequence[tuple[int, Row]]
"""Rows with how many entries each holds."""


class Parts:
    """The collections of one keyed state: those that `state=` puts into fields of what it makes."""

    def __init__(
        self, kinds: Mapping[str, type[Collection]], serializer: Serializer, step: str
    ) -> None:
        self.tally = Tally()
        self._kinds = kinds
        self._serializer = serializer
        self._step = step
        self._restored: dict[Any, dict[str, Collection]] = {}  # by key and the name they have there

    @classmethod
    def of(cls, make: Callable[[], Any], serializer: Serializer, step: str) -> Parts | None:
        """Look at what `make` makes; None if no field of it is a collection."""
        fresh = make()
        kinds = {name: type(getattr(fresh, name, None)) for name in _names(fresh)}
        found = {name: kind for name, kind in kinds.items() if kind in _KINDS}
        return cls(found, serializer, step) if found else None

    def _in(self, value: Any) -> list[tuple[str, Collection]]:
        found: list[tuple[str, Collection]] = []
        for name in self._kinds:
            one: Any = getattr(value, name, None)
            if type(one) in _KINDS:
                found.append((name, one))
        return found

    # ---- while the state lives

    def settle(self, entry: Entry, cut: int) -> None:
        """Make the collections of an entry part of the state that are not: they came there behind
        `cut`. One that is already, in another field or key, is copied."""
        for name, found in self._in(entry.value):
            if found._table.owner != (entry, name):
                self._adopt(entry, entry.value, name, cut)

    def _adopt(self, entry: Entry, value: Any, name: str, cut: int) -> None:
        found = getattr(value, name)
        if found._table.owner is not None or found._table.base is not None:
            found = found._copied()
            _set(value, name, found)
        found._table.join((entry, name), self.tally, cut)

    def leave(self, entry: Entry) -> None:
        """An entry is removed."""
        for _, found in self._in(entry.value):
            found._table.leave()

    def behind_cut(self, entry: Entry, cut: int, oldest: int) -> None:
        """An entry is about to be changed, for the first time behind a cut."""
        self.settle(entry, entry.epoch)
        for _, found in self._in(entry.value):
            found._table.behind_cut(cut, oldest)

    def replace(self, entry: Entry, value: Any, cut: int) -> None:
        """Make a value the one of an entry. Forks of the entry's own collections, in their own
        fields, become changes of these."""
        old, new = dict(self._in(entry.value)), self._in(value)
        forks = [
            (name, found)
            for name, found in new
            if name in old and found._table.base is old[name]._table
        ]
        for name, found in new:
            if found is not old.get(name) and (name, found) not in forks:
                self._adopt(entry, value, name, cut)
        for name, fork in forks:
            old[name]._merge(fork)
            _set(value, name, old[name])
        entry.value = value
        kept = [found for _, found in self._in(value)]
        for found in old.values():
            if not any(found is one for one in kept):
                found._table.leave()

    def private_copy(self, entry: Entry) -> Any:
        """Copy the value of an entry for a call that may fail; its collections are forks. Raises
        SerializationError for a value that cannot be copied."""
        self.settle(entry, entry.epoch)  # forks of one collection could not both be merged
        forks = {name: found._forked() for name, found in self._in(entry.value)}
        return self._copy(entry.value, forks)

    def whole_copy(self, value: Any) -> Any:
        """Copy a value for somebody outside; raises as `private_copy` does."""
        return self._copy(value, {name: found._copied() for name, found in self._in(value)})

    def _copy(self, value: Any, collections: Mapping[str, Collection]) -> Any:
        copy = self._serializer.copy(self.stand_in(value), step=self._step)
        for name, found in collections.items():
            _set(copy, name, found)
        return copy

    # ---- what is stored

    def stand_in(self, value: Any) -> Any:
        """Make the value that is stored in the row of a key. Raises SerializationError if no
        snapshot can hold it."""
        places = {name: Elsewhere(name) for name, _ in self._in(value)}
        return self._serializer.with_fields(value, places, step=self._step) if places else value

    def rows(self, entry: Entry, base: int | None) -> PartRows:
        """Make the rows beside that of an entry: what changed since the cut `base`, or all."""
        self.settle(entry, entry.epoch)
        rows: list[tuple[int, Row]] = []
        for name, found in self._in(entry.value):
            part = found._table.part_since(base)
            rows += _chunks(entry.key, name, _KINDS.index(type(found)), part)
        return rows

    # ---- restore

    def attach(self, entry: Entry) -> None:
        """Put the collections of a key into its restored value: those that an earlier row had, or
        empty ones."""
        had = self._restored.setdefault(entry.key, {})
        for name, kind in self._kinds.items():
            place = getattr(entry.value, name, None)
            if isinstance(place, Elsewhere):
                found = had.setdefault(place.name, kind())
                _set(entry.value, name, found)
                found._table.leave()
                found._table.join((entry, name), self.tally, 0)

    def detach(self, key: Any) -> None:
        """A restored row says that a key was removed."""
        self._restored.pop(key, None)

    def apply(self, key: Any, stored: Sequence[Any]) -> None:
        """Apply a restored part; one of a field that the state no longer has is dropped.

        Raises SerializationError if the field is of the other kind now."""
        name, kind, whole, removed, overwritten, placed = stored
        found = self._restored.get(key, {}).get(name)
        if found is None:
            return
        if type(found) is not _KINDS[kind]:
            raise SerializationError(
                f"step {self._step!r}: the field {name!r} was a {_KINDS[kind].__name__} and is a "
                f"{type(found).__name__} now; add a field of the new kind beside it"
            )
        found._table.apply(Part(whole, removed, dict(overwritten), dict(placed)))
        found._restored()

    def restore_ended(self) -> None:
        """No further row comes."""
        self._restored = {}


def _names(fresh: Any) -> set[str]:
    """The fields of an instance, however its class keeps them."""
    cls = type(fresh)
    slots = (getattr(cls, mark, ()) for mark in ("__dataclass_fields__", "__struct_fields__"))
    attrs = (one.name for one in getattr(cls, "__attrs_attrs__", ()))
    return {*getattr(fresh, "__dict__", ()), *attrs, *(name for names in slots for name in names)}


def _set(value: Any, name: str, found: Any) -> None:
    object.__setattr__(value, name, found)


def _chunks(key: Any, name: str, kind: int, part: Part) -> Iterator[tuple[int, Row]]:
    """Divide a part into rows, each with how many entries it has. An unchanged one gives none."""
    overwritten, placed = [*part.overwritten.items()], [*part.placed.items()]
    size = max(len(part.removed), len(overwritten), len(placed))
    whole = part.whole
    for at in range(0, max(size, int(whole)), CHUNK):
        removed, over, new = (one[at : at + CHUNK] for one in (part.removed, overwritten, placed))
        stored = (name, kind, whole, tuple(removed), tuple(over), tuple(new))
        yield len(removed) + len(over) + len(new), (key, stored)
        whole = False
