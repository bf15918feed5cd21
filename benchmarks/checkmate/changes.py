"""The input of the cyclic query: sources and links of a graph that come and go; same seed, same
changes. The mix and the places of new links are CheckMate's."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

T = TypeVar("T")

NODES = 1_000_000
Kind: TypeAlias = Literal["add source", "delete source", "add link", "delete link"]
_KINDS: tuple[Kind, ...] = ("add source", "delete source", "add link", "delete link")
_WEIGHTS = (15, 5, 60, 20)
_AT_SOURCE, _AT_END = 0.1, 0.2  # of new links: begin at a known source, at the end of a known link


@dataclass(frozen=True, slots=True)
class Change:
    """What happens at `node`; `to` is the end of a link."""

    kind: Kind
    node: int
    to: int = 0


def changes(count: int, seed: int) -> list[Change]:
    """Make so many; nothing is deleted that is not there."""
    chance = random.Random(seed)
    sources, links = list[int](), list[tuple[int, int]]()
    return [_change(chance, sources, links) for _ in range(count)]


def _change(chance: random.Random, sources: list[int], links: list[tuple[int, int]]) -> Change:
    (kind,) = chance.choices(_KINDS, _WEIGHTS)
    if kind == "delete source" and sources:
        return Change(kind, _take_out(chance, sources))
    if kind == "delete link" and links:
        return Change(kind, *_take_out(chance, links))
    if kind in ("add source", "delete source"):
        sources.append(chance.randrange(NODES))
        return Change("add source", sources[-1])
    links.append((_beginning(chance, sources, links), chance.randrange(NODES)))
    return Change("add link", *links[-1])


def _take_out(chance: random.Random, of: list[T]) -> T:
    place = chance.randrange(len(of))
    of[place], of[-1] = of[-1], of[place]
    return of.pop()


def _beginning(chance: random.Random, sources: list[int], links: list[tuple[int, int]]) -> int:
    drawn = chance.random()
    if drawn < _AT_SOURCE and sources:
        return chance.choice(sources)
    if _AT_SOURCE <= drawn < _AT_SOURCE + _AT_END and links:
        return chance.choice(links)[1]
    return chance.randrange(NODES)
