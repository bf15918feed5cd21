"""The fused keyed steps: a plain loop over a batch, with one look-up of the state per record.

Before the first change of an entry after a snapshot, the entry is preserved (copy on consume).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from streamcp.clock import Clock
from streamcp.errors import DefinitionError
from streamcp.operators.context import KeyContext
from streamcp.runtime.calling import Push, Reporter, expanded
from streamcp.runtime.meters import StepMeter
from streamcp.serialization.immutable import is_deeply_immutable
from streamcp.serialization.serializer import Serializer
from streamcp.state.keyed import Entry, KeyedState

Key = Callable[[Any], Any]

NOTHING: Any = object()
"""The value of a key that has not had a record."""


class KeyedRun(Protocol):
    """A keyed step of a chain."""

    @property
    def state(self) -> KeyedState:
        """Its entries."""
        ...

    @property
    def timed(self) -> bool:
        """It may set timers."""
        ...

    def push(self, records: list[Any]) -> None:
        """Work on a batch."""
        ...

    def fire_timers(self) -> bool:
        """Call `on_timer` for a timer that is due; False if none is."""
        ...


class _Untimed:
    """A keyed step without timers."""

    __slots__ = ("_emit", "_key", "_meter", "_reporter", "state")

    def __init__(
        self, state: KeyedState, key: Key, emit: Push, reporter: Reporter, meter: StepMeter
    ) -> None:
        self.state = state
        self._key = key
        self._emit = emit
        self._reporter = reporter
        self._meter = meter

    @property
    def timed(self) -> bool:
        """It cannot set timers."""
        return False

    def fire_timers(self) -> bool:
        """There are none."""
        return False

    def _send(self, records: list[Any], results: list[Any]) -> None:
        self._meter.records_in += len(records)
        self._meter.records_out += len(results)
        if results:
            self._emit(results)


class CountRun(_Untimed):
    """Emits (key, records so far)."""

    __slots__ = ()

    def push(self, records: list[Any]) -> None:
        """Work on a batch."""
        state = self.state
        epoch = state.epoch
        results: list[Any] = []
        add = results.append
        for key in map(self._key, records):
            entry = state[key]
            if entry.epoch != epoch:
                state.preserve(entry)
            entry.value = count = entry.value + 1
            add((key, count))
        self._send(records, results)


class ScanRun(_Untimed):
    """Emits each new value of `fn(value, record)`; `reduce` is a scan that begins with nothing."""

    __slots__ = ("_fn",)

    def __init__(
        self,
        fn: Callable[[Any, Any], Any],
        state: KeyedState,
        key: Key,
        emit: Push,
        reporter: Reporter,
        meter: StepMeter,
    ) -> None:
        super().__init__(state, key, emit, reporter, meter)
        self._fn = fn

    def push(self, records: list[Any]) -> None:
        """Work on a batch."""
        state, fn = self.state, self._fn
        epoch = state.epoch
        results: list[Any] = []
        add = results.append
        for key, record in zip(map(self._key, records), records, strict=True):
            entry = state[key]
            if entry.epoch != epoch:
                state.preserve(entry)
            value = entry.value
            if value is NOTHING:
                value = record
            else:
                try:
                    value = fn(value, record)
                    if value is entry.value and not is_deeply_immutable(value):
                        raise StateEmitted
                except Exception as error:  # whatever a user's function raises
                    raise self._reporter.step_failed(record, error) from error
            entry.value = value
            add(value)
        self._send(records, results)


class Effects:
    """What one call of a keyed function asks for; applied when the call's effects commit."""

    __slots__ = ("cleared", "ended", "may_set_timers", "timers")

    def __init__(self, *, may_set_timers: bool) -> None:
        self.cleared = False
        self.ended = False
        self.may_set_timers = may_set_timers
        self.timers: list[int] = []

    def set_timer(self, at: int, /) -> None:
        """Remember a timer."""
        self._refuse_if_ended()
        if not self.may_set_timers:
            raise DefinitionError(
                "set_timer() needs a function to call: give the step on_timer=..."
            )
        self.timers.append(at)

    def _refuse_if_ended(self) -> None:
        if self.ended:
            raise RuntimeError(
                "this call has ended (it returned, failed or timed out); its context can no "
                "longer be used"
            )

    def clear_state(self) -> None:
        """Forget the state, and the timers set before in this call."""
        self._refuse_if_ended()
        self.cleared = True
        self.timers.clear()

    def commit(self, state: KeyedState, entry: Entry) -> None:
        """Apply everything to an entry."""
        if self.cleared:
            state.remove(entry.key)
            self.cleared = False
            if self.timers:
                entry = state[entry.key]
        for at in self.timers:
            state.set_timer(entry, at)
        self.timers.clear()

    def drop(self) -> None:
        """The call has failed: nothing takes effect."""
        self.cleared = False
        self.timers.clear()


