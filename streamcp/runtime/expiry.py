"""When the state of a keyed step expires, and freeing what has.

A value is judged by the time of the call that would see it: by the clock of the machine, or in
event time by the watermark where the record stands, or by the time of the timer that fires. Memory
is freed in short runs between slices, as timers fire, and in event time behind them: an entry that
a timer up to the watermark has still to see is not swept before (rule P42).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from streamcp.clock import Clock
from streamcp.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from streamcp.operators.ttl import Ttl
from streamcp.runtime.event_time import EventTime
from streamcp.runtime.gateway import TaskContext
from streamcp.state.entries import EVENT, PROCESSING, Entry
from streamcp.state.expiring import ExpiringState

# Entries looked at in a run: some tens of microseconds.
MOST_IN_A_SWEEP: Final = 64
_AT_ONCE: Final = 0


class Expiry:
    """The expiry of the state of one step in one subtask; `state` is that state.

    `time` is the event time of the subtask, None if the clock of the machine counts."""

    def __init__(
        self,
        step: str,
        make: Callable[[], Any],
        ttl: Ttl,
        context: TaskContext,
        time: EventTime | None,
    ) -> None:
        self.time = time if ttl.in_event_time(timed=time is not None) else None
        self._clock: Clock = context.clock
        self._floors: Sequence[int] = [] if self.time is None else self.time.floors_of(step)
        self.state = ExpiringState(
            step,
            make,
            context.serializer,
            context.max_parallelism,
            life=ttl.milliseconds,
            clock=PROCESSING if self.time is None else EVENT,
            time_of=self._time_of,
            incremental=context.incremental,
        )

    def _time_of(self, group: int) -> float:
        """The end of the input makes timers due, but no time passes by it."""
        if self.time is None:
            return float(self._clock.wall_ms())
        floor = self._floors[group]
        return floor if floor < MAX_TIMESTAMP else MIN_TIMESTAMP

    def moment(self, entry: Entry, at: int) -> float:
        """When a call for an entry takes place: in event time at the time of its record or timer,
        `at`, if the watermark is not further; else now."""
        now = self._time_of(entry.group)
        return now if self.time is None else max(now, at)

    def before(self, entry: Entry, now: float) -> None:
        """A call is about to see the value of an entry: it must not have expired."""
        if self.state.has_expired(entry, now):
            self.state.renew(entry)

    # ---- freeing

    def next_sweep(self) -> int | None:
        """When there may be something to free, by the machine's clock; None if nothing tells."""
        look = self.state.index.next_look
        if self.time is None or look is None:
            return look
        reached = self.time.watermark
        return _AT_ONCE if look <= reached < MAX_TIMESTAMP else None

    def sweep(self) -> bool:
        """Free a little; False if there is nothing to look at now."""
        if self.time is None:
            return self.state.sweep(self._clock.wall_ms(), MOST_IN_A_SWEEP)
        reached = self.time.watermark
        return reached < MAX_TIMESTAMP and self.state.sweep(reached, MOST_IN_A_SWEEP)
