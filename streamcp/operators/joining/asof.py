"""As-of joins: a left record meets the newest right one that is not later than it.

It is decided when the watermark has reached the left record's timestamp: no right one that is newer
and still fits can come any more. A right record is a *version*: it holds until the next one. Of the
versions up to the watermark only the newest is kept, for those left records that are still to come;
with a `tolerance` not even that, once it is too old for all of them.

A key has one timer that counts, `due`: when the first left record is decided, or the first version
can be forgotten. One that an earlier one has replaced does nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamcp.elements import MAX_TIMESTAMP
from streamcp.operators.joining.sides import How, Side, Stamped, reject
from streamcp.operators.windowing.machine import WindowContext


@dataclass(slots=True)
class AsofState:
    """The left records of a key that are not decided, and the versions that they may meet."""

    waiting: Side = field(default_factory=Side)
    versions: Side = field(default_factory=Side)
    due: int = MAX_TIMESTAMP


class AsofJoin:
    """Joins by `fn(left, right)`; a version older than `tolerance` milliseconds is none, if that is
    given. `how` is "inner" or "left"."""

    __slots__ = ("_fn", "_left_alone", "_tolerance")

    state = AsofState

    def __init__(self, fn: Callable[[Any, Any], Any], tolerance: int | None, how: How) -> None:
        self._fn = fn
        self._tolerance = tolerance
        self._left_alone = how == "left"

    # ---- records

    def on_left(self, record: Any, state: AsofState, context: WindowContext) -> Sequence[Stamped]:
        """Let a left record wait for its decision."""
        timestamp = context.timestamp
        if timestamp <= context.watermark:
            return self._reject(record, state, context)
        state.waiting.put(timestamp, record)
        if timestamp < state.due:
            self._watch(state, timestamp, context)
        return ()

    def on_right(self, record: Any, state: AsofState, context: WindowContext) -> Sequence[Stamped]:
        """Keep a version; of those with one timestamp the one that has come last is the newest."""
        if context.timestamp <= context.watermark:
            return self._reject(record, state, context)
        if state.versions.put(context.timestamp, record) < 2:  # else the first two are as before
            due = self._first_forgotten(state.versions)
            if due < state.due:
                self._watch(state, due, context)
        return ()

    def _reject(self, record: Any, state: AsofState, context: WindowContext) -> tuple[()]:
        return reject(record, context, keep=state.waiting.times or state.versions.times)

    def _watch(self, state: AsofState, due: int, context: WindowContext) -> None:
        state.due = due
        context.set_timer(due)

    def _first_forgotten(self, versions: Side) -> int:
        """Return when the oldest version can be forgotten, as far as is known."""
        times = versions.times
        due = times[1] if len(times) > 1 else MAX_TIMESTAMP
        if self._tolerance is not None and times:
            due = min(due, times[0] + self._tolerance)
        return due

    # ---- timers

    def on_timer(self, at: int, state: AsofState, context: WindowContext) -> list[Stamped]:
        """Decide what the watermark allows, and forget the versions that nothing can meet."""
        if at != state.due:
            return []
        watermark = context.watermark
        rows = self._decide(state, watermark)
        self._forget(state.versions, watermark)
        waiting, versions = state.waiting.times, state.versions
        if not waiting and not versions.times:
            context.clear_state()
            return rows
        state.due = min(waiting[0] if waiting else MAX_TIMESTAMP, self._first_forgotten(versions))
        if state.due < MAX_TIMESTAMP:
            context.set_timer(state.due)
        return rows

    def _decide(self, state: AsofState, watermark: int) -> list[Stamped]:
        fn, tolerance, waiting = self._fn, self._tolerance, state.waiting
        times, versions = state.versions.times, state.versions.records
        count = bisect_right(waiting.times, watermark)
        rows = []
        for timestamp, record in zip(waiting.times[:count], waiting.records, strict=False):
            newest = bisect_right(times, timestamp) - 1
            if newest >= 0 and (tolerance is None or times[newest] >= timestamp - tolerance):
                rows.append((fn(record, versions[newest]), timestamp))
            elif self._left_alone:
                rows.append((fn(record, None), timestamp))
        waiting.drop(count)
        return rows

    def _forget(self, versions: Side, watermark: int) -> None:
        """Of those up to the watermark keep the newest, unless it is too old for what comes."""
        newest = bisect_right(versions.times, watermark) - 1
        if newest < 0:
            return
        tolerance = self._tolerance
        too_old = tolerance is not None and versions.times[newest] + tolerance <= watermark
        versions.drop(newest + 1 if too_old or watermark == MAX_TIMESTAMP else newest)
