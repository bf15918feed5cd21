"""The only place that reads the time.

Everything that decides by time takes a `Clock`, so that tests move it by hand.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two kinds of time: one for durations, one for dates."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; may jump."""
        ...


class SystemClock:
    """The machine's clocks. `perf_counter`, since uvloop's own time moves in whole milliseconds."""

    __slots__ = ()

    monotonic = staticmethod(time.perf_counter)

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000
