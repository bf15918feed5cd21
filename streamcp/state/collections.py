"""`ListState` and `MapState`: fields of a state whose entries are stored one by one.

To the user's function they are a list and a mapping. Under them is a table that notes what changes,
so that a checkpoint writes entries and not the whole field. An entry is a value that cannot change:
a change inside one would be seen by nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, MutableSequence
from typing import Any, Generic, Protocol, Self, TypeVar, overload

from streamcp.serialization.immutable import is_deeply_immutable
from streamcp.state.tables import Table

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class Collection(Protocol):
    """What a state knows of its fields that are stored one by one."""

    _table: Table

    def _forked(self) -> Self:
        """Make one whose changes are its own until they are merged."""
        ...

    def _merge(self, fork: Any) -> None:
        """Make the changes of a fork here."""
        ...

    def _copied(self) -> Self:
        """Make one with the same entries that belongs to nobody."""
        ...

    def _restored(self) -> None:
        """The table was filled from a snapshot."""
        ...


class ListState(MutableSequence[T], Generic[T]):
    """A list in the state of a key, whose entries are stored one by one: a field
    `items: sc.ListState[Order] = field(default_factory=sc.ListState)`.

    After an append, an assignment, or a removal at either end an incremental checkpoint holds just
    that; one in the middle moves the entries of the shorter side. Entries must be values that
    cannot change: TypeError for others. What is put back is assigned: `items[0] = replace(items[0],
    done=True)`."""

    __slots__ = ("_start", "_table")

    @overload
    def __init__(self) -> None: ...
    @overload
    def __init__(self, entries: Iterable[T], /) -> None: ...
    def __init__(self, *entries: Any) -> None:
        """Begin with some entries."""
        self._start = 0
        [given] = entries or ((),)
        self._table = Table(dict(enumerate(map(_checked, given))))

    def __repr__(self) -> str:
        """`ListState([1, 2])`."""
        return f"ListState({list(self)!r})"

    def __eq__(self, other: object) -> bool:
        """Equal to another one, or to a list, with equal entries in the same order."""
        if not isinstance(other, ListState | list):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # it can change

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[T]:
        table, start = self._table, self._start
        for number in range(start, start + len(table)):
            yield table[number]

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        """The entry at an index, or a plain list of those of a slice."""
        if isinstance(index, slice):
            return [self._table[self._start + place] for place in range(len(self))[index]]
        return self._table[self._number(index)]  # type: ignore[no-any-return]

    @overload
    def __setitem__(self, index: int, value: T) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[T]) -> None: ...
    def __setitem__(self, index: int | slice, value: Any) -> None:
        """Replace an entry; of a slice as many as it has."""
        if not isinstance(index, slice):
            self._table[self._number(index)] = _checked(value)
            return
        values, places = [_checked(one) for one in value], range(len(self))[index]
        if len(values) != len(places):
            raise ValueError("a slice of a ListState is replaced by as many entries as it has")
        for place, one in zip(places, values, strict=True):
            self._table[self._start + place] = one

    def __delitem__(self, index: int | slice) -> None:
        places = range(len(self))[index] if isinstance(index, slice) else (self._place(index),)
        for place in sorted(places, reverse=True):
            self._delete(place)

    def _delete(self, place: int) -> None:
        table, start, end = self._table, self._start, self._start + len(self)
        number = start + place
        if place < len(self) // 2:
            for one in range(number, start, -1):
                table[one] = table[one - 1]
            del table[start]
            self._start += 1
        else:
            for one in range(number, end - 1):
                table[one] = table[one + 1]
            del table[end - 1]

    def insert(self, index: int, value: T) -> None:
        """Put an entry in before an index."""
        value = _checked(value)
        table, length = self._table, len(self)
        place = max(0, index + length) if index < 0 else min(index, length)
        if place < length // 2:
            self._start -= 1
            for one in range(self._start, self._start + place):
                table[one] = table[one + 1]
        else:
            for one in range(self._start + length, self._start + place, -1):
                table[one] = table[one - 1]
        table[self._start + place] = value

    def append(self, value: T) -> None:
        """Put an entry at the end."""
        self._table[self._start + len(self._table)] = _checked(value)

    def clear(self) -> None:
        """Remove all entries."""
        for number in [*self._table]:
            del self._table[number]

    def _place(self, index: int) -> int:
        length = len(self._table)
        place = index + length if index < 0 else index
        if not 0 <= place < length:
            raise IndexError(f"there is no entry {index} in a ListState of {length}")
        return place

    def _number(self, index: int) -> int:
        return self._start + self._place(index)

    def _forked(self) -> Self:
        fork = type(self)()
        fork._table, fork._start = self._table.fork(), self._start
        return fork

    def _copied(self) -> Self:
        return type(self)(self)

    def _merge(self, fork: ListState[T]) -> None:
        self._table.merge(fork._table)
        self._start = fork._start

    def _restored(self) -> None:
        self._start = min(self._table, default=0)


class MapState(MutableMapping[K, V], Generic[K, V]):
    """A mapping in the state of a key, whose entries are stored one by one: a field
    `seen: sc.MapState[str, int] = field(default_factory=sc.MapState)`.

    It keeps the order of a dict. Values must be such that cannot change: TypeError for others. What
    is put back is assigned: `seen[name] = seen.get(name, 0) + 1`."""

    __slots__ = ("_table",)

    @overload
    def __init__(self) -> None: ...
    @overload
    def __init__(self, entries: Mapping[K, V] | Iterable[tuple[K, V]], /) -> None: ...
    def __init__(self, *entries: Any) -> None:
        """Begin with some entries."""
        [given] = entries or ((),)
        found = {_checked(key): _checked(value) for key, value in dict(given).items()}
        self._table = Table(found)

    def __repr__(self) -> str:
        """`MapState({'a': 1})`."""
        return f"MapState({dict(self)!r})"

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[K]:
        return iter(self._table)

    def __contains__(self, key: object) -> bool:
        return key in self._table

    def __getitem__(self, key: K) -> V:
        return self._table[key]  # type: ignore[no-any-return]

    def __setitem__(self, key: K, value: V) -> None:
        self._table[_checked(key)] = _checked(value)

    def __delitem__(self, key: K) -> None:
        del self._table[key]

    def clear(self) -> None:
        """Remove all entries."""
        for key in [*self._table]:
            del self._table[key]

    def _forked(self) -> Self:
        fork = type(self)()
        fork._table = self._table.fork()
        return fork

    def _copied(self) -> Self:
        return type(self)(self)

    def _merge(self, fork: MapState[K, V]) -> None:
        self._table.merge(fork._table)

    def _restored(self) -> None:
        """Nothing but the table is kept."""


def _checked(value: Any) -> Any:
    if not is_deeply_immutable(value):
        raise TypeError(
            f"{type(value).__qualname__} can be changed in place, which a ListState or MapState "
            "would not notice: its entries are plain values, Enum members, and tuples, NamedTuples "
            "and frozen dataclasses of such; keep what changes in a field of its own"
        )
    return value
