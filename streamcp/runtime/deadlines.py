"""The timeouts of a pool's calls: one timer for all, since they all have the same length."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from streamcp.clock import Clock


class Timed(Protocol):
    """Whoever makes a call. `serial` changes when a call ends, so that an old deadline is told
    apart; `timed_out` is set when a call is interrupted."""

    serial: int
    timed_out: bool

    def interrupt(self) -> None:
        """End the call by a cancellation."""
        ...


class Deadlines:
    """Interrupts calls that take too long."""

    def __init__(self, timeout: float, clock: Clock) -> None:
        """Give each call `timeout` seconds."""
        self.timeout = timeout
        self._clock = clock
        self._deadlines: deque[tuple[float, Timed, int]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, worker: Timed) -> None:
        """The worker makes a call, beginning now."""
        deadline = self._clock.monotonic() + self.timeout
        self._deadlines.append((deadline, worker, worker.serial))
        if self._timer is None:
            self._set_timer()

    def _set_timer(self) -> None:
        """Wait for the earliest deadline of a call that still runs."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][1].serial != deadlines[0][2]:
            deadlines.popleft()
        if not deadlines:
            self._timer = None
            return
        delay = max(0.0, deadlines[0][0] - self._clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay, self._expire)

    def _expire(self) -> None:
        now = self._clock.monotonic()
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now:
            _, worker, serial = deadlines.popleft()
            if worker.serial == serial:
                worker.timed_out = True
                worker.interrupt()
        self._set_timer()

    def close(self) -> None:
        """End the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
