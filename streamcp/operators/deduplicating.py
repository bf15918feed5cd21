"""Deduplication: of the records of a key, the first one passes.

A plain object with the functions of a keyed `process` step; what it knows of a key is in the key's
state, which is forgotten by a timer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamcp.operators.windowing.machine import WindowContext


@dataclass(slots=True)
class Passed:
    """`until`: records of the key are duplicates before this time; None if none has passed."""

    until: int | None = None


class Deduplication:
    """Lets a record pass and none behind it, for `within` milliseconds from its timestamp."""

    __slots__ = ("_within",)

    def __init__(self, within: int | None) -> None:
        self._within = within

    def fn(self, record: Any, state: Passed, context: WindowContext) -> Sequence[Any]:
        """Emit the record unless it is a duplicate."""
        timestamp = context.timestamp
        if state.until is not None and (self._within is None or timestamp < state.until):
            return ()
        state.until = timestamp
        if self._within is not None:
            state.until += self._within
            context.set_timer(state.until)
        return (record,)

    def on_timer(self, at: int, state: Passed, context: WindowContext) -> Sequence[Any]:
        """Forget the key, unless another record has passed since the timer was set."""
        if state.until is not None and state.until <= at:
            context.clear_state()
        return ()
