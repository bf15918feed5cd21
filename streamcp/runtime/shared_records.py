"""Objects that two readers have, with the digests of what they were: what `strict` looks at.

An object is watched from the moment in which it reaches a second reader (two steps, or a step and
a state). It may never be changed in place from then on; that it is not changed is not looked for
all the time, but before and after each call that gets it. Knows neither tasks nor steps: who has
an object is a text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from streamcp.serialization.builtin_types import builtin_shape
from streamcp.serialization.digest import digest
from streamcp.serialization.immutable import LEAF_TYPES, is_deeply_immutable
from streamcp.serialization.registry import TypeRegistry, qualified_name
from streamcp.serialization.shapes import Shape, shape_of

# So many are watched at a time; those that were shared first are forgotten then.
WATCHED = 10_000
# Parts looked at to find watched objects in what a function gets: those of a large state are not
# worth more.
_BUDGET = 10_000


class Watched(NamedTuple):
    """An object that must not change; `whose` says who else has it."""

    value: Any
    digest: bytes
    whose: str


class SharedRecords:
    """What is watched in one process. Digests are those of `serialization.digest`: content as a
    snapshot would hold it. What no snapshot could hold is taken for unchanging."""

    def __init__(self, registry: TypeRegistry) -> None:
        self._registry = registry
        self._watched: dict[int, Watched] = {}
        self._shapes: dict[type, Shape] = {}

    def watch(self, value: Any, whose: str) -> None:
        """Watch a value from now on, unless it cannot change, or is watched already."""
        if id(value) in self._watched or is_deeply_immutable(value):
            return
        content = self.content(value)
        if content is None:
            return
        if len(self._watched) >= WATCHED:
            del self._watched[next(iter(self._watched))]
        # The reference keeps the id from being given to another object.
        self._watched[id(value)] = Watched(value, content, whose)

    def watch_common(self, values: Iterable[Any], state: Any, whose: str) -> None:
        """Watch the objects in `values` that are in `state` as well."""
        mutable = [value for value in values if not is_deeply_immutable(value)]
        if not mutable:
            return
        inside = {id(part) for part in self._parts_of([state])}
        for part in self._parts_of(mutable):
            if id(part) in inside:
                self.watch(part, whose)

    def watched_in(self, values: Iterable[Any]) -> list[Watched]:
        """Find the watched objects in `values`, and in what they hold."""
        if not self._watched:
            return []
        parts = self._parts_of(values)
        return [self._watched[id(part)] for part in parts if id(part) in self._watched]

    def changed(self, watched: Iterable[Watched]) -> Watched | None:
        """The first one that is no longer what it was."""
        return next((one for one in watched if self.content(one.value) != one.digest), None)

    def content(self, value: Any) -> bytes | None:
        """The digest of a value; None if it has none, since it contains itself, or its fields
        cannot be read."""
        try:
            return digest(value, self._shape)
        except Exception:  # reading a field may run anything of the user's
            return None

    def _parts_of(self, values: Iterable[Any]) -> Iterator[Any]:
        """Everything in `values` that could be changed or hold something that could, once each."""
        waiting, seen = list(values), set[int]()
        while waiting and len(seen) < _BUDGET:
            value = waiting.pop()
            if type(value) in LEAF_TYPES or id(value) in seen:
                continue
            seen.add(id(value))
            yield value
            waiting += self._parts(value)

    def _parts(self, value: Any) -> Iterable[Any]:
        cls = type(value)
        if cls in (list, tuple, set, frozenset):
            return list(value)
        if cls is dict:
            return [*value.keys(), *value.values()]
        shape = self._shape(cls)
        if shape.kind == "codec":  # what it encodes is made anew each time
            return ()
        try:
            return shape.take(value)
        except Exception:  # reading a field may run anything of the user's
            return ()

    def _shape(self, cls: type) -> Shape:
        """How instances are taken apart, of declared classes and of all others."""
        if cls not in self._shapes:
            name = qualified_name(cls)
            self._shapes[cls] = (
                self._registry.shape(cls)
                or builtin_shape(cls)
                or shape_of(cls, name)
                or Shape(cls, name, "opaque", (), _nothing, _never)
            )
        return self._shapes[cls]


def _nothing(value: Any) -> tuple[Any, ...]:
    return ()


def _never(values: Any) -> Any:
    raise AssertionError("no value is made of a digest")
