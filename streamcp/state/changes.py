"""Which entries of a keyed state were touched or removed, and since which cut (rule P39).

An entry is noted once per cut, when it is first touched behind it, so that nothing is to be merged
back when a checkpoint fails: the changes since any cut are there until a later one is complete.
There are never more of them than would be worth writing. Knows no snapshots.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from streamcp.checkpoint.incremental import outweigh
from streamcp.state.entries import Entry

Noted: TypeAlias = Mapping[int, Sequence[Entry]]
"""Entries by key group."""

_UNKNOWN = sys.maxsize


class Changes:
    """The changes of one keyed state.

    Those since the cut `known_since`, and since every later one, are known. `count` is how many
    are kept; an entry that was touched behind several cuts counts as often."""

    def __init__(self) -> None:
        """Know nothing until the first cut."""
        self.known_since = _UNKNOWN
        self.count = 0
        self._most = 0
        self._by_cut: dict[int, dict[int, list[Entry]]] = {}
        self._newest: dict[int, list[Entry]] | None = None

    def note(self, entry: Entry) -> None:
        """Note an entry that is new, or is touched for the first time since the last cut."""
        newest = self._newest
        if newest is None:
            return
        listed = newest.get(entry.group)
        if listed is None:
            newest[entry.group] = [entry]
        else:
            listed.append(entry)
        self.count += 1
        if outweigh(self.count, self._most):
            self._forget()

    def _forget(self) -> None:
        self.known_since = _UNKNOWN
        self.count = 0
        self._by_cut.clear()
        self._newest = None

    def cut(self, number: int, keys: int) -> None:
        """Snapshot `number` is taken of `keys` keys: what is noted from now on is behind it."""
        if self._newest is None:
            self.known_since = number
        self._newest = self._by_cut[number] = {}
        self._most = keys

    def since(self, cut: int) -> list[Noted]:
        """List what was noted behind a cut, by the cuts since then; an entry may be in several.

        What is listed never changes again once there is a newer cut."""
        return [noted for number, noted in self._by_cut.items() if number >= cut]

    def forget_before(self, cut: int) -> None:
        """The snapshot of this cut is in a complete checkpoint: none will build on an older one."""
        self.known_since = max(self.known_since, cut)
        for number in [number for number in self._by_cut if number < cut]:
            self.count -= sum(map(len, self._by_cut.pop(number).values()))
