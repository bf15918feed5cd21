"""What a keyed step works with: its state, the effects of its calls, and its timers.

The loop over the records is written by `fusing`; a coroutine step has a task of its own
(`keyed_async_subtask`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from streamcp.clock import Clock
from streamcp.errors import DefinitionError
from streamcp.graph.logical import Node
from streamcp.operators.calls import OwnCall
from streamcp.operators.context import KeyContext
from streamcp.runtime.blocking import BlockingNotices
from streamcp.runtime.calling import Push, Reporter, expanded
from streamcp.runtime.meters import StepMeter
from streamcp.serialization.immutable import is_deeply_immutable
from streamcp.serialization.serializer import Serializer
from streamcp.state.entries import Entry
from streamcp.state.keyed import KeyedState

Key = Callable[[Any], Any]

NOTHING: Any = object()
"""The value of a key that has not had a record."""


class Effects:
    """What one call of a keyed function asks for; applied when the call's effects commit."""

    __slots__ = ("_own_call", "cleared", "ended", "may_set_timers", "timers", "used")

    def __init__(self, *, may_set_timers: bool, own_call: OwnCall | None = None) -> None:
        self._own_call = own_call
        self.cleared = False
        self.ended = False
        self.used = False
        self.may_set_timers = may_set_timers
        self.timers: list[int] = []

    def set_timer(self, at: int, /) -> None:
        """Remember a timer."""
        self._refuse_if_ended()
        if not self.may_set_timers:
            raise DefinitionError(
                "set_timer() needs a function to call: give the step on_timer=..."
            )
        self.used = True
        self.timers.append(at)

    def call_id(self) -> str:
        """The id of the call."""
        self._refuse_if_ended()
        if self._own_call is None:
            raise DefinitionError(
                "call_id is for coroutine functions: write the step's function with async def"
            )
        return self._own_call()

    def _refuse_if_ended(self) -> None:
        if self.ended:
            raise RuntimeError(
                "this call has ended (it returned, failed or timed out); its context can no "
                "longer be used"
            )

    def clear_state(self) -> None:
        """Forget the state, and the timers set before in this call."""
        self._refuse_if_ended()
        self.used = True
        self.cleared = True
        self.timers.clear()

    def commit(self, state: KeyedState, entry: Entry) -> None:
        """Apply everything to an entry."""
        if self.cleared:
            state.remove(entry.key)
            if self.timers:
                entry = state[entry.key]
        for at in self.timers:
            state.set_timer(entry, at)
        self.drop()

    def drop(self) -> None:
        """Forget everything: the call has failed, or its effects are applied."""
        self.used = self.cleared = False
        self.timers.clear()


class StateEmitted(TypeError):
    """A function returned its state object itself."""

    def __init__(self) -> None:
        super().__init__(
            "it returned its state object itself, which later records change; return a copy "
            "(dataclasses.replace(state)) or the values of interest"
        )


def refuse_state(results: Sequence[Any], value: Any) -> None:
    """Raise if the state object itself is among the results: batched it would show later values."""
    for result in results:
        if result is value:
            raise StateEmitted


def refuse_in_place(value: Any) -> None:
    """Raise if a `reduce` or `scan` function returned the old value, changed in place: what was
    emitted before would change with it."""
    if not is_deeply_immutable(value):
        raise TypeError(
            "it returned the old value itself, which could have been changed in place; return a "
            "new value, e.g. dataclasses.replace(value, ...) or value + [record]"
        )


class KeyedRun:
    """One keyed step of a chain. `keys` and `calls` have one function per input of the step;
    `emit` takes what `on_timer` returns."""

    def __init__(
        self,
        keys: Sequence[Key],
        state: KeyedState,
        emit: Push,
        reporter: Reporter,
        meter: StepMeter,
        clock: Clock,
    ) -> None:
        self.keys = keys
        self.state = state
        self.calls: Sequence[Callable[..., Any]] = ()
        self.effects = Effects(may_set_timers=False)
        self.context: KeyContext[Any] = KeyContext(None, 0, self.effects)
        self.now = clock.wall_ms
        self._on_timer: Callable[..., Any] | None = None
        self._measured = False
        self._emit = emit
        self._reporter = reporter
        self._meter = meter

    def process(
        self,
        functions: Sequence[Callable[..., Any]],
        on_timer: Callable[..., Any] | None,
        serializer: Serializer,
    ) -> None:
        """Make it a `process` step: a `fn(record, state, context)` per input, and
        `on_timer(timestamp, state, context)`."""
        if self._reporter.fails:
            self.calls = functions
        else:
            self.calls = [self._on_copy(fn, serializer) for fn in functions]
        self.effects.may_set_timers = on_timer is not None
        self._on_timer = on_timer

    @property
    def timed(self) -> bool:
        """It may set timers."""
        return self._on_timer is not None

    def measure_timers(self, node: Node, blocking: BlockingNotices) -> None:
        """Time each timer from now on: something has taken too long."""
        if self._on_timer is not None and not self._measured:
            self._measured = True
            self._on_timer = blocking.measured(node, self._on_timer, of="timer", many=True)

    def refuse_state(self, record: Any) -> None:
        """Fail the job: the state object itself was returned."""
        raise self._reporter.step_failed(record, StateEmitted())

    def fire_timers(self) -> bool:
        """Call `on_timer` for the earliest timer that is due; False if none is (rule P43)."""
        due = self.state.next_timer()
        if due is None:
            return False
        now = self.now()
        if due > now:
            return False
        popped = self.state.pop_due(now)
        if popped is not None:
            self._fire(*popped)
        return True

    def _fire(self, timestamp: int, entry: Entry) -> None:
        state, context = self.state, self.context
        if entry.epoch != state.epoch:
            state.preserve(entry)
        assert self._on_timer is not None, "a timer is set only with on_timer"
        context.key, context.timestamp = entry.key, self.now()
        try:
            results = expanded(self._on_timer(timestamp, entry.value, context))
            refuse_state(results, entry.value)
        except Exception as error:  # whatever a user's function raises
            # No record is at fault, so there is nothing to drop or divert.
            timer = f"timer {timestamp} of {entry.key!r}"
            raise self._reporter.step_failed(timer, error) from error
        state.timer_done(entry, timestamp)
        self.effects.commit(state, entry)
        if results:
            self._meter.records_out += len(results)
            self._emit(list(results))

    def _on_copy(self, fn: Callable[..., Any], serializer: Serializer) -> Callable[..., Any]:
        """Where a failed record does not fail the job, a call that fails must leave no trace: it
        works on a copy, which becomes the state when the call has returned."""

        def call(record: Any, value: Any, *others: Any) -> Sequence[Any]:
            copy = serializer.copy(value, step=self._reporter.label)
            results = expanded(fn(record, copy, *others))
            refuse_state(results, copy)
            self.state[self.context.key].value = copy
            return results

        return call
