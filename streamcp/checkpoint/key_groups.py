"""Key groups: the unit in which keyed state and keyed in-flight data are divided (rule P38)."""

from __future__ import annotations


def key_group(key_hash: int, max_parallelism: int) -> int:
    """The group of a key, by its stable hash: 0 to `max_parallelism` - 1."""
    return key_hash % max_parallelism


def receiver_of_group(group: int, parallelism: int, max_parallelism: int) -> int:
    """The index of the subtask that owns a group; ranges are contiguous and as even as can be."""
    return group * parallelism // max_parallelism
