"""Data classes as they were and as they are now: one name, several definitions."""

from __future__ import annotations

import dataclasses
from typing import Any


def version(name: str, *fields: Any, frozen: bool = False) -> Any:
    """A data class `shop.<name>` with the given fields: (name, type, default), or without one."""
    made = dataclasses.make_dataclass(
        name,
        [
            (field[0], field[1], dataclasses.field(default=field[2]))
            if len(field) > 2
            else tuple(field)
            for field in fields
        ],
        frozen=frozen,
    )
    made.__module__ = "shop"
    return made
