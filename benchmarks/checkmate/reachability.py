"""The cyclic query: which nodes can be reached from which sources, while links come and go?

A path that has reached a node goes on along each link from there, as a record that goes round; it
ends where it would meet itself. A deleted source or link extends no path any more. Unlike
CheckMate's query, which tells all subtasks of a deletion, paths that were found before it stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import streamcp as sc
from benchmarks.checkmate.changes import Change
from benchmarks.checkmate.queries import Result


@dataclass(frozen=True, slots=True)
class Path:
    """Nodes from a source to the one that it has reached; `found` says that it is a result."""

    nodes: tuple[int, ...]
    found: bool = False


Step: TypeAlias = tuple[int, Change | Path]
"""The intended time of the change that caused it, and what goes round."""


@dataclass
class Place:
    """What is known at a node."""

    links: list[int] = field(default_factory=list)
    paths: list[tuple[int, ...]] = field(default_factory=list)


def place_of(step: Step) -> int:
    what = step[1]
    return what.nodes[-1] if isinstance(what, Path) else what.node


def goes_on(step: Step) -> bool:
    return not (isinstance(step[1], Path) and step[1].found)


def extend(step: Step, place: Place, ctx: sc.KeyContext[int]) -> list[Step]:
    """Take in what has come to a node, and send on what follows."""
    stamp, what = step
    if isinstance(what, Path):
        return _arrived(stamp, what.nodes, place)
    match what.kind:
        case "add source":
            return _arrived(stamp, (what.node,), place)
        case "add link":
            place.links.append(what.to)
            return [(stamp, Path((*path, what.to))) for path in place.paths if what.to not in path]
        case "delete source":
            place.paths = [path for path in place.paths if path != (what.node,)]
        case _:
            place.links = [link for link in place.links if link != what.to]
    return []


def _arrived(stamp: int, nodes: tuple[int, ...], place: Place) -> list[Step]:
    place.paths.append(nodes)
    on = [(stamp, Path((*nodes, link))) for link in place.links if link not in nodes]
    return [(stamp, Path(nodes, found=True)), *on]


def result(step: Step) -> Result:
    assert isinstance(step[1], Path)
    return step[0], len(step[1].nodes)


def _round(loop: sc.Stream[Step]) -> tuple[sc.Stream[Step], sc.Stream[Step]]:
    return loop.key_by(place_of).process(extend, state=Place, name="join").branch(goes_on)


def cyclic(changes: sc.Stream[Step]) -> sc.Stream[Result]:
    """Reachability."""
    return changes.iterate(_round, name="paths").map(result)
