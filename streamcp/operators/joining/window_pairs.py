"""Window joins: all pairs of one key and window, when the window closes.

Two window machines of the same windows work on one state: an accumulator holds the records of both
inputs, and each machine adds to its own list. So windows, slices, sessions (of both inputs
together), timers and late records are those of every window; only what is made of a closed window
is said here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from streamcp.operators.joining.sides import How
from streamcp.operators.windowing.machine import WindowContext
from streamcp.operators.windowing.making import make_window_machine
from streamcp.operators.windows import LATE, ON_CLOSE, WindowResult, Windows

Both: TypeAlias = tuple[list[Any], list[Any]]


class _OfSide:
    """The aggregate of one input: its records beside those of the other."""

    __slots__ = ("_place",)

    def __init__(self, place: int) -> None:
        self._place = place

    def create(self) -> Both:
        """Start without records."""
        return [], []

    def add(self, accumulator: Both, record: Any, timestamp: int, /) -> Both:
        """Keep the record."""
        accumulator[self._place].append(record)
        return accumulator

    def merge(self, left: Both, right: Both, /) -> Both:
        """Put the records of both parts together."""
        return left[0] + right[0], left[1] + right[1]

    def result(self, accumulator: Both, /) -> Both:
        """Return the records, to be paired at once."""
        return accumulator


class WindowJoin:
    """Joins by `fn(left, right)` what is in one window; any windows but those that count."""

    __slots__ = ("_close", "_fn", "_left_alone", "_right_alone", "on_left", "on_right", "state")

    def __init__(self, windows: Windows, fn: Callable[[Any, Any], Any], how: How) -> None:
        left, right = (
            make_window_machine(windows, _OfSide(place), ON_CLOSE, 0, LATE) for place in (0, 1)
        )
        assert left.timer is not None, "a window that closes has a timer"
        self._close = left.timer
        self._fn = fn
        self._left_alone = how in ("left", "outer")
        self._right_alone = how in ("right", "outer")
        self.state = left.state
        # Results on close only: for a record they return nothing.
        self.on_left, self.on_right = left.fn, right.fn

    def on_timer(
        self, at: int, state: Any, context: WindowContext
    ) -> list[tuple[WindowResult[Any, Any], int]]:
        """Close windows: emit what is made of their pairs."""
        return [
            (WindowResult(window.key, window.start, window.end, value), window.end - 1)
            for window in self._close(at, state, context)
            for value in self._values(*window.value)
        ]

    def _values(self, lefts: list[Any], rights: list[Any]) -> Iterator[Any]:
        fn = self._fn
        if lefts and rights:
            return (fn(left, right) for left in lefts for right in rights)
        if lefts:
            return (fn(left, None) for left in lefts if self._left_alone)
        return (fn(None, right) for right in rights if self._right_alone)
