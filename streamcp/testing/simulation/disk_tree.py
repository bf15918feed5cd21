"""The names on a simulated disk: paths to files and directories, and the calls that change them.

Invariant: a call either changes names as a whole or raises the OSError that the real one would;
what was added needs room. It must not know processes or faults.
"""

from __future__ import annotations

import copy
import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path

from streamcp.testing.simulation.disk_nodes import DirectoryNode, FileNode, Node


def os_error(code: int, path: Path) -> OSError:
    """Make the error of a system call."""
    return OSError(code, os.strerror(code), str(path))


class DiskTree:
    """Files and directories below `/`. `capacity` in bytes of content; None is endless."""

    def __init__(self, capacity: int | None = None) -> None:
        """Make an empty root."""
        self.capacity = capacity
        self._root = DirectoryNode(1)
        self._last_number = 1

    def find(self, path: Path) -> Node | None:
        """Find what has the last name of a path; raises OSError if there is no way there."""
        return self.directory(path.parent).names.get(path.name) if path.name else self._root

    def existing(self, path: Path) -> Node:
        """Find what a path names; raises OSError if nothing."""
        node = self.find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        return node

    def directory(self, path: Path) -> DirectoryNode:
        """Find a directory; raises OSError if there is none."""
        node: Node | None = self._root
        for name in path.parts[1:]:
            node = node.names.get(name) if isinstance(node, DirectoryNode) else node
        if node is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(node, FileNode):
            raise os_error(errno.ENOTDIR, path)
        return node

    def make_file(self, path: Path) -> FileNode:
        """Make an empty file where nothing is."""
        node = FileNode(self._new_number(path))
        self._name(path, node)
        return node

    def make_directory(self, path: Path) -> None:
        """Make an empty directory."""
        if self.find(path) is not None:
            raise os_error(errno.EEXIST, path)
        self._name(path, DirectoryNode(self._new_number(path)))

    def link(self, source: Path, target: Path) -> None:
        """Give a file another name."""
        node = self.existing(source)
        if isinstance(node, DirectoryNode):
            raise os_error(errno.EPERM, source)
        if self.find(target) is not None:
            raise os_error(errno.EEXIST, target)
        self._check_room(target)
        self._name(target, node)

    def unlink(self, path: Path) -> None:
        """Take a name from a file."""
        if isinstance(self.existing(path), DirectoryNode):
            raise os_error(errno.EISDIR, path)
        self._name(path, None)

    def replace(self, source: Path, target: Path) -> None:
        """Move a name within its directory."""
        if source.parent != target.parent:
            raise os_error(errno.EXDEV, target)
        node, replaced = self.existing(source), self.find(target)
        if isinstance(replaced, DirectoryNode):
            raise os_error(errno.EISDIR, target)
        if replaced is not node:
            self.directory(target.parent).change({source.name: None, target.name: node})

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        if self.directory(path).names:
            raise os_error(errno.ENOTEMPTY, path)
        self._name(path, None)

    def room(self) -> float:
        """Tell how many bytes are free."""
        if self.capacity is None:
            return float("inf")
        nodes = {node.number: node for _, node in self.walk()}
        used = sum(len(node.content) for node in nodes.values() if isinstance(node, FileNode))
        return self.capacity - used

    def walk(self) -> Iterator[tuple[str, Node]]:
        """Go through all paths and what they name."""
        yield from self._walk("", self._root)

    def survive(self, rnd: random.Random) -> DiskTree:
        """Copy what is left when the power fails; all of it is durable."""
        return self._with_root(_left_of_directory(self._root, {}, rnd))

    def unlocked(self) -> DiskTree:
        """Copy what is left when all processes end: all but the locks, durable or not."""
        twin = self._with_root(copy.deepcopy(self._root))
        for _, node in twin.walk():
            if isinstance(node, FileNode):
                node.holder = None
        return twin

    def _with_root(self, root: DirectoryNode) -> DiskTree:
        tree = DiskTree(self.capacity)
        tree._root, tree._last_number = root, self._last_number
        return tree

    def _name(self, path: Path, node: Node | None) -> None:
        self.directory(path.parent).change({path.name: node})

    def _new_number(self, path: Path) -> int:
        self._check_room(path)
        self._last_number += 1
        return self._last_number

    def _check_room(self, path: Path) -> None:
        if self.room() <= 0:
            raise os_error(errno.ENOSPC, path)

    def _walk(self, path: str, directory: DirectoryNode) -> Iterator[tuple[str, Node]]:
        for name, node in directory.names.items():
            yield f"{path}/{name}", node
            if isinstance(node, DirectoryNode):
                yield from self._walk(f"{path}/{name}", node)


def _left_of_directory(
    directory: DirectoryNode, left: dict[int, Node], rnd: random.Random
) -> DirectoryNode:
    names = directory.survive(rnd)
    return DirectoryNode(
        directory.number, {name: _left_of(node, left, rnd) for name, node in names.items()}
    )


def _left_of(node: Node, left: dict[int, Node], rnd: random.Random) -> Node:
    """Decide once what is left of a file or directory, however many names it has."""
    if node.number not in left:
        if isinstance(node, DirectoryNode):
            left[node.number] = _left_of_directory(node, left, rnd)
        else:
            left[node.number] = FileNode(node.number, node.survive(rnd))
    return left[node.number]
