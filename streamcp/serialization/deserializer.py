"""Reads values by a class table: the one of a manifest, or a serializer's own (rule P37).

A class is looked up by its recorded name in a registry, never imported. A class whose fields
changed since is read if that is possible without guessing.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from streamcp.errors import SerializationError
from streamcp.serialization.builtin_types import BUILTIN_SHAPES
from streamcp.serialization.columns import INSTANCES, fields_of
from streamcp.serialization.evolution import adapted_maker
from streamcp.serialization.quick_reader import UNREAD, read_quickly
from streamcp.serialization.reader import read_value
from streamcp.serialization.registry import TypeRegistry
from streamcp.serialization.shapes import Make


class GenericRecord:
    """An instance of a class that the reader does not have: its name and its fields."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        """Hold `fields` (name to value) of an instance of the class called `name`."""
        self.name = name
        self.fields = fields

    def __repr__(self) -> str:
        """Look like a dataclass: `Order(id=1, total=2.5)`."""
        inside = ", ".join(f"{name}={value!r}" for name, value in self.fields.items())
        return f"{self.name.rpartition('.')[2]}({inside})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GenericRecord):
            return NotImplemented
        return self.name == other.name and self.fields == other.fields

    def __hash__(self) -> int:
        """A record may be a key; if a field cannot be hashed, the name alone has to do."""
        try:
            return hash((self.name, *self.fields.values()))
        except TypeError:
            return hash(self.name)


class Deserializer:
    """Reads values that were written with the class table `classes`. `adapted` says that it has met
    an instance of a class that has changed since."""

    def __init__(self, classes: Sequence[Mapping[str, Any]], registry: TypeRegistry | None) -> None:
        """Use the classes of `registry`; without one, instances become `GenericRecord`s."""
        self.adapted = False
        self._registry = registry
        self._classes = classes
        self._makers: list[Make] = [
            functools.partial(self._first, number) for number in range(len(classes))
        ]

    def loads(self, data: bytes) -> Any:
        """Return the value in `data`. No code of a class runs, except the hash of keys and set
        members, a registered `decode`, and factories of fields that were added since.

        Raises SerializationError if `data` is damaged or foreign, or a class of the table
        is missing in the registry or has changed so that its instances cannot be read; the
        message names the class and the remedy.
        """
        try:
            value = read_quickly(data, self.make)
        except SerializationError:
            raise
        except Exception:  # a class's own code failed, or what is damaged: it is told there
            value = UNREAD
        return read_value(data, self.make) if value is UNREAD else value

    def make(self, number: int, values: Sequence[Any]) -> Any:
        """Return an instance of class `number` with the field `values`."""
        if type(number) is not int or not 0 <= number < len(self._makers):
            raise ValueError(f"there is no class {number!r} in a table of {len(self._makers)}")
        return self._makers[number](values)

    def _instances(self, values: Sequence[Any]) -> list[Any]:
        """Make a column of instances of one class."""
        number, rows = fields_of(values)
        made = [self.make(number, row) for row in rows[:1]]  # checks the number, finds the maker
        return [*made, *map(self._makers[number], rows[1:])] if made else made

    def _first(self, number: int, values: Sequence[Any]) -> Any:
        """Find out how to make instances when the first one is met: a class of which the data
        holds no instance may be missing."""
        made = self._maker(self._classes[number])
        self._makers[number] = made
        return made(values)

    def _maker(self, entry: Mapping[str, Any]) -> Make:
        name, kind, fields = entry["name"], entry["kind"], tuple(entry["fields"])
        if name == INSTANCES and kind == "builtin":
            return self._instances
        if kind == "builtin":
            return _builtin_maker(name, self._registry is None)
        if self._registry is None:
            return _generic_maker(name, fields)
        shape = self._registry.shape_named(name)
        if shape is None:
            raise SerializationError(
                f"the snapshot holds instances of {name}, which this job does not declare; if the "
                f"class was renamed or moved, let it be {name} again; else declare it in an "
                f"annotation or pass Job(types=[...]), or restore with the program that wrote it"
            )
        if shape.kind != kind:
            raise SerializationError(
                f"{name} was written as {kind} and is {shape.kind} now; make it {kind} again to "
                f"read this snapshot"
            )
        adapted = adapted_maker(shape, entry)
        if adapted is None:
            return shape.make
        self.adapted = True
        return adapted


def _builtin_maker(name: str, tolerant: bool) -> Make:
    shape = BUILTIN_SHAPES.get(name)
    if shape is None:
        raise SerializationError(
            f"the snapshot holds instances of {name}, which this version of streamcp does not "
            f"know; read it with the version that wrote it"
        )
    make = shape.make

    def make_or_explain(values: Sequence[Any]) -> Any:
        try:
            return make(values)
        except ImportError as error:
            if tolerant:
                return GenericRecord(name, {"values": values})
            raise SerializationError(f"the snapshot holds {name}; install numpy") from error

    return make_or_explain if name.startswith("numpy.") else make


def _generic_maker(name: str, fields: tuple[str, ...]) -> Make:
    def make(values: Sequence[Any]) -> Any:
        return GenericRecord(name, dict(zip(fields, values, strict=True)))

    return make
