"""The best of the window results of all keys: one result per window, when it closes.

A step behind the windows, keyed by window (and group): all results of a window come to one subtask,
with a timestamp in that window, and the watermark that closed it for the keys closes it here. Equal
scores are ordered by a stable hash of their keys, and those of one key as they came: so the result
does not depend on the order in which the subtasks of the windows emit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from streamcp.operators.windowing.machine import WindowContext
from streamcp.operators.windows import WindowResult
from streamcp.serialization.stable_hash import stable_hash

Result: TypeAlias = WindowResult[Any, Any]
Results: TypeAlias = WindowResult[Any, list[Result]]


class Ranked(NamedTuple):
    """A result with what it is ordered by: the larger score first, then the smaller tie."""

    score: Any
    tie: int
    result: Result

    def is_before(self, other: Ranked) -> bool:
        """Say whether it comes before another one, which was there before."""
        if self.score == other.score:
            return self.tie < other.tie
        return bool(self.score > other.score)


@dataclass(slots=True)
class Best:
    """The best results of a window so far, best first."""

    ranked: list[Ranked] = field(default_factory=list)


@dataclass(slots=True)
class Latest:
    """The latest result of each key in a window; `closed`: the best of them were emitted."""

    by_key: dict[Hashable, Ranked] = field(default_factory=dict)
    closed: bool = False


class TopMachine:
    """The common part: how results are ranked, and the one of a window is made.

    The step's key is (group, start, end)."""

    __slots__ = ("_by", "_n")

    def __init__(self, n: int, by: Callable[[Result], Any]) -> None:
        self._n = n
        self._by = by

    def _ranked(self, result: Result) -> Ranked:
        return Ranked(self._by(result), stable_hash(result.key), result)

    def _of_window(self, ranked: Iterable[Ranked], context: WindowContext) -> Results:
        group, start, end = context.key
        return WindowResult(group, start, end, [one.result for one in ranked])


class TopOnce(TopMachine):
    """Each result comes once: no more than the best ones are kept."""

    __slots__ = ()

    state = Best

    def fn(self, result: Result, state: Best, context: WindowContext) -> Sequence[Results]:
        """Put a result into its place, if it is among the best."""
        ranked = state.ranked
        if not ranked:
            context.set_timer(context.key[2] - 1)
        new = self._ranked(result)
        place = len(ranked)
        while place and new.is_before(ranked[place - 1]):
            place -= 1
        if place < self._n:
            ranked.insert(place, new)
            del ranked[self._n :]
        return ()

    def on_timer(self, at: int, state: Best, context: WindowContext) -> Sequence[Results]:
        """Close the window."""
        context.clear_state()
        return (self._of_window(state.ranked, context),)


class TopRefined(TopMachine):
    """The result of a key may come again, until `lateness` milliseconds behind the close: the last
    one counts. After the close the best are emitted again when they are others."""

    __slots__ = ("_lateness",)

    state = Latest

    def __init__(self, n: int, by: Callable[[Result], Any], lateness: int) -> None:
        super().__init__(n, by)
        self._lateness = lateness

    def fn(self, result: Result, state: Latest, context: WindowContext) -> Sequence[Results]:
        """Take a key's new result in place of its old one."""
        if not state.by_key:
            self._open(state, context)
        before = self._best(state) if state.closed else []
        state.by_key[result.key] = self._ranked(result)
        if not state.closed:
            return ()
        best = self._best(state)
        same = len(best) == len(before) and all(map(_is_same, best, before))
        return () if same else (self._of_window(best, context),)

    def _open(self, state: Latest, context: WindowContext) -> None:
        close = context.key[2] - 1
        state.closed = close <= context.watermark
        context.set_timer(close + self._lateness if state.closed else close)

    def _best(self, state: Latest) -> list[Ranked]:
        ranked = sorted(state.by_key.values(), key=lambda one: one.tie)
        ranked.sort(key=lambda one: one.score, reverse=True)  # which keeps the order of equal ones
        return ranked[: self._n]

    def on_timer(self, at: int, state: Latest, context: WindowContext) -> Sequence[Results]:
        """Close the window, or forget it."""
        results = () if state.closed else (self._of_window(self._best(state), context),)
        if self._lateness and not state.closed:
            state.closed = True
            context.set_timer(at + self._lateness)
        else:
            context.clear_state()
        return results


def _is_same(one: Ranked, other: Ranked) -> bool:
    return one is other
