"""What a keyed step works with: its state, the effects of its calls, and its timers.

The loop over the records is written by `fusing`; a coroutine step has a task of its own
(`keyed_async_subtask`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from streamcp.clock import Clock
from streamcp.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from streamcp.errors import DefinitionError, StrictFailed
from streamcp.graph.logical import Node
from streamcp.operators.calls import OwnCall
from streamcp.operators.context import KeyContext, TimerClock
from streamcp.operators.steps import End, Shortcuts
from streamcp.runtime.blocking import BlockingNotices
from streamcp.runtime.calling import Push, Reporter, expanded
from streamcp.runtime.event_time import EventTime
from streamcp.runtime.expiry import Expiry
from streamcp.runtime.meters import StepMeter
from streamcp.serialization.immutable import is_deeply_immutable
from streamcp.state.entries import EVENT, PROCESSING, Entry
from streamcp.state.keyed import KeyedState

Key = Callable[[Any], Any]

# How long timers fire in a row, in seconds, and how many.
LONGEST_RUN = 0.001
MOST_IN_A_RUN = 64

Asked: TypeAlias = tuple[bool, Sequence[tuple[int, TimerClock, bool]], Sequence[tuple[str, Any]]]
"""What a call has asked for: whether to clear the state, timers (at, clock, set or deleted), and
values for side outputs."""

NOTHING: Any = object()
"""The value of a key that has not had a record."""


class Effects:
    """What one call of a keyed function asks for; applied when the call's effects commit.

    `clock` is that of timers that do not name one. `sides` are (output, value)."""

    __slots__ = (
        "_own_call",
        "_timers",
        "cleared",
        "clock",
        "ended",
        "may_set_timers",
        "now",
        "sides",
        "used",
    )

    def __init__(
        self,
        *,
        may_set_timers: bool,
        now: Callable[[], int],
        timed: bool = False,
        own_call: OwnCall | None = None,
    ) -> None:
        self._own_call = own_call
        self.cleared = False
        self.ended = False
        self.used = False
        self.may_set_timers = may_set_timers
        self.clock: TimerClock = "event" if timed else "processing"
        self.now = now
        self.sides: list[tuple[str, Any]] = []
        self._timers: list[tuple[int, TimerClock, bool]] = []  # at, clock, set or deleted

    def set_timer(self, at: int, clock: TimerClock, /) -> None:
        """Remember a timer."""
        if self.ended or clock != self.clock or not self.may_set_timers:
            self._check_timer(clock)
            self._refuse_without_function()
        self.used = True
        self._timers.append((at, clock, True))

    def delete_timer(self, at: int, clock: TimerClock, /) -> None:
        """Remember that a timer is to be forgotten."""
        self._check_timer(clock)
        self.used = True
        self._timers.append((at, clock, False))

    def _refuse_without_function(self) -> None:
        if not self.may_set_timers:
            raise DefinitionError(
                "set_timer() needs a function to call: give the step on_timer=..."
            )

    def _check_timer(self, clock: TimerClock) -> None:
        self._refuse_if_ended()
        if clock != self.clock and clock == "event":
            raise DefinitionError(
                "an event-time timer needs watermarks: give the source "
                'watermarks=sc.Watermarks(...), or write clock="processing"'
            )

    def emit(self, output: str, value: Any, /) -> None:
        """Remember a value for a side output."""
        self._refuse_if_ended()
        self.used = True
        self.sides.append((output, value))

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
        self._timers.clear()

    def commit(self, state: KeyedState, entry: Entry, *, time_is_over: bool = False) -> None:
        """Apply everything to an entry; what goes to side outputs is left to the caller.

        With `time_is_over` no event-time timer is set: there is no watermark that it could wait
        for, and one that sets the next would go on for ever."""
        if self.cleared:
            state.remove(entry.key)
            if self._timers:
                entry = state[entry.key]
        for at, clock, is_set in self._timers:
            place = EVENT if clock == "event" else PROCESSING
            if not is_set:
                state.timer_done(entry, at, place)
            elif not (time_is_over and place == EVENT):
                state.set_timer(entry, at, place)
        self._timers.clear()
        self.used = self.cleared = False

    def asked(self) -> Asked:
        """What was asked for, as plain values."""
        return self.cleared, list(self._timers), list(self.sides)

    def ask_again(self, asked: Asked) -> None:
        """Ask for what another call has asked for."""
        self.cleared, timers, sides = asked
        self._timers, self.sides = list(timers), list(sides)

    def drop(self) -> None:
        """Forget everything: the call has failed, or its effects are applied."""
        self.used = self.cleared = False
        self._timers.clear()
        self.sides.clear()


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
    `emit(records)` takes what `on_timer` returns, `side(output, records)` what goes to a side
    output. `time` is the event time of the subtask, if there is one; `expiry` that of the state."""

    def __init__(
        self,
        keys: Sequence[Key],
        state: KeyedState,
        emit: Push,
        reporter: Reporter,
        meter: StepMeter,
        clock: Clock,
        time: EventTime | None = None,
        side: Callable[[str, list[Any]], None] | None = None,
        expiry: Expiry | None = None,
    ) -> None:
        self.keys = keys
        self.state = state
        self.calls: Sequence[Callable[..., Any]] = ()
        self.now = clock.wall_ms
        self._monotonic = clock.monotonic
        self.time = time
        self.expiry = expiry
        self.effects = Effects(may_set_timers=False, now=self.now, timed=time is not None)
        self.context: KeyContext[Any] = KeyContext(None, 0, self.effects)
        # Timers that timers set come to an end by themselves, also when the input has ended.
        self.finite_timers = False
        # What the functions return are pairs of value and timestamp.
        self.stamped = False
        self.shortcuts: Shortcuts | None = None
        self._on_timer: Callable[..., Any] | None = None
        self._measured = False
        self._emit = emit
        self._side = side
        self._reporter = reporter
        self._meter = meter

    def process(
        self,
        functions: Sequence[Callable[..., Any]],
        on_timer: Callable[..., Any] | None,
    ) -> None:
        """Make it a `process` step: a `fn(record, state, context)` per input, and
        `on_timer(timestamp, state, context)`."""
        if self._reporter.fails:
            self.calls = functions
        else:
            self.calls = [self._on_copy(fn) for fn in functions]
        self.effects.may_set_timers = on_timer is not None
        self._on_timer = on_timer

    @property
    def has_timers(self) -> bool:
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

    def commit(self, entry: Entry, timestamp: int | None, *, time_is_over: bool = False) -> None:
        """Apply what a call asked for; its side outputs get `timestamp`, if they are timed."""
        effects = self.effects
        effects.commit(self.state, entry, time_is_over=time_is_over)
        if effects.sides:
            sides, effects.sides = effects.sides, []
            for output, value in sides:
                assert self._side is not None
                self._side(output, [value if timestamp is None else (value, timestamp)])

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
            context, time = self.context, self.time
            context.timestamp = now
            if time is not None:
                context.watermark = time.floors_of(self.state.step)[popped[1].group]
            at = None if time is None else time.earliest
            emitted = self._fired(*popped, PROCESSING, at)
            if emitted:
                self._emit(list(emitted))
        return True

    def fire_event_timers(self, watermark: int, most: int) -> bool:
        """Call `on_timer` for the earliest timers up to `watermark`; False if there is none.

        Not for more than `most`, nor after so many values, nor for long: a run of timers is like a
        slice of records. What is done between two runs costs more than most timers."""
        context, monotonic = self.context, self._monotonic
        emitted: list[Any] = []
        end = None if self.shortcuts is None or self._measured else self.shortcuts.end
        fired, started = 0, monotonic()
        for fired in range(1, min(most, MOST_IN_A_RUN) + 1):
            due = self.state.pop_due(watermark, EVENT)
            if due is None:
                fired -= 1
                break
            timestamp, entry = due
            if end is None or not self._ended(end, timestamp, entry, emitted):
                context.timestamp, context.watermark = timestamp, watermark
                emitted += self._fired(timestamp, entry, EVENT, timestamp)
            if len(emitted) >= most or monotonic() - started > LONGEST_RUN:
                break
        if emitted:
            self._emit(emitted)
        return fired > 0

    def _ended(self, end: End, timestamp: int, entry: Entry, emitted: list[Any]) -> bool:
        """Take the shortcut for a timer; False if there is none."""
        state = self.state
        if entry.epoch != state.epoch:
            state.preserve(entry)
        try:
            ended = end(timestamp, entry.key, entry.value)
        except Exception as error:  # whatever a user's function raises
            raise self._timer_failed(timestamp, entry, error) from error
        if ended is None:
            return False
        result, is_empty, following = ended
        if is_empty:
            state.remove(entry.key)
        else:
            state.timer_done(entry, timestamp, EVENT)
            if following is not None:
                state.set_timer(entry, following, EVENT)
        self._meter.records_out += 1
        emitted.append((result, timestamp))
        return True

    def _timer_failed(self, timestamp: int, entry: Entry, error: Exception) -> Exception:
        """No record is at fault, so there is nothing to drop or divert."""
        return self._reporter.step_failed(f"timer {timestamp} of {entry.key!r}", error)

    def _fired(
        self, timestamp: int, entry: Entry, clock: int, emitted_at: int | None
    ) -> Sequence[Any]:
        """Call `on_timer`, and return what it gives as it is emitted."""
        state, context = self.state, self.context
        if entry.epoch != state.epoch:
            state.preserve(entry)
        assert self._on_timer is not None, "a timer is set only with on_timer"
        context.key = entry.key
        results: Sequence[Any] = ()
        expiry, moment = self.expiry, 0.0
        if expiry is not None:
            moment = expiry.moment(entry, timestamp if clock == EVENT else MIN_TIMESTAMP)
            expiry.before(entry, moment)
        try:
            returned = self._on_timer(timestamp, entry.value, context)
            if returned is not None:
                results = expanded(returned)
                refuse_state(results, entry.value)
        except StrictFailed:
            raise
        except Exception as error:  # whatever a user's function raises
            raise self._timer_failed(timestamp, entry, error) from error
        state.timer_done(entry, timestamp, clock)
        if expiry is not None:
            expiry.state.update(entry, moment)
        if self.effects.used:
            over = clock == EVENT and context.watermark == MAX_TIMESTAMP and not self.finite_timers
            self.commit(entry, emitted_at, time_is_over=over)
        if not results:
            return ()
        self._meter.records_out += len(results)
        if emitted_at is None or self.stamped:
            return results
        return [(value, emitted_at) for value in results]

    def _on_copy(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Where a failed record does not fail the job, a call that fails must leave no trace: it
        works on a copy, which becomes the state when the call has returned."""

        def call(record: Any, value: Any, *others: Any) -> Sequence[Any]:
            state = self.state
            entry = state[self.context.key]
            copy = state.private_copy(entry)
            results = expanded(fn(record, copy, *others))
            refuse_state(results, copy)
            state.replace(entry, copy)
            return results

        return call
