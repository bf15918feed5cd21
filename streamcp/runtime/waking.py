"""How a task waits, and how tasks share the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from streamcp.clock import Clock
from streamcp.runtime.blocking import BLOCKING

# One turn of the event loop, shared by the tasks that are runnable: a barrier, a timer or a
# user's coroutine waits no longer than this for its turn.
TURN = 0.005
# Switching to another task costs about 2 µs: at this length of a share it disappears.
SHORTEST_SHARE = 0.0005


class Wakeup:
    """One task waits, others wake it. A wake-up that comes before the wait is not lost."""

    __slots__ = ("_set", "_waiter")

    def __init__(self) -> None:
        self._set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the task, now or at its next `wait`."""
        self._set = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def wait(self, timeout: float | None = None) -> None:
        """Wait for `set`, at most `timeout` seconds. May return early: look at the facts again."""
        if not self._set:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = None if timeout is None else loop.call_later(timeout, self.set)
            try:
                await self._waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        self._set = False


class Turns:
    """Ends the turn of a task that has worked long enough, so that the others get theirs.

    `held` is called when a turn has held the event loop; only for tasks that tell of every wait."""

    __slots__ = ("_clock", "_share", "_started", "held")

    def __init__(self, clock: Clock, tasks: int) -> None:
        """Divide the turn among `tasks`."""
        self._clock = clock
        self._share = max(SHORTEST_SHARE, TURN / max(1, tasks))
        self._started = clock.monotonic()
        self.held: Callable[[], None] | None = None

    @property
    def share(self) -> float:
        """Seconds that one task may work before it lets others run."""
        return self._share

    async def end_if_over(self, now: float) -> None:
        """Let other tasks run if this one's share is used up at `now`."""
        if now - self._started >= self._share:
            if now - self._started >= BLOCKING and self.held is not None:
                self.held()
            await asyncio.sleep(0)
            self._started = self._clock.monotonic()

    def begin(self, now: float) -> None:
        """A wait has ended at `now`: the share begins anew."""
        self._started = now


class SliceLength:
    """How many records one slice has: as many as fit into the share, by their measured cost."""

    __slots__ = ("_budget", "records")

    LONGEST = 8192

    def __init__(self, budget: float) -> None:
        """Aim at `budget` seconds per slice."""
        self._budget = budget
        self.records = 64

    def observe(self, records: int, seconds: float) -> None:
        """Adapt to the cost of a slice that has been worked off.

        It grows at most fourfold at once: one cheap slice says little about the next."""
        if records <= 0:
            return
        fitting = int(self._budget * records / seconds) if seconds > 0 else self.LONGEST
        self.records = max(1, min(fitting, self.records * 4, self.LONGEST))
