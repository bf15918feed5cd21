"""A clock that stands still until a test moves it.

It counts whole nanoseconds, so that a timer due "in 1.001 s" is due exactly then.
"""

from __future__ import annotations

_NANOSECONDS = 1_000_000_000


class ManualClock:
    """A `Clock` moved by `advance`.

    `start_ms` is the wall time at the start (milliseconds since the epoch). Every reading of
    `monotonic` moves the clock by `tick` seconds: work then seems to cost time, so that tasks that
    share an event loop by measured time go on taking turns."""

    __slots__ = ("_nanoseconds", "_start_ms", "_tick")

    def __init__(self, *, start_ms: int = 1_700_000_000_000, tick: float = 0.0) -> None:
        self._start_ms = start_ms
        self._tick = round(tick * _NANOSECONDS)
        self._nanoseconds = 0

    def __repr__(self) -> str:
        """Show the seconds since the start."""
        return f"ManualClock({self.now:g} s)"

    @property
    def now(self) -> float:
        """Seconds since the start, without a tick."""
        return self._nanoseconds / _NANOSECONDS

    def monotonic(self) -> float:
        """Seconds since the start; moves the clock by one tick."""
        self._nanoseconds += self._tick
        return self.now

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._start_ms + self._nanoseconds // 1_000_000

    def advance(self, seconds: float) -> None:
        """Move both times on by `seconds` (zero or more, rounded to nanoseconds)."""
        if seconds < 0:
            raise ValueError(f"a clock never goes back: advance({seconds})")
        self._nanoseconds += round(seconds * _NANOSECONDS)
