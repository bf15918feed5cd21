"""Windows that do not overlap: tumbling, calendar and global ones.

A record belongs to one pane, found by arithmetic; an accumulator per pane is all that is kept. A
pane that is there is not late, so only the first record of a pane is compared with the watermark:
there its timer is set too, at the last millisecond of the pane. Where late records are allowed, a
second timer forgets the pane. A key without panes is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamcp.operators.aggregates import Aggregate, Count
from streamcp.operators.steps import End, Ended, Shortcuts
from streamcp.operators.windowing.grids import FixedGrid, Grid
from streamcp.operators.windowing.machine import WindowContext, WindowMachine
from streamcp.operators.windows import Emit, WindowResult


@dataclass(slots=True)
class PaneState:
    """The panes of a key: start to accumulator."""

    panes: dict[int, Any] = field(default_factory=dict)


@dataclass(slots=True)
class RefinedPaneState(PaneState):
    """With the starts of panes that have closed but still take late records, and of those that
    have changed since the last early results."""

    closed: set[int] = field(default_factory=set)
    changed: set[int] = field(default_factory=set)


class PaneMachine(WindowMachine):
    """Works the windows of a grid."""

    __slots__ = ("_grid", "fn", "state")

    def __init__(
        self, grid: Grid, aggregate: Aggregate[Any, Any], emit: Emit, lateness: int, late: Any
    ) -> None:
        super().__init__(aggregate, emit, lateness, late)
        self._grid = grid
        self.state, self.fn = PaneState, self._only_collect
        if emit.kind != "on_close" or lateness:
            self.state, self.fn = RefinedPaneState, self._collect
        else:
            add = self._adding()
            if isinstance(grid, FixedGrid) and type(aggregate) is Count:
                add = _counting(grid.size, grid.offset)
            self.shortcuts = Shortcuts(add, self._beginning(), self._ending())

    # ---- records

    def _adding(self) -> Callable[[Any, int, PaneState], bool]:
        """Add a record to a pane that is there."""
        add, start_of = self._add, self._grid.start_of

        def add_quickly(record: Any, timestamp: int, state: PaneState) -> bool:
            panes, start = state.panes, start_of(timestamp)
            if start not in panes:
                return False
            panes[start] = add(panes[start], record, timestamp)
            return True

        return add_quickly

    def _beginning(self) -> Callable[[Any, int, PaneState, int], int | None]:
        """Begin a pane with a record, if it is not too late for it."""
        create, add = self._create, self._add
        start_of, end_of = self._grid.start_of, self._grid.end_of

        def begin(record: Any, timestamp: int, state: PaneState, watermark: int) -> int | None:
            start = start_of(timestamp)
            close = end_of(start) - 1
            if close <= watermark:
                return None
            state.panes[start] = add(create(), record, timestamp)
            return close

        return begin

    def _ending(self) -> End:
        """Close the pane whose last millisecond it is."""
        result_of, start_of, end_of = self._result, self._grid.start_of, self._grid.end_of

        def end(at: int, key: Any, state: PaneState) -> Ended | None:
            panes, start = state.panes, start_of(at)
            if start not in panes or end_of(start) != at + 1:
                return None
            result = WindowResult(key, start, at + 1, result_of(panes[start]))
            del panes[start]
            return result, not panes, None

        return end

    def _only_collect(
        self, record: Any, state: PaneState, context: WindowContext
    ) -> Sequence[WindowResult[Any, Any]]:
        """Results come on close only: most records belong to a pane that is there."""
        timestamp, shortcuts = context.timestamp, self.shortcuts
        assert shortcuts is not None
        if shortcuts.add(record, timestamp, state):
            return ()
        if not self._open(self._grid.start_of(timestamp), state, context):
            return self._reject(record, context, keep=state.panes)
        shortcuts.add(record, timestamp, state)
        return ()

    def _collect(
        self, record: Any, state: RefinedPaneState, context: WindowContext
    ) -> Sequence[WindowResult[Any, Any]]:
        start = self._grid.start_of(context.timestamp)
        panes = state.panes
        if start not in panes and not self._open(start, state, context):
            return self._reject(record, context, keep=panes)
        panes[start] = self._add(panes[start], record, context.timestamp)
        if self._each or start in state.closed:
            return (self._pane(start, state, context),)
        if self._every:
            if not state.changed:
                context.set_timer(self._next_tick(context))
            state.changed.add(start)
        return ()

    def _open(self, start: int, state: Any, context: WindowContext) -> bool:
        """Begin a pane; False if it is too late for it."""
        watermark = context.watermark
        close = self._grid.end_of(start) - 1
        if close + self._lateness <= watermark:
            return False
        state.panes[start] = self._create()
        if close > watermark:
            context.set_timer(close)
        else:
            self._keep_closed(start, close, state, context)
        return True

    def _keep_closed(
        self, start: int, close: int, state: RefinedPaneState, context: WindowContext
    ) -> None:
        state.closed.add(start)
        context.set_timer(close + self._lateness)

    def _pane(self, start: int, state: PaneState, context: WindowContext) -> WindowResult[Any, Any]:
        return self._value(context, start, self._grid.end_of(start), state.panes[start])

    # ---- timers

    @property
    def timer(self) -> Callable[[int, Any, WindowContext], Sequence[WindowResult[Any, Any]]]:
        """The timer function."""
        return self.on_timer

    def on_timer(
        self, at: int, state: PaneState, context: WindowContext
    ) -> list[WindowResult[Any, Any]]:
        """Close the pane whose last millisecond it is; forget one that closed long ago; emit early
        results. All three may fall together."""
        results: list[WindowResult[Any, Any]] = []
        start = self._grid.start_of(at)
        if start in state.panes and self._grid.end_of(start) == at + 1:
            if not self._each:
                results.append(self._pane(start, state, context))
            self._close(start, at, state, context)
        if isinstance(state, RefinedPaneState):
            self._forget(at - self._lateness, state)
            if self._is_tick(at):
                results += [self._pane(early, state, context) for early in sorted(state.changed)]
                state.changed.clear()
        if not state.panes:
            context.clear_state()
        return results

    def _close(self, start: int, close: int, state: PaneState, context: WindowContext) -> None:
        if isinstance(state, RefinedPaneState):
            state.changed.discard(start)
            if self._lateness:
                self._keep_closed(start, close, state, context)
                return
        del state.panes[start]

    def _forget(self, close: int, state: RefinedPaneState) -> None:
        if not state.closed:
            return
        start = self._grid.start_of(close)
        if start in state.closed and self._grid.end_of(start) == close + 1:
            state.closed.discard(start)
            del state.panes[start]


def _counting(size: int, offset: int) -> Callable[[Any, int, PaneState], bool]:
    """Count a record in a pane that is there: the most frequent aggregate, in windows of one size.
    Without calls for the start and the sum it takes half as long."""

    def count_quickly(record: Any, timestamp: int, state: PaneState) -> bool:
        try:
            state.panes[timestamp - (timestamp - offset) % size] += 1
        except KeyError:
            return False
        return True

    return count_quickly
