"""Reading instances of a class that has changed since they were written (rule P37).

Nothing is guessed: a field that is new gets its default, one that is gone is left out and said so,
one that was renamed is found by what the class says, and where a type has changed each value is
looked at. Whatever does not fit is refused, with class, field and remedy. A class that has not
changed is not touched here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamcp.errors import SerializationError
from streamcp.serialization.field_types import ANY, FieldType, UnresolvedError, field_types
from streamcp.serialization.shapes import Make, Shape

_logger = logging.getLogger(__name__)

# Their fields are not the user's.
_FIXED = frozenset({"builtin", "enum", "flag", "codec"})


def types_of(shape: Shape) -> dict[str, list[str]]:
    """What a class table records of the types of the fields, as an entry's part; nothing for a
    class whose fields are not its own."""
    return {} if shape.kind in _FIXED else {"types": [one.text for one in _types(shape)]}


def check_renames(shape: Shape) -> None:
    """Refuse a class of whose fields nobody could say under which name they are stored.

    Raises SerializationError if a field had the name of another one, which a snapshot of either
    version could hold, or if what `renamed_from` annotates cannot be resolved."""
    if shape.kind in _FIXED:
        return
    for field, kind in zip(shape.fields, _types(shape), strict=True):
        for former in kind.former:
            if former in shape.fields:
                raise SerializationError(
                    f"{shape.name}: {field} is renamed_from({former!r}), and there is a field "
                    f"{former}: a snapshot that holds {former!r} may mean either; call the new "
                    f"field otherwise, or remove the renamed_from if {field} is stored as such"
                )


def _types(shape: Shape) -> Sequence[FieldType]:
    try:
        return field_types(shape.cls, shape.fields)
    except UnresolvedError as error:
        raise SerializationError(
            f"what the annotation {error} names cannot be found, and it says how a field was "
            "called before; define the class, and what its annotations name, in a module"
        ) from None


def adapted_maker(shape: Shape, entry: Mapping[str, Any]) -> Make | None:
    """Make instances of `shape` from the values that `entry` of a class table tells of; None if
    the class has not changed.

    Raises SerializationError if it has so that its instances cannot be read; so does the maker,
    for a value that does not fit a type that has changed."""
    written = tuple(entry["fields"])
    if shape.kind in _FIXED:
        return None
    check_renames(shape)
    told = entry.get("types")
    now = _types(shape)
    if written == shape.fields and (told is None or told == [one.text for one in now]):
        return None
    return _Adaptation(shape, written, told or [ANY] * len(written), now).make


class _Adaptation:
    """How the values that were written become those of the fields."""

    def __init__(
        self,
        shape: Shape,
        written: Sequence[str],
        told: Sequence[str],
        now: Sequence[FieldType],
    ) -> None:
        self._shape = shape
        self._steps: list[Callable[[Sequence[Any]], Any]] = []
        places = {name: place for place, name in enumerate(written)}
        added: list[str] = []
        for name, kind in zip(shape.fields, now, strict=True):
            place = self._place_of(name, kind, places)
            if place is None:
                added.append(name)
                self._steps.append(self._default(name))
            else:
                self._steps.append(self._taken(name, place, told[place], kind))
        if places:
            self._tell_dropped([*places], added)

    def make(self, values: Sequence[Any]) -> Any:
        """Make an instance."""
        return self._shape.make([step(values) for step in self._steps])

    def _place_of(self, name: str, kind: FieldType, places: dict[str, int]) -> int | None:
        """Where the values of a field are, under its name or an earlier one; each is taken once."""
        known = [one for one in dict.fromkeys((name, *kind.former)) if one in places]
        if len(known) > 1:
            remedy = (
                f"remove the renamed_from if it is what is stored as {name}, else call the field "
                "by a name that the class did not have"
                if name in known
                else "keep in renamed_from the one that is meant"
            )
            raise SerializationError(
                f"the snapshot holds {' and '.join(known)} of {self._shape.name}, and either may "
                f"be {name} now; {remedy}"
            )
        return places.pop(known[0]) if known else None

    def _default(self, field: str) -> Callable[[Sequence[Any]], Any]:
        default = self._shape.defaults.get(field)
        if default is None:
            name = self._shape.name
            raise SerializationError(
                f"{name} has a new field {field!r} without a default; give it one to read "
                f"this snapshot, or say how it was called: {field}: "
                'Annotated[..., sc.renamed_from("old")]'
            )
        make = default
        return lambda values: make()

    def _taken(
        self, field: str, place: int, was: str, kind: FieldType
    ) -> Callable[[Sequence[Any]], Any]:
        classes = kind.classes
        if classes is None or was in (ANY, kind.text):
            return lambda values: values[place]
        to_float = float in classes and int not in classes

        def checked(values: Sequence[Any]) -> Any:
            value = values[place]
            if isinstance(value, classes):
                return value
            if to_float and isinstance(value, int):
                return float(value)
            raise SerializationError(
                f"{self._shape.name}.{field} was {was} and is {kind.text} now, which {value!r} "
                "is not; make it of the old type again, or add a field of the new type beside it"
            )

        return checked

    def _tell_dropped(self, gone: Sequence[str], added: Sequence[str]) -> None:
        renamed = ""
        if added:
            renamed = (
                f"; if one was renamed to {' or '.join(added)}, restore the same checkpoint again "
                f'with {added[0]}: Annotated[..., sc.renamed_from("{gone[0]}")]'
            )
        _logger.warning(
            "%s has no field %s any more: what the snapshot holds of it is dropped%s",
            self._shape.name,
            ", ".join(gone),
            renamed,
        )
