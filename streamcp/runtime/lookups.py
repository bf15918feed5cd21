"""The answers that a lookup step has got in this process, and the questions that are on their way.

All subtasks of the step share them. Plain bookkeeping over times that are read here and nowhere
else: who asks, and how, is the subtask's business. Nothing of it is in a snapshot.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

from streamcp.clock import Clock

A = TypeVar("A")


class Answers(Generic[A]):
    """Up to `size` answers, of which the ones that were not used for longest make room, none of
    them older than `ttl` seconds; and for each question on its way who waits for it beside the one
    that asked."""

    __slots__ = ("_clock", "_known", "_size", "_ttl", "_waiting")

    def __init__(self, size: int, ttl: float | None, clock: Clock) -> None:
        self._size = size
        self._ttl = ttl
        self._clock = clock
        self._known: OrderedDict[Hashable, tuple[Any, float]] = OrderedDict()
        self._waiting: dict[Hashable, list[A]] = {}

    def __len__(self) -> int:
        """How many answers are kept."""
        return len(self._known)

    def known(self, key: Hashable) -> tuple[Any, ...]:
        """Return the answer alone in a tuple; an empty one if there is none, or too old a one."""
        found = self._known.get(key)
        if found is None:
            return ()
        answer, until = found
        if self._ttl is not None and self._clock.monotonic() >= until:
            del self._known[key]
            return ()
        self._known.move_to_end(key)
        return (answer,)

    def asks(self, key: Hashable, asker: A) -> bool:
        """Say whether `asker` is to ask; else it waits, and is returned with the outcome."""
        waiting = self._waiting.setdefault(key, [])
        waiting.append(asker)
        return len(waiting) == 1

    def answered(self, key: Hashable, answer: Any) -> list[A]:
        """Keep an answer; return who waited for it beside the one that asked."""
        until = 0.0 if self._ttl is None else self._clock.monotonic() + self._ttl
        self._known[key] = answer, until
        self._known.move_to_end(key)
        if len(self._known) > self._size:
            self._known.popitem(last=False)
        return self.failed(key)

    def failed(self, key: Hashable) -> list[A]:
        """There is no answer, and none is kept; return who waited beside the one that asked."""
        return self._waiting.pop(key)[1:]