class StateEmitted(TypeError):
    """A function returned its state object itself."""

    def __init__(self) -> None:
        super().__init__(
            "it returned its state object itself, which later records change; return a copy "
            "(dataclasses.replace(state)) or the values of interest"
        )


def refuse_state(results: list[Any], value: Any) -> None:
    """Raise if the state object itself is among the results: batched it would show later values."""
    for result in results:
        if result is value:
            raise StateEmitted


class ProcessRun:
    """Calls `fn(record, state, context)` and `on_timer(timestamp, state, context)`."""

    def __init__(
        self,
        fn: Callable[[Any, Any, KeyContext[Any]], Any],
        on_timer: Callable[[int, Any, KeyContext[Any]], Any] | None,
        state: KeyedState,
        key: Key,
        emit: Push,
        reporter: Reporter,
        meter: StepMeter,
        clock: Clock,
        serializer: Serializer,
    ) -> None:
        self.state = state
        self._fn = fn
        self._on_timer = on_timer
        self._key = key
        self._emit = emit
        self._reporter = reporter
        self._meter = meter
        self._clock = clock
        self._serializer = serializer
        self._effects = Effects(may_set_timers=on_timer is not None)
        self._context: KeyContext[Any] = KeyContext(None, 0, self._effects)
        if not reporter.fails:
            self._fn = self._on_copy(fn)

    def push(self, records: list[Any]) -> None:
        """Work on a batch."""
        state, fn, context, effects = self.state, self._fn, self._context, self._effects
        context.timestamp = self._clock.wall_ms()
        results: list[Any] = []
        for key, record in zip(map(self._key, records), records, strict=True):
            entry = state[key]
            if entry.epoch != state.epoch:
                state.preserve(entry)
            context.key = key
            value = entry.value
            try:
                result = fn(record, value, context)
                if result is not None:
                    if result.__class__ is not list:
                        result = expanded(result)
                    for one in result:
                        if one is value:
                            raise StateEmitted
                    results += result
            except Exception as error:  # whatever a user's function raises
                effects.drop()
                self._reporter.report(record, error)
                continue
            if effects.timers or effects.cleared:
                effects.commit(state, entry)
        self._meter.records_in += len(records)
        self._meter.records_out += len(results)
        if results:
            self._emit(results)

    @property
    def timed(self) -> bool:
        """It may set timers."""
        return self._on_timer is not None

    def fire_timers(self) -> bool:
        """Call `on_timer` for one timer that is due, in time order (rule P43)."""
        due = self.state.next_timer()
        if due is None:
            return False
        now = self._clock.wall_ms()
        if due > now:
            return False
        popped = self.state.pop_due(now)
        if popped is not None:
            self._fire(*popped)
        return True

    def _fire(self, timestamp: int, entry: Entry) -> None:
        state, context = self.state, self._context
        if entry.epoch != state.epoch:
            state.preserve(entry)
        assert self._on_timer is not None, "set_timer is refused without on_timer"
        context.key, context.timestamp = entry.key, self._clock.wall_ms()
        try:
            results = expanded(self._on_timer(timestamp, entry.value, context))
            refuse_state(results, entry.value)
        except Exception as error:  # whatever a user's function raises
            # No record is at fault, so there is nothing to drop or divert.
            raise self._reporter.step_failed(
                f"timer {timestamp} of {entry.key!r}", error
            ) from error
        state.timer_done(entry, timestamp)
        self._effects.commit(state, entry)
        if results:
            self._meter.records_out += len(results)
            self._emit(results)

    def _on_copy(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Where a failed record does not fail the job, a call that fails must leave no trace: it
        works on a copy, which becomes the state when the call has returned."""

        def call(record: Any, value: Any, context: KeyContext[Any]) -> list[Any]:
            copy = self._serializer.copy(value, step=self._reporter.label)
            results = expanded(fn(record, copy, context))
            refuse_state(results, copy)
            self.state[context.key].value = copy
            return results

        return call
