"""Other parallelisms for a user's job, at a restart.

Steps that are joined by forward edges change together. Left as they are: sources, and what is
joined to them, since their records have no key that would keep them in order; and steps with a
broadcast input, which may put out something per subtask.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from streamcp.graph.logical import Forward, Node
from streamcp.operators.steps import BroadcastStep, KeyedBroadcastStep, SourceStep

_KEPT = (SourceStep, BroadcastStep, KeyedBroadcastStep)
_MOST = 4


def change_parallelism(nodes: Sequence[Node], most: int, seed: int) -> None:
    """Draw the parallelism of every step that may have another one, at most `most`, from `seed`."""
    rnd = random.Random(f"parallelism {seed}")
    for group in _groups(nodes):
        drawn = rnd.randint(1, min(_MOST, most))
        if not any(isinstance(node.spec, _KEPT) for node in group):
            for node in group:
                node.parallelism = drawn


def _groups(nodes: Iterable[Node]) -> list[list[Node]]:
    """Steps that forward edges join, in the order of their definition."""
    group_of: dict[Node, list[Node]] = {}
    for node in nodes:
        group_of[node] = [node]
    for node in nodes:
        for connection in node.inputs:
            if isinstance(connection.exchange, Forward):
                _join(group_of, group_of[connection.node], group_of[node])
    return list({id(group): group for group in group_of.values()}.values())


def _join(group_of: dict[Node, list[Node]], one: list[Node], other: list[Node]) -> None:
    if one is not other:
        one += other
        for node in other:
            group_of[node] = one
