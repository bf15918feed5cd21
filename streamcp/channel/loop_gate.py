"""The input gate of a loop head: records from outside wait while the loop is full.

Back edges have no limit (rule P19), so this is what bounds a loop: as long as no step in it makes
more records of one than leave, it holds no more than its channels and one batch beyond `limit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamcp.channel.channel import Channel
from streamcp.channel.input_gate import InputGate
from streamcp.elements import Element


class LoopGate(InputGate):
    """Takes from all channels in turn, and from the back edges alone while `limit` records or more
    are on them.

    Strictly first the back edges would be less fair: a barrier would wait outside until the loop
    is empty."""

    __slots__ = ("_limit",)

    def __init__(self, channels: Sequence[Channel], back: frozenset[int], limit: int) -> None:
        """Attach to `channels`, of which `back` are the back edges."""
        super().__init__(channels, back=back)
        self._limit = limit

    def take(self) -> tuple[int, Element] | None:
        """Take the next element; barriers and ends of input need no room in the loop."""
        if sum(self.channels[number].occupied for number in self.back) < self._limit:
            return super().take()
        return self.take_control() or self._take_back()

    def take_whole(self, limit: int) -> list[Any] | None:
        """Take nothing: what is taken shows on the back edges only when it was worked off, and
        each batch from outside has to look at them."""
        return None

    def _take_back(self) -> tuple[int, Element] | None:
        outside = self.blocked.union(n for n in range(len(self.channels)) if n not in self.back)
        number = self._next_open(outside)
        return None if number is None else self._take_from(number)
