"""Sliding windows, by slices that the windows share.

Time is cut wherever a window begins or ends; a record is added to one slice, whatever the number of
windows that cover it, and a window's value is merged of its slices when it closes. Where
accumulators are small, sums over slices are kept, so that a closing window merges a few only: for
the older slices the sums from each to the last of them (`front`), for the younger ones one sum
(`back`). When the older ones are used up, the younger ones become the older ones. A record that
changes a slice that is in a sum lets them be made anew.

A slice sets the timer of the first of its windows that has not closed; each closing window sets
that of the next one, while that has slices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamcp.elements import MIN_TIMESTAMP
from streamcp.operators.aggregates import Aggregate
from streamcp.operators.steps import End, Ended, Shortcuts
from streamcp.operators.windowing.machine import WindowContext, WindowMachine
from streamcp.operators.windows import Emit, WindowResult


@dataclass(slots=True)
class SliceState:
    """The slices of a key: start to accumulator.

    - `closed_until`: the end of the last window that closed.
    - `covered`: the end of what is in the sums; `middle` is where `back` begins.
    - `front`: pairs of start and sum, the latest start first; `back`: the sum, or nothing.
    - `changed`: the starts of slices that have changed since the last early results.
    """

    slices: dict[int, Any] = field(default_factory=dict)
    closed_until: int = MIN_TIMESTAMP
    covered: int = MIN_TIMESTAMP
    middle: int = MIN_TIMESTAMP
    front: list[tuple[int, Any]] = field(default_factory=list)
    back: tuple[Any, ...] = ()
    changed: set[int] = field(default_factory=set)


class SliceMachine(WindowMachine):
    """Works windows of `size`, one beginning every `every` milliseconds."""

    __slots__ = ("_offset", "_rest", "_size", "_small", "_step", "fn", "state")

    def __init__(
        self,
        size: int,
        every: int,
        offset: int,
        aggregate: Aggregate[Any, Any],
        emit: Emit,
        lateness: int,
        late: Any,
    ) -> None:
        super().__init__(aggregate, emit, lateness, late)
        self._size = size
        self._step = every
        self._offset = offset % every
        self._rest = size % every  # windows end so far behind a beginning
        self._small = bool(getattr(aggregate, "small", False))
        self.state, self.fn = SliceState, self._collect
        if emit.kind == "on_close" and not lateness:
            self.fn = self._only_collect
            self.shortcuts = Shortcuts(self._adding(), self._beginning(), self._ending())

    # ---- arithmetic

    def _slice_of(self, timestamp: int) -> int:
        behind = (timestamp - self._offset) % self._step
        return timestamp - behind + (self._rest if behind >= self._rest else 0)

    def _next_slice(self, start: int) -> int:
        behind = (start - self._offset) % self._step
        return start - behind + (self._rest if behind < self._rest else self._step)

    def _first_end(self, after: int) -> int:
        """Return the first end of a window that is later than `after`."""
        return after - (after - self._offset - self._rest) % self._step + self._step

    def _last_end(self, start: int) -> int:
        """Return the end of the last window that covers the slice at `start`."""
        return self._first_end(start + self._size - self._step)

    def _starts(self, low: int, high: int) -> Sequence[int]:
        """Return the starts of slices from one at `low` on."""
        if not self._rest:
            return range(low, high, self._step)
        starts = []
        while low < high:
            starts.append(low)
            low = self._next_slice(low)
        return starts

    # ---- records

    def _adding(self) -> Callable[[Any, int, SliceState], bool]:
        """Add a record to a slice that is there."""
        add, offset, step, rest = self._add, self._offset, self._step, self._rest

        def add_quickly(record: Any, timestamp: int, state: SliceState) -> bool:
            behind = (timestamp - offset) % step
            start = timestamp - behind
            if behind >= rest:
                start += rest
            slices = state.slices
            if start not in slices:
                return False
            slices[start] = add(slices[start], record, timestamp)
            if start < state.covered:
                state.covered = MIN_TIMESTAMP
            return True

        return add_quickly

    def _beginning(self) -> Callable[[Any, int, SliceState, int], int | None]:
        """Begin a slice with a record, if it is not too late for all its windows."""
        create, add = self._create, self._add
        slice_of, first_end, last_end = self._slice_of, self._first_end, self._last_end

        def begin(record: Any, timestamp: int, state: SliceState, watermark: int) -> int | None:
            start = slice_of(timestamp)
            passed = max(state.closed_until, watermark + 1)
            if last_end(start) <= passed:
                return None
            state.slices[start] = add(create(), record, timestamp)
            if start < state.covered:
                state.covered = MIN_TIMESTAMP
            return first_end(max(start, passed)) - 1

        return begin

    def _ending(self) -> End:
        """Close the window whose last millisecond it is."""
        result_of, size, step = self._result, self._size, self._step
        merged = self._running if self._small else self._whole

        def end(at: int, key: Any, state: SliceState) -> Ended | None:
            stop = at + 1
            low = stop - size
            whole = merged(low, stop, state) if self._is_end(stop) else ()
            if not whole:
                return None
            result = WindowResult(key, low, stop, result_of(whole[0]))
            state.closed_until = stop
            self._forget(stop, state)
            is_followed = _any_between(state, low + step, stop + step)
            return result, not state.slices, at + step if is_followed else None

        return end

    def _only_collect(
        self, record: Any, state: SliceState, context: WindowContext
    ) -> Sequence[WindowResult[Any, Any]]:
        """Results come on close only: most records belong to a slice that is there."""
        timestamp, shortcuts = context.timestamp, self.shortcuts
        assert shortcuts is not None
        if shortcuts.add(record, timestamp, state):
            return ()
        if not self._open(self._slice_of(timestamp), state, context):
            return self._reject(record, context, keep=state.slices)
        shortcuts.add(record, timestamp, state)
        return ()

    def _collect(
        self, record: Any, state: SliceState, context: WindowContext
    ) -> Sequence[WindowResult[Any, Any]]:
        start = self._slice_of(context.timestamp)
        slices = state.slices
        if start not in slices and not self._open(start, state, context):
            return self._reject(record, context, keep=slices)
        slices[start] = self._add(slices[start], record, context.timestamp)
        if start < state.covered:
            state.covered = MIN_TIMESTAMP
        if self._every and self._last_end(start) > self._passed(state, context):
            if not state.changed:
                context.set_timer(self._next_tick(context))
            state.changed.add(start)
        return self._at_once(start, state, context)

    def _open(self, start: int, state: SliceState, context: WindowContext) -> bool:
        """Begin a slice; False if it is too late for all its windows."""
        last, passed = self._last_end(start), self._passed(state, context)
        too_late = last + self._lateness <= context.watermark + 1
        if too_late or (last <= passed and not self._lateness):
            return False
        state.slices[start] = self._create()
        if last > passed:
            context.set_timer(self._first_end(max(start, passed)) - 1)
        else:
            context.set_timer(last - 1 + self._lateness)
        return True

    def _passed(self, state: SliceState, context: WindowContext) -> int:
        """Return up to which end windows have closed."""
        return max(state.closed_until, context.watermark + 1)

    def _at_once(
        self, start: int, state: SliceState, context: WindowContext
    ) -> list[WindowResult[Any, Any]]:
        """Emit what does not wait for a close: windows that have closed, or each of them."""
        forgotten = context.watermark + 1 - self._lateness
        first, last = self._first_end(start), self._last_end(start)
        if not self._each:
            last = min(last, self._passed(state, context))
        ends = range(first, last + 1, self._step)
        return [self._window(end, state, context) for end in ends if end > forgotten]

    def _window(
        self, end: int, state: SliceState, context: WindowContext
    ) -> WindowResult[Any, Any]:
        low = end - self._size
        return self._value(context, low, end, self._whole(low, end, state)[0])

    def _whole(self, low: int, end: int, state: SliceState) -> tuple[Any, ...]:
        """Return the merged accumulator of a window, or nothing if it has no slices."""
        covered = sorted(start for start in state.slices if low <= start < end)
        return (self._merged(map(state.slices.__getitem__, covered)),) if covered else ()

    # ---- timers

    @property
    def timer(self) -> Callable[[int, Any, WindowContext], Sequence[WindowResult[Any, Any]]]:
        """The timer function."""
        return self.on_timer

    def on_timer(
        self, at: int, state: SliceState, context: WindowContext
    ) -> list[WindowResult[Any, Any]]:
        """Close the window whose last millisecond it is; forget slices whose last window closed
        long ago; emit early results. All three may fall together."""
        end = at + 1
        results = []
        if self._is_end(end):
            results = self._close(end, state, context)
        if self._lateness and self._is_end(end - self._lateness):
            self._forget(end - self._lateness, state)
        if self._is_tick(at):
            results += self._early(at, state, context)
        if not state.slices:
            context.clear_state()
        return results

    def _is_end(self, moment: int) -> bool:
        return (moment - self._offset - self._rest) % self._step == 0

    def _close(
        self, end: int, state: SliceState, context: WindowContext
    ) -> list[WindowResult[Any, Any]]:
        low = end - self._size
        results = []
        if not self._each:
            whole = self._running(low, end, state) if self._small else self._whole(low, end, state)
            results = [self._value(context, low, end, one) for one in whole]
        state.closed_until = end
        if not self._lateness:
            self._forget(end, state)
        elif _any_between(state, low, low + self._step):
            state.changed.difference_update(self._starts(low, low + self._step))
            context.set_timer(end - 1 + self._lateness)
        if _any_between(state, low + self._step, end + self._step):
            context.set_timer(end - 1 + self._step)
        return results

    def _forget(self, end: int, state: SliceState) -> None:
        """Forget the slices whose last window ends at `end`."""
        low = end - self._size
        slices, changed = state.slices, state.changed
        for start in self._starts(low, low + self._step):
            slices.pop(start, None)
            if changed:
                changed.discard(start)

    def _early(
        self, at: int, state: SliceState, context: WindowContext
    ) -> list[WindowResult[Any, Any]]:
        ends: set[int] = set()
        for start in state.changed:
            first = self._first_end(max(start, at + 1))
            ends.update(range(first, self._last_end(start) + 1, self._step))
        state.changed.clear()
        return [self._window(end, state, context) for end in sorted(ends)]

    # ---- sums over slices

    def _running(self, low: int, end: int, state: SliceState) -> tuple[Any, ...]:
        """Return what `_whole` returns, by sums that are kept."""
        front = state.front
        if state.covered <= low:
            front.clear()
            state.back = ()
            state.covered = state.middle = low
        while front and front[-1][0] < low:
            front.pop()
        if not front and state.middle < low:
            self._turn_over(low, state)
        back = state.back
        for start in self._starts(state.covered, end):
            if start in state.slices:
                back = self._both(back, (state.slices[start],))
        state.back, state.covered = back, end
        return self._both(front[-1][1:], back) if front else back

    def _turn_over(self, low: int, state: SliceState) -> None:
        """Let the younger slices become the older ones, each with the sum from it on."""
        sums: tuple[Any, ...] = ()
        for start in reversed(self._starts(low, state.covered)):
            if start in state.slices:
                sums = self._both((state.slices[start],), sums)
                state.front.append((start, *sums))
        state.back = ()
        state.middle = state.covered

    def _both(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._merge(left[0], right[0]),) if left and right else left or right


def _any_between(state: SliceState, low: int, high: int) -> bool:
    for start in state.slices:  # noqa: SIM110 (twice as fast, at each close)
        if low <= start < high:
            return True
    return False
