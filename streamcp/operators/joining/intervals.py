"""Interval joins: a left record meets the right ones from `before` it until `after` it.

A pair is emitted when the second of its records comes, with the later timestamp of both. A left
record is forgotten when the watermark has reached its timestamp plus `after`, a right one at its
timestamp plus `before`: no partner can come any more. That is also when a record without partner
is emitted, where the join is an outer one, and with that timestamp: an earlier one could be late.

A key has one timer that counts, `due`, at the earliest time at which a record can be forgotten. It
forgets all that the watermark allows and sets the next one, so there are at most as many as the
watermark makes steps, however many records there are. A timer that an earlier one has replaced does
nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamcp.elements import MAX_TIMESTAMP
from streamcp.operators.joining.sides import Function, How, Side, Stamped, reject
from streamcp.operators.windowing.machine import WindowContext


@dataclass(slots=True)
class Watched(Side):
    """With whether each record has had no partner; kept where that matters."""

    alone: list[bool] = field(default_factory=list)


@dataclass(slots=True)
class IntervalState:
    """The records of a key that may still meet others; `due`: when the first can be forgotten."""

    left: Watched = field(default_factory=Watched)
    right: Watched = field(default_factory=Watched)
    due: int = MAX_TIMESTAMP


class IntervalJoin:
    """Joins by `fn(left, right)`; `before` and `after` are in milliseconds, both inclusive."""

    __slots__ = ("_after", "_before", "_fn", "_left_alone", "_right_alone", "on_left", "on_right")

    state = IntervalState

    def __init__(self, fn: Callable[[Any, Any], Any], before: int, after: int, how: How) -> None:
        self._fn = fn
        self._before = before
        self._after = after
        self._left_alone = how in ("left", "outer")
        self._right_alone = how in ("right", "outer")
        self.on_left = self._arriving(is_left=True)
        self.on_right = self._arriving(is_left=False)

    # ---- records

    def _arriving(self, *, is_left: bool) -> Function:
        """Write what is done with a record of one input; a closure, for its constants are faster
        than attributes."""
        fn = self._fn
        back, ahead = (self._before, self._after) if is_left else (self._after, self._before)
        watched, watching = self._left_alone, self._right_alone
        if not is_left:
            watched, watching = watching, watched

        def join(record: Any, state: IntervalState, context: WindowContext) -> Sequence[Stamped]:
            timestamp = context.timestamp
            if timestamp <= context.watermark:
                return reject(record, context, keep=state.due < MAX_TIMESTAMP)
            own, others = (state.left, state.right) if is_left else (state.right, state.left)
            times = others.times
            low = bisect_left(times, timestamp - back)
            high = bisect_right(times, timestamp + ahead, low)
            place = own.put(timestamp, record)
            if watched:
                own.alone.insert(place, low == high)
            if timestamp + ahead < state.due:
                state.due = timestamp + ahead
                context.set_timer(state.due)
            if low == high:
                return ()
            if watching:
                others.alone[low:high] = [False] * (high - low)
            met = zip(others.records[low:high], times[low:high], strict=True)
            if is_left:
                return [(fn(record, one), at if at > timestamp else timestamp) for one, at in met]
            return [(fn(one, record), at if at > timestamp else timestamp) for one, at in met]

        return join

    # ---- timers

    def on_timer(self, at: int, state: IntervalState, context: WindowContext) -> list[Stamped]:
        """Forget what can meet nothing any more, and emit what has met nothing."""
        if at != state.due:
            return []
        watermark, fn = context.watermark, self._fn
        lefts = _forgotten(state.left, watermark, self._after)
        rights = _forgotten(state.right, watermark, self._before)
        rows = [(fn(record, None), time) for record, time in lefts]
        rows += [(fn(None, record), time) for record, time in rights]
        state.due = min(_first(state.left, self._after), _first(state.right, self._before))
        if state.due == MAX_TIMESTAMP:
            context.clear_state()
        else:
            context.set_timer(state.due)
        return rows


def _forgotten(side: Watched, watermark: int, ahead: int) -> list[Stamped]:
    """Forget what no partner can come for; return those that have had none, with that time."""
    count = bisect_right(side.times, watermark - ahead)
    records, times = side.records[:count], side.times[:count]
    alone = side.alone[:count]
    side.drop(count)
    del side.alone[:count]
    return [
        (record, time + ahead)
        for record, time, is_alone in zip(records, times, alone, strict=False)
        if is_alone
    ]


def _first(side: Side, ahead: int) -> int:
    return side.times[0] + ahead if side.times else MAX_TIMESTAMP
