"""What the annotations of a class say of its fields, as far as a value can be judged by them.

A class table records it beside the names of the fields, so that a reader sees which types have
changed since, and looks at the values of those only. The insides of containers are not looked at.
Knows nothing of bytes; what is done about a change is told by `evolution`.
"""

from __future__ import annotations

import functools
import sys
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from streamcp.serialization.registry import qualified_name

ANY: Final = "?"
"""The text of a type of which nothing can be said."""


@dataclass(frozen=True, slots=True)
class RenamedFrom:
    """The names that a field had before, the newest first; made by `renamed_from`."""

    names: tuple[str, ...]


def renamed_from(*names: str) -> RenamedFrom:
    """Say how a field of a data class was called before, so that what a checkpoint holds under
    that name is found: `total: Annotated[float, sc.renamed_from("sum")] = 0.0`.

    Several names: the field was renamed more than once."""
    return RenamedFrom(names)


@dataclass(frozen=True, slots=True)
class FieldType:
    """The type of one field: as a text that a class table records, and as classes of which a value
    must be one; None if it may be anything. `former` are earlier names of the field."""

    text: str = ANY
    classes: tuple[type, ...] | None = None
    former: tuple[str, ...] = ()


_UNKNOWN: Final = FieldType()


@functools.lru_cache(maxsize=1024)
def field_types(cls: Any, fields: tuple[str, ...]) -> tuple[FieldType, ...]:
    """The types of the `fields` of a class, in their order."""
    hints = _hints(cls)
    return tuple(_field_type(hints[name]) if name in hints else _UNKNOWN for name in fields)


def _hints(cls: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except Exception:  # a foreign annotation may raise anything when evaluated
        return {name: hint for base in cls.__mro__[::-1] for name, hint in _resolved(base)}


def _resolved(cls: Any) -> Iterator[tuple[str, Any]]:
    """What can be resolved of the own annotations of a class, one by one."""
    scope = vars(sys.modules.get(cls.__module__, types))
    for name, text in vars(cls).get("__annotations__", {}).items():
        try:
            yield name, eval(text, scope, {}) if isinstance(text, str) else text
        except Exception:  # as above: nothing is known of this one
            if "renamed_from" in text:
                raise UnresolvedError(f"{cls.__qualname__}.{name}: {text}") from None


class UnresolvedError(Exception):
    """An annotation that matters names something that cannot be found."""


def _field_type(hint: Any) -> FieldType:
    former: tuple[str, ...] = ()
    while typing.get_origin(hint) is typing.Annotated:
        hint, *extras = typing.get_args(hint)
        former += tuple(n for one in extras if isinstance(one, RenamedFrom) for n in one.names)
    classes = _classes(hint)
    if classes is None:
        return FieldType(former=former)
    return FieldType(" | ".join(sorted({_name(one) for one in classes})), classes, former)


def _name(cls: type) -> str:
    return cls.__name__ if cls.__module__ == "builtins" else qualified_name(cls)


def _classes(hint: Any) -> tuple[type, ...] | None:
    """The classes of which a value is one; None if that is not said, or by an interface only."""
    origin = typing.get_origin(hint)
    if origin is typing.Union or origin is types.UnionType:
        parts = [_classes(one) for one in typing.get_args(hint)]
        known = [part for part in parts if part is not None]
        return tuple(c for part in known for c in part) if len(known) == len(parts) else None
    if origin is typing.Literal:
        return tuple(dict.fromkeys(map(type, typing.get_args(hint))))
    if hint is None:
        return (type(None),)
    supertype = getattr(hint, "__supertype__", None)  # of a NewType
    if supertype is not None:
        return _classes(supertype)
    cls = origin if origin is not None else hint
    if not isinstance(cls, type) or cls is object or _is_interface(cls):
        return None
    return (cls,)


def _is_interface(cls: type) -> bool:
    return (
        cls.__module__ in ("typing", "collections.abc", "abc")
        or typing.is_typeddict(cls)
        or bool(getattr(cls, "_is_protocol", False))
    )
