"""Files and directories in memory, and what of them a loss of power leaves.

Invariant: what was synced is there afterwards; of what was not, any part may be. A file may keep
each page in its old, its new or a torn state, and any length between the old and the new one; a
directory may keep each change of its names, or not. Intermediate contents of bytes that were
overwritten several times between two fsyncs are not modelled: old or newest. It must not know
paths, processes or errors.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeVar

T = TypeVar("T")

PAGE = 512
"""What a device writes at least, in bytes. Small, so that small files can be torn."""


class FileNode:
    """A file: what programs read (`content`), and what is on the medium (`durable`)."""

    def __init__(self, number: int, content: bytes = b"") -> None:
        """Make a file whose `content` is durable."""
        self.number = number
        self.content = bytearray(content)
        self.durable = bytearray(content)
        self.dirty: set[int] = set()
        self.holder: object = None  # who has the file's lock

    def write(self, data: bytes | memoryview, offset: int) -> None:
        """Write at `offset`; a gap is filled with zeros."""
        start = min(offset, len(self.content))
        self.content.extend(bytes(max(0, offset - len(self.content))))
        self.content[offset : offset + len(data)] = data
        self._touch(start, offset + len(data))

    def truncate(self, length: int) -> None:
        """Cut, or extend with zeros."""
        old = len(self.content)
        del self.content[length:]
        self.content.extend(bytes(max(0, length - old)))
        self._touch(min(old, length), max(old, length))

    def sync(self) -> None:
        """Make everything durable that was changed since the last sync, failed ones included."""
        self._flush(self.dirty)
        _resize(self.durable, len(self.content))
        self.dirty.clear()

    def fail_sync(self, rnd: random.Random) -> None:
        """Fail as an fsync does: any part may have got through, and the rest counts as clean, so
        that the next sync tells nothing of its loss."""
        self._flush({page for page in sorted(self.dirty) if rnd.random() < 0.5})
        self.dirty.clear()

    def survive(self, rnd: random.Random) -> bytes:
        """Tell what a loss of power leaves of the content."""
        before = bytes(self.durable)
        if not self.dirty and len(before) == len(self.content):
            return before
        written = FileNode(0, before)
        written.content, written.dirty = self.content, set(self.dirty)
        written.sync()
        after = bytes(written.durable)
        style = rnd.choice(("nothing", "everything", "prefix", "pages"))
        if style == "prefix":
            cut = rnd.randint(0, len(after))
            return after[:cut] + before[cut:]
        if style == "pages":
            return _torn(before, after, rnd)
        return before if style == "nothing" else after

    def _touch(self, start: int, end: int) -> None:
        self.dirty.update(range(start // PAGE, (end + PAGE - 1) // PAGE))

    def _flush(self, pages: set[int]) -> None:
        for page in pages:
            start, end = page * PAGE, min((page + 1) * PAGE, len(self.content))
            if start < end:
                _resize(self.durable, max(len(self.durable), end))
                self.durable[start:end] = self.content[start:end]


class DirectoryNode:
    """A directory: the names that programs see, those on the medium, and the changes between."""

    def __init__(self, number: int, names: Mapping[str, Node] | None = None) -> None:
        """Make a directory whose `names` are durable."""
        self.number = number
        self.names: dict[str, Node] = dict(names or {})
        self._durable = dict(self.names)
        self._changes: list[Change] = []

    def change(self, change: Change) -> None:
        """Give and take names (None), all in one atomic step."""
        _apply(self.names, change)
        self._changes.append(change)

    def sync(self) -> None:
        """Make the names durable."""
        self._durable = dict(self.names)
        self._changes.clear()

    def survive(self, rnd: random.Random) -> dict[str, Node]:
        """Tell which names a loss of power leaves."""
        names = dict(self._durable)
        for change in _kept(self._changes, rnd):
            _apply(names, change)
        return names


Node: TypeAlias = FileNode | DirectoryNode
Change: TypeAlias = Mapping[str, Node | None]


def _apply(names: dict[str, Node], change: Change) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _kept(changes: Sequence[T], rnd: random.Random) -> Sequence[T]:
    """Choose what gets through: nothing, all, the first ones, or any, in their order."""
    if not changes:
        return changes
    style = rnd.choice(("nothing", "everything", "prefix", "any"))
    if style == "prefix":
        return changes[: rnd.randint(0, len(changes))]
    if style == "any":
        return [change for change in changes if rnd.random() < 0.5]
    return changes if style == "everything" else []


def _torn(before: bytes, after: bytes, rnd: random.Random) -> bytes:
    """Mix the pages of both contents; the length is one of them, or any between."""
    low, high = sorted((len(before), len(after)))
    length = rnd.choice((len(before), len(after), rnd.randint(low, high)))
    old, new = bytearray(before), bytearray(after)
    _resize(old, max(length, high))
    _resize(new, max(length, high))
    for start in range(0, length, PAGE):
        # The place in the page up to which the new content got through.
        cut = start + rnd.choice((0, PAGE, rnd.randint(0, PAGE)))
        old[start:cut] = new[start:cut]
    return bytes(old[:length])


def _resize(content: bytearray, length: int) -> None:
    del content[length:]
    content.extend(bytes(length - len(content)))
