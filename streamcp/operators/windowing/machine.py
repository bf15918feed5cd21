"""What the window machines have in common: how values are built, emitted, and found to be late.

A machine is the function, the state factory and the timer function of a keyed `process` step in
event time. It relies on this: when a record is worked, every timer of its key up to the watermark
has fired. It keeps nothing itself; what it knows of a key is in the key's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from streamcp.operators.aggregates import Aggregate
from streamcp.operators.steps import Shortcuts
from streamcp.operators.windows import Emit, WindowResult


class WindowContext(Protocol):
    """What a window machine asks of the context of a call: see `KeyContext`.

    `timestamp` is the record's event time; timers are in event time."""

    @property
    def key(self) -> Any:
        """The key that the call works for."""
        ...

    @property
    def timestamp(self) -> int:
        """The event time of the record."""
        ...

    @property
    def watermark(self) -> int:
        """How far event time has come."""
        ...

    def set_timer(self, at: int, /) -> None:
        """Call `on_timer` when the watermark reaches `at`; the same time twice is one timer."""
        ...

    def clear_state(self) -> None:
        """Forget the key's state and its timers."""
        ...

    def emit_to(self, tag: Any, value: Any, /) -> None:
        """Emit a value on a side output."""
        ...


class WindowMachine:
    """The common part of the machines for each kind of window.

    - `fn(record, state, context)` and the timer function return what is emitted. Timers that the
      timer function sets come to an end by themselves.
    - `shortcuts` do the same as the functions where they can; None if they never can.
    - `state` makes the state of a key without windows.
    - `late` is the tag to which records go that come too late for every window.
    """

    __slots__ = (
        "_add",
        "_create",
        "_each",
        "_every",
        "_late",
        "_lateness",
        "_merge",
        "_result",
        "shortcuts",
    )

    fn: Callable[[Any, Any, WindowContext], Sequence[WindowResult[Any, Any]]]
    state: Callable[[], Any]

    @property
    def timer(self) -> Callable[[int, Any, WindowContext], Sequence[WindowResult[Any, Any]]] | None:
        """The timer function, `on_timer(timestamp, state, context)`; None if no timers are set."""
        return None

    def __init__(
        self, aggregate: Aggregate[Any, Any], emit: Emit, lateness: int, late: Any
    ) -> None:
        self._create = aggregate.create
        self._add = aggregate.add
        self._merge = aggregate.merge
        self._result = aggregate.result
        self._each = emit.kind == "on_each"
        self._every = emit.every
        self._lateness = lateness
        self._late = late
        self.shortcuts: Shortcuts | None = None

    def _value(
        self, context: WindowContext, start: int, end: int, accumulator: Any
    ) -> WindowResult[Any, Any]:
        return WindowResult(context.key, start, end, self._result(accumulator))

    def _merged(self, accumulators: Iterable[Any]) -> Any:
        """Merge one or more accumulators, in their order; changes none of them."""
        parts = iter(accumulators)
        merged = next(parts)
        for part in parts:
            merged = self._merge(merged, part)
        return merged

    def _reject(self, record: Any, context: WindowContext, *, keep: object) -> tuple[()]:
        """Put a record aside that comes too late. Unless there is something to `keep`, its key is
        forgotten again: no timer would do that."""
        context.emit_to(self._late, record)
        if not keep:
            context.clear_state()
        return ()

    def _next_tick(self, context: WindowContext) -> int:
        """Return the time of the timer for the next early results: the last millisecond before a
        multiple of the interval, since 1970."""
        passed = max(context.watermark + 1, 0)
        return passed - passed % self._every + self._every - 1

    def _is_tick(self, at: int) -> bool:
        return self._every > 0 and at >= 0 and (at + 1) % self._every == 0
