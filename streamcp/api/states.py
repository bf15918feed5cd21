"""What may be the state of a key: an object that is changed in place (rule 6)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

from streamcp.api.functions import kind_of, name_of
from streamcp.errors import DefinitionError

_IMMUTABLE = (
    *(int, float, complex, str, bytes, tuple, frozenset, range, type(None)),
    *(Enum, Decimal, date, datetime, time, timedelta),
)


def check_state(described: str, state: Callable[[], Any], option: str = "state") -> None:
    """Refuse a `state=` that makes nothing, or something that cannot be changed in place.

    Calls it once, as every new key will."""
    if not callable(state):
        made = type(state).__name__
        raise DefinitionError(
            f"{described}: {option}={state!r} is an object, which all keys would share; give a "
            f"class, or a plain function that makes a fresh one per key: {option}={made}"
        )
    if kind_of(state) != "plain":
        raise DefinitionError(
            f"{described}: {option}={name_of(state)} must be a class, or a plain function that "
            "makes a fresh state"
        )
    try:
        fresh = state()
    except Exception as error:  # of the user's own class or function: kept as the cause
        raise DefinitionError(
            f"{described}: {option}={name_of(state)} could not be made without arguments "
            f"({error}); give every field a default"
        ) from error
    if is_immutable(fresh):
        raise DefinitionError(
            f"{described}: {option}={name_of(state)} makes a {type(fresh).__name__}, which cannot "
            "be changed in place; write a dataclass that is not frozen, with this as a field"
        )


def is_immutable(value: object) -> bool:
    """Tell whether `value` is of a type whose instances cannot be changed."""
    return isinstance(value, _IMMUTABLE) or _is_frozen(type(value))


def _is_frozen(cls: type[Any]) -> bool:
    if dataclasses.is_dataclass(cls):
        return bool(cls.__dataclass_params__.frozen)  # type: ignore[attr-defined]
    struct = getattr(cls, "__struct_config__", None)  # msgspec
    model = getattr(cls, "model_config", None)  # pydantic
    setter = cls.__setattr__  # attrs replaces it
    return (
        bool(getattr(struct, "frozen", False))
        or bool(isinstance(model, dict) and model.get("frozen"))
        or (getattr(setter, "__module__", "") == "attr._make" and "frozen" in setter.__name__)
    )
