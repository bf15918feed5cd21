"""Key groups: the unit in which keyed state and keyed in-flight data are divided (rule P38)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Runs: TypeAlias = tuple[int, ...]
"""The key groups of the rows of a frame, in their order: a group, how many rows it has, the next
group, and so on. The last group has the rest."""


def key_group(key_hash: int, max_parallelism: int) -> int:
    """The group of a key, by its stable hash: 0 to `max_parallelism` - 1."""
    return key_hash % max_parallelism


def receiver_of_group(group: int, parallelism: int, max_parallelism: int) -> int:
    """The index of the subtask that owns a group; ranges are contiguous and as even as can be."""
    return group * parallelism // max_parallelism


def by_group(rows: list[T], runs: Runs) -> Iterator[tuple[int, list[T]]]:
    """Divide the rows of a frame. Raises ValueError if there are fewer than `runs` tell."""
    *counted, last = runs
    start = 0
    for group, count in zip(counted[::2], counted[1::2], strict=True):
        yield group, rows[start : start + count]
        start += count
    if start > len(rows):
        raise ValueError(f"{len(rows)} rows, of which the key groups before the last have {start}")
    yield last, rows[start:] if start else rows
