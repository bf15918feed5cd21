"""What a step with a broadcast input works with: its shared state, and the calls that change it.

An element of the broadcast input may change the broadcast state only (rule P17): every subtask
then has the same one after the same elements, whatever else it has worked on. The records of the
other input only read it; the loops over them are written by `fusing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from streamcp.runtime.calling import Push, Reporter, expanded
from streamcp.runtime.keyed_steps import StateEmitted, refuse_state
from streamcp.runtime.snapshots import CapturedSection
from streamcp.state.broadcast import BroadcastState


class BroadcastRun:
    """The broadcast side of one step. `state.value` is what its other side reads."""

    def __init__(
        self,
        state: BroadcastState,
        fn: Callable[..., Any],
        context: Sequence[Any],
        reporter: Reporter,
    ) -> None:
        """Change `state` by `fn(record, value, *context)`."""
        self.state = state
        self._fn = fn
        self._context = context
        self._reporter = reporter
        self._slices = 0

    def apply(self, record: Any) -> Sequence[Any]:
        """Let an element of the broadcast input change the state; return what is emitted.

        Where its failure does not fail the job it works on a copy: it must leave no trace."""
        state = self.state
        state.before_change()
        value = state.value if self._reporter.fails else state.copy()
        results = expanded(self._fn(record, value, *self._context))
        refuse_state(results, value)
        state.value = value
        return results

    def section(self) -> CapturedSection:
        """The state as it is now, as a part of a snapshot."""
        return CapturedSection("broadcast", self.state.step, [self.state.capture()], 1)

    def refuse_state(self, record: Any) -> None:
        """Fail the job: the broadcast state itself was emitted, which later elements change."""
        raise self._reporter.step_failed(record, StateEmitted())

    def reading(self, push: Push) -> Push:
        """Watch that `push`, the work of the records that may only read, changes nothing.

        The first slice is looked at, the second, the fourth, the eighth, …: seldom enough to cost
        nothing, often enough that a function which does it is found when it is tried out."""

        def watched(records: list[Any]) -> None:
            self._slices += 1
            if self._slices & (self._slices - 1):
                push(records)
                return
            self.state.capture().freeze()
            push(records)
            if not self.state.is_as_captured():
                raise self._reporter.step_failed(records[-1], BroadcastStateChanged())

        return watched


class BroadcastStateChanged(TypeError):
    """A function that may only read the broadcast state changed it."""

    def __init__(self) -> None:
        super().__init__(
            "this record or one before it changed the broadcast state, which would differ between "
            "subtasks then; only the function of the broadcast input may change it"
        )
