"""What a keyed function is told and may ask for, beside its record and its state.

A context only checks and passes on: what becomes of a timer, and when, is decided by whoever
provides the `KeyEffects`. The function of a broadcast input has a
context of its own, with nothing in it that could change a key (rule P17).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any, Generic, Literal, Protocol, TypeAlias, overload

from typing_extensions import TypeVar

from streamcp.config import Duration, seconds
from streamcp.elements import MIN_TIMESTAMP
from streamcp.errors import SettingsError
from streamcp.operators.tags import Tag

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
S_co = TypeVar("S_co", covariant=True)

Timestamp: TypeAlias = int | datetime
"""Milliseconds since the epoch, or an aware `datetime`."""


TimerClock: TypeAlias = Literal["event", "processing"]
"""By which time a timer fires: that of the records, or that of the machine."""


class KeyEffects(Protocol):
    """Where the wishes of one call go; they take effect when the call's effects commit."""

    @property
    def clock(self) -> TimerClock:
        """The clock of timers that do not name one: event time on a stream with watermarks."""
        ...

    def now(self) -> int:
        """The processing time (milliseconds since the epoch)."""
        ...

    def set_timer(self, at: int, clock: TimerClock, /) -> None:
        """Call `on_timer` for the call's key at `at` (milliseconds since the epoch)."""
        ...

    def delete_timer(self, at: int, clock: TimerClock, /) -> None:
        """Forget a timer of the call's key, if there is one at `at`."""
        ...

    def emit(self, output: str, value: Any, /) -> None:
        """Emit a value on a side output."""
        ...

    def clear_state(self) -> None:
        """Forget the state and the timers of the call's key."""
        ...

    def call_id(self) -> str:
        """The id of the call; see `calls.call_id`."""
        ...


class KeyContext(Generic[K]):
    """The key that a call works for, and its timers.

    - `key`: the key of the record or of the timer.
    - `timestamp`: the time of the call, in milliseconds since the epoch. On a stream with
      watermarks it is the timestamp of the record, or the time of the timer; else the processing
      time at which the call began.
    - `watermark`: how far event time has come: a record whose timestamp is not greater is late.
      In `on_timer` of an event-time timer it is what made the timer due. Without watermarks it is
      the least there is, -2**63.

    A context belongs to its call: after the function has returned it must not be used.
    """

    __slots__ = ("_effects", "key", "timestamp", "watermark")

    key: K
    timestamp: int
    watermark: int

    def __init__(
        self, key: K, timestamp: int, effects: KeyEffects, watermark: int = MIN_TIMESTAMP
    ) -> None:
        self.key = key
        self.timestamp = timestamp
        self.watermark = watermark
        self._effects = effects

    @property
    def call_id(self) -> str:
        """The idempotency key of this call, the same text when it is made again; for coroutine
        functions. See `streamcp.call_id`."""
        return self._effects.call_id()

    @overload
    def set_timer(self, at: Timestamp, /, *, clock: TimerClock | None = None) -> None: ...
    @overload
    def set_timer(self, /, *, after: Duration, clock: TimerClock | None = None) -> None: ...
    def set_timer(
        self,
        at: Timestamp | None = None,
        /,
        *,
        after: Duration | None = None,
        clock: TimerClock | None = None,
    ) -> None:
        """Have `on_timer` called for this key at a time, or `after` a duration from `timestamp`.

        The time is event time on a stream with watermarks, and the timer fires when the watermark
        has reached it; else, and with `clock="processing"`, it is that of the machine, and `after`
        counts from now. A key has at most one timer per millisecond and clock: the same time twice
        is one timer. A time that has passed is due at once: in event time, with the next watermark.
        When the input has ended all event-time timers fire; one that `on_timer` sets then does not.
        Takes effect with the call: a call that fails sets no timer.

        Raises SettingsError for a float, a naive datetime, a bare number as duration, and unless
        exactly one of both is given; DefinitionError without an `on_timer`, and for
        `clock="event"` on a stream without watermarks."""
        effects = self._effects
        clock = clock or effects.clock
        if at.__class__ is int and after is None:  # the usual one first
            effects.set_timer(at, clock)
            return
        if (at is None) == (after is None):
            raise SettingsError('set_timer() takes one of a time and after=, e.g. after="30s"')
        if after is None:
            effects.set_timer(milliseconds(at, setting="set_timer(at)"), clock)
            return
        start = self.timestamp if clock == effects.clock else effects.now()
        effects.set_timer(start + _duration_ms(after), clock)

    def delete_timer(self, at: Timestamp, /, *, clock: TimerClock | None = None) -> None:
        """Forget the timer of this key at a time, if there is one; `clock` as in `set_timer`.

        Takes effect with the call. Raises SettingsError for a float and a naive datetime."""
        at = milliseconds(at, setting="delete_timer(at)")
        self._effects.delete_timer(at, clock or self._effects.clock)

    def emit_to(self, tag: Tag[T], value: T, /) -> None:
        """Emit a record on a side output, which `step.side(tag)` reads.

        Takes effect with the call: a call that fails emits nothing."""
        self._effects.emit(tag.output, value)

    def clear_state(self) -> None:
        """Forget this key's state and its timers; the key's next record finds a fresh state.

        Takes effect with the call; changes that the call made to the state are dropped too."""
        self._effects.clear_state()


class BroadcastContext(Generic[K, S_co]):
    """What the function of a broadcast input may look at, beside its record and its state."""

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[], Iterator[tuple[K, S_co]]]) -> None:
        self._read = read

    def states(self) -> Iterator[tuple[K, S_co]]:
        """Give each key of this subtask with a copy of its state, in no particular order.

        What is done to a copy is lost: a broadcast element changes the broadcast state only, and
        what it makes of that must be the same on all subtasks, whatever keys they have."""
        return self._read()


def milliseconds(timestamp: object, *, setting: str) -> int:
    """Convert a timestamp to milliseconds since the epoch; `setting` names it in the error.

    Raises SettingsError for what is not an int or an aware datetime."""
    if isinstance(timestamp, int) and not isinstance(timestamp, bool):
        return timestamp
    if isinstance(timestamp, datetime) and timestamp.tzinfo is not None:
        return round(timestamp.timestamp() * 1000)
    remedy = "write an int (milliseconds since the epoch) or an aware datetime"
    if isinstance(timestamp, float):
        remedy = "in seconds? write round(ts * 1000)"
    elif isinstance(timestamp, datetime):
        remedy = "it is naive: of which time zone? write one with tzinfo, e.g. datetime.now(UTC)"
    raise SettingsError(f"{setting}={timestamp!r} is not a timestamp; {remedy}")


# Called per record with the same few texts: the cache is a tenth of the parsing.
@lru_cache(maxsize=256)
def _duration_ms(after: Duration) -> int:
    return round(seconds(after, setting="set_timer(after)") * 1000)
