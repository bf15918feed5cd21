"""Between a pool and its calls, where the step has limits: a call begins when they allow it.

Acts on what `throttle` decides: sets the timer that wakes the pool, lets a repeated attempt wait,
tells the breaker how calls ended. Only time and outcomes are known here, no results.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from streamcp.graph.logical import Node
from streamcp.observability import events
from streamcp.runtime.calling import describe
from streamcp.runtime.gateway import TaskContext
from streamcp.runtime.throttle import KeyFailed, StepLimits, Throttle, Waiting

_logger = logging.getLogger(__name__)


class LimitedCalls(Waiting, Protocol):
    """Calls, one of which may turn out not to be countable."""

    def failed(self, ticket: Any, error: Exception, attempts: int) -> None:
        """Take the failure of a call; raises where it fails the job."""
        ...


class Limited:
    """What a pool asks instead of its calls, one per pool; `wake` is called when calls may begin
    that could not before."""

    def __init__(
        self,
        calls: LimitedCalls,
        limits: StepLimits,
        context: TaskContext,
        node: Node,
        wake: Callable[[], None],
    ) -> None:
        self._calls = calls
        self._limits = limits
        self._throttle = Throttle(limits, calls, self._look)
        self._context = context
        self._clock = context.clock
        self._node = node
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._changed: list[asyncio.Future[None]] = []  # who waits for the breaker to change
        limits.on_change.append(self._look)

    # ---- first attempts

    def start(self) -> Any:
        """Take the next call that may be made now; IndexError if there is none."""
        while True:
            try:
                return self._throttle.start(self._clock.monotonic())
            except IndexError:
                self.wake_in_time()
                raise
            except KeyFailed as failed:
                self._calls.failed(failed.ticket, failed.error, 0)

    @property
    def waiting(self) -> int:
        """How many calls could be started now, at a guess; 0 if there is none."""
        at = self._throttle.ready_at()
        if at is None or at > self._clock.monotonic():
            return 0
        return max(1, self._calls.waiting)

    def wake_in_time(self) -> None:
        """Wake the pool when the next call may be made, if that is a matter of time."""
        at = self._throttle.ready_at()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at is not None:
            delay = at - self._clock.monotonic()
            if delay > 0:
                self._timer = asyncio.get_running_loop().call_later(delay, self._look)

    def _look(self) -> None:
        for future in self._changed:
            if not future.done():
                future.set_result(None)
        self._changed.clear()
        self._wake()

    def pause(self) -> None:
        """No call is started for a time: other subtasks are not to wait for this one's turn."""
        self._throttle.leave()

    # ---- further attempts

    async def wait_allowed(self, ticket: Any) -> None:
        """Wait until another attempt of a call may be made. Do not await before it `began`."""
        while True:
            await self._wait_breaker()
            now = self._clock.monotonic()
            at = self._throttle.again(ticket, now)
            if at > now:
                await asyncio.sleep(at - now)
            if self._limits.breaker_at() <= self._clock.monotonic():
                return

    async def _wait_breaker(self) -> None:
        while (wait := self._limits.breaker_at() - self._clock.monotonic()) > 0:
            if wait == float("inf"):
                future = asyncio.get_running_loop().create_future()
                self._changed.append(future)
                await future
            else:
                await asyncio.sleep(wait)

    # ---- outcomes

    def began(self) -> int:
        """An attempt is made; return the number by which its outcome is told."""
        breaker = self._limits.breaker
        return breaker.began() if breaker is not None else 0

    def ended(self, number: int, error: Exception | None) -> None:
        """An attempt has ended. An error that does not count is an answer of the service."""
        breaker = self._limits.breaker
        if breaker is None:
            return
        if error is not None and isinstance(error, self._limits.errors):
            changed = breaker.failed(number, self._clock.monotonic())
        else:
            changed = breaker.succeeded(number)
        if changed:
            self._tell(error)
            for look in self._limits.on_change:
                look()

    def _tell(self, error: Exception | None) -> None:
        now, step = self._clock.wall_ms(), self._node.label
        breaker = self._limits.breaker
        assert breaker is not None
        if error is None or not breaker.is_open:
            self._context.report(events.BreakerClosed(now, step))
            return
        pause = max(0.0, breaker.ready_at() - self._clock.monotonic())
        self._context.report(events.BreakerOpened(now, step, pause, describe(error)))
        _logger.warning(
            "step %r (%s): its calls are held back for %.3g s, too many have failed: %s",
            step,
            self._node.place,
            pause,
            describe(error),
        )

    def close(self) -> None:
        """End the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._throttle.leave()
        self._limits.on_change.remove(self._look)
