"""Sessions: records of a key that follow one another by less than a gap.

A session is [start, end), its end one gap behind its last record; sessions of a key never overlap,
for a record that touches two makes one of them. So that this holds for those that were emitted
too, a key remembers the end of its last forgotten session, as long as it has others or a record
that reaches into it could pass for one in time: that one is late, never a part of the next session.

A session has one timer, set at what was its end then. When it fires and the session has grown,
it is set anew: a timer per gap, not per record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamcp.elements import MIN_TIMESTAMP
from streamcp.operators.aggregates import Aggregate
from streamcp.operators.steps import Shortcuts
from streamcp.operators.windowing.machine import WindowContext, WindowMachine
from streamcp.operators.windows import Emit, WindowResult


@dataclass(slots=True)
class OneSession:
    """A session; `closed`: its result was emitted; `changed`: since the last early results."""

    start: int
    end: int
    value: Any
    closed: bool = False
    changed: bool = False


@dataclass(slots=True)
class SessionState:
    """The sessions of a key, earliest first; `forgotten`: the end of the last one that is gone."""

    sessions: list[OneSession] = field(default_factory=list)
    forgotten: int = MIN_TIMESTAMP


class SessionMachine(WindowMachine):
    """Works sessions with a gap in milliseconds."""

    __slots__ = ("_gap", "fn", "state")

    def __init__(
        self, gap: int, aggregate: Aggregate[Any, Any], emit: Emit, lateness: int, late: Any
    ) -> None:
        super().__init__(aggregate, emit, lateness, late)
        self._gap = gap
        self.state, self.fn = SessionState, self._collect
        if emit.kind == "on_close" and not lateness:
            self.shortcuts = Shortcuts(self._adding())

    # ---- records

    def _adding(self) -> Callable[[Any, int, SessionState], bool]:
        """Add a record to the last session, if it lies in it: as most do."""
        add, gap = self._add, self._gap

        def add_quickly(record: Any, timestamp: int, state: SessionState) -> bool:
            if not state.sessions:
                return False
            session = state.sessions[-1]
            if not session.start <= timestamp < session.end:
                return False
            session.value = add(session.value, record, timestamp)
            end = timestamp + gap
            if end > session.end:
                session.end = end
            return True

        return add_quickly

    def _collect(
        self, record: Any, state: SessionState, context: WindowContext
    ) -> Sequence[WindowResult[Any, Any]]:
        timestamp = context.timestamp
        session = self._find(timestamp, state, context)
        if session is None:
            remembered = state.sessions or state.forgotten > MIN_TIMESTAMP
            return self._reject(record, context, keep=remembered)
        session.value = self._add(session.value, record, timestamp)
        if session.closed or self._each:
            return (self._result_of(session, context),)
        if self._every:
            if not any(other.changed for other in state.sessions):
                context.set_timer(self._next_tick(context))
            session.changed = True
        return ()

    def _find(
        self, timestamp: int, state: SessionState, context: WindowContext
    ) -> OneSession | None:
        """Return the session of a record, grown or made for it; None if it is too late."""
        end = timestamp + self._gap
        if timestamp < state.forgotten:
            return None
        touched = [s for s in state.sessions if s.start < end and timestamp < s.end]
        if touched:
            session = self._joined(touched, state)
            session.start = min(session.start, timestamp)
        elif end - 1 + self._lateness <= context.watermark:
            return None
        else:
            session = OneSession(timestamp, timestamp, self._create(), closed=True)
            state.sessions.append(session)
            state.sessions.sort(key=_start)
        if end > session.end:
            session.end = end
            if session.closed:  # an open one has a timer, which will see that it has grown
                self._watch(session, context)
        return session

    def _joined(self, touched: list[OneSession], state: SessionState) -> OneSession:
        """Make one of the sessions that a record touches: at most two, being apart."""
        session = touched[0]
        if len(touched) > 1:
            session.value = self._merged(other.value for other in touched)
            session.end = touched[-1].end
            session.closed = touched[-1].closed
            session.changed = any(other.changed for other in touched)
            for other in touched[1:]:
                state.sessions.remove(other)
        return session

    def _watch(self, session: OneSession, context: WindowContext) -> None:
        """Set the timer of a session that had none: open, or closed at once and to be forgotten."""
        close = session.end - 1
        session.closed = close <= context.watermark
        context.set_timer(close + self._lateness if session.closed else close)

    def _result_of(self, session: OneSession, context: WindowContext) -> WindowResult[Any, Any]:
        return self._value(context, session.start, session.end, session.value)

    # ---- timers

    @property
    def timer(self) -> Callable[[int, Any, WindowContext], Sequence[WindowResult[Any, Any]]]:
        """The timer function."""
        return self.on_timer

    def on_timer(
        self, at: int, state: SessionState, context: WindowContext
    ) -> list[WindowResult[Any, Any]]:
        """Close sessions, set the timers of those that have grown, forget those that closed long
        ago; emit early results."""
        results = []
        gone = 0
        for session in state.sessions:
            if not session.closed:
                if session.end - 1 > at:
                    context.set_timer(session.end - 1)
                    continue
                if not self._each:
                    results.append(self._result_of(session, context))
                session.closed, session.changed = True, False
                if self._lateness:
                    context.set_timer(session.end - 1 + self._lateness)
            if session.end - 1 + self._lateness <= at:
                gone += 1  # the earliest ones: they have the earliest ends
        if self._is_tick(at):
            results += self._early(state, context)
        if gone or not state.sessions:
            self._forget(gone, at, state, context)
        return results

    def _early(self, state: SessionState, context: WindowContext) -> list[WindowResult[Any, Any]]:
        changed = [session for session in state.sessions if session.changed]
        for session in changed:
            session.changed = False
        return [self._result_of(session, context) for session in changed]

    def _forget(self, gone: int, at: int, state: SessionState, context: WindowContext) -> None:
        """Forget the first sessions; and when none is left, that there were any, as soon as no
        record that reaches into the last of them passes for one in time."""
        if gone:
            state.forgotten = state.sessions[gone - 1].end
            del state.sessions[:gone]
        until = state.forgotten - 1 + self._lateness + self._gap - 1
        if until <= at and not state.sessions:
            context.clear_state()
        elif until > at and gone:
            context.set_timer(until)


def _start(session: OneSession) -> int:
    return session.start
