"""Runs a window machine by hand, as a keyed step in event time does; one key."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from streamcp.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from streamcp.operators.windowing.machine import WindowMachine
from streamcp.operators.windows import WindowResult


class Context:
    """The context of one call; effects are applied when it has returned."""

    def __init__(self, key: str, timestamp: int, watermark: int) -> None:
        self.key = key
        self.timestamp = timestamp
        self.watermark = watermark
        self.cleared = False
        self.timers: set[int] = set()
        self.aside: list[tuple[Any, Any]] = []

    def set_timer(self, at: int, /) -> None:
        self.timers.add(at)

    def clear_state(self) -> None:
        self.cleared = True
        self.timers.clear()

    def emit_to(self, tag: Any, value: Any, /) -> None:
        self.aside.append((tag, value))


class WindowRun:
    """The key "k" of a window machine: records and watermarks in, `results` and `late` out.

    With `restoring`, it is made anew, and its state goes through bytes, before every call. Unless
    it is `whole`, what the `shortcuts` do is left to them, as the loops do."""

    def __init__(
        self, make: Callable[[], WindowMachine], *, restoring: bool = False, whole: bool = False
    ) -> None:
        self.results: list[WindowResult[str, Any]] = []
        self.late: list[Any] = []
        self.state: Any = None
        self.timers: set[int] = set()
        self.timers_set = 0
        self.watermark = MIN_TIMESTAMP
        self._make = make
        self._restoring = restoring
        self._whole = whole
        self._machine = make()

    def record(self, timestamp: int, record: Any = None) -> None:
        def call(machine: WindowMachine, state: Any, context: Context) -> Any:
            shortcuts = None if self._whole else machine.shortcuts
            if shortcuts is not None and shortcuts.add(record, timestamp, state):
                return ()
            if shortcuts is not None and shortcuts.begin is not None:
                at = shortcuts.begin(record, timestamp, state, self.watermark)
                if at is not None:
                    context.set_timer(at)
                    return ()
            return machine.fn(record, state, context)

        self._call(timestamp, call)

    def advance(self, watermark: int) -> None:
        """Fire what is due up to `watermark`, in the order of time."""
        before, self.watermark = self.watermark, max(watermark, self.watermark)
        while (due := min(self.timers, default=MAX_TIMESTAMP)) <= self.watermark and self.timers:
            assert due > before, "a timer was set for a time that has passed"
            self.timers.discard(due)
            self._fire(due)

    def _fire(self, due: int) -> None:
        def call(machine: WindowMachine, state: Any, context: Context) -> Any:
            shortcuts = None if self._whole else machine.shortcuts
            ended = None
            if shortcuts is not None and shortcuts.end is not None:
                ended = shortcuts.end(due, context.key, state)
            if ended is None:
                assert machine.timer is not None
                return machine.timer(due, state, context)
            result, is_empty, following = ended
            if is_empty:
                context.clear_state()
            elif following is not None:
                context.set_timer(following)
            return (result,)

        self._call(due, call)

    def _call(self, timestamp: int, call: Callable[[Any, Any, Context], Any]) -> None:
        if self._restoring:
            self._machine = self._make()
            self.state = pickle.loads(pickle.dumps(self.state))
        state = self._machine.state() if self.state is None else self.state
        context = Context("k", timestamp, self.watermark)
        self.results += call(self._machine, state, context)
        if context.cleared:
            self.timers.clear()
            state = self._machine.state() if context.timers else None
        self.state = state
        self.timers |= context.timers
        self.timers_set += len(context.timers)
        for tag, record in context.aside:
            assert tag == "late"
            self.late.append(record)
