"""An event loop in virtual time that runs inside another one, and only while it is told to.

A test drives it from a coroutine or a plain function of its own, in the same thread, by plain
calls: in between nothing in it happens, and its time stands still. So what the test does and what
the loop does never overlap, and objects may be shared between both.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from streamcp.errors import StreamcpError
from streamcp.testing.clock import ManualClock
from streamcp.testing.simulation.loop import SimulatedLoop, StepLimit, Style

T = TypeVar("T")

# So many callbacks without a rest are no work any more, but something that goes round in circles.
_LIMIT = 50_000
# Who waits for an end waits for so many callbacks at most, however much time passes in them.
_LONGEST_RUN = 1_000_000
# What one look at the monotonic clock costs: tasks that share the loop by measured time take turns.
_LOOK = 1e-6
# What it costs after so many at one moment: then a task has its turn for one look, so that also
# one that never waits is seen to go round in circles.
_MANY_LOOKS = 20_000
_LOOK_OF_MANY = 0.01
# Two times that are nearer than this are the same: sums of floats are not exact.
_SAME = 1e-9


class StandingClock(ManualClock):
    """Moved by `advance` only. Looks at `monotonic` cost a microsecond each, which shows nowhere
    but there: dates and timers are exact, and what is due by `monotonic` is never late."""

    __slots__ = ("_ahead", "_looks")

    def __init__(self, *, start_ms: int) -> None:
        super().__init__(start_ms=start_ms)
        self._ahead = 0.0
        self._looks = 0

    def monotonic(self) -> float:
        """Seconds since the start, and a little more with each look."""
        self._looks += 1
        self._ahead += _LOOK if self._looks < _MANY_LOOKS else _LOOK_OF_MANY
        return self.now + self._ahead

    def rest(self) -> None:
        """Everything waits: looks are counted anew."""
        self._looks = 0


class StandingLoop(SimulatedLoop):
    """Runs until everything waits, then stands still.

    `on_rest` is called when everything waits for time to pass, before it does: it may give the
    loop something to do, and then returns True. Calls in executors are made inline, at once."""

    def __init__(self, *, start_ms: int, seed: int = 0, style: Style = "asyncio") -> None:
        clock = self._standing = StandingClock(start_ms=start_ms)
        super().__init__(random.Random(seed), clock, style=style, thread_times=(0.0,))
        self.on_rest: Callable[[], bool] = lambda: False
        self._until = 0.0
        self._last_step = math.inf

    def advance(self, seconds: float) -> None:
        """Run what is ready now, then move time on by `seconds`, from timer to timer.

        Raises StreamcpError if at one moment there is no end of what is ready."""
        self._until, self._last_step = self.clock.now + seconds, math.inf
        with _aside(), self._explained():
            self.run_forever()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end; time moves on as it needs.

        Raises what it raises, WaitsForever if nothing would ever happen again, and StreamcpError
        if there is no end of what happens."""
        self._until, self._last_step = math.inf, self.steps + _LONGEST_RUN
        with _aside(), self._explained():
            return self.run_until_complete(main)

    def end(self) -> None:
        """Cancel what is left, and close the loop."""
        self._until = math.inf
        self.on_rest = lambda: False
        with _aside():
            self.close_all()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        self.limit = self.steps + _LIMIT
        try:
            yield
        except StepLimit as error:
            raise StreamcpError(
                f"the job does not come to rest ({error}): is there a loop whose records never "
                "leave it, a timer that sets itself again, or something that is tried for ever?"
            ) from error

    def _fire_timers(self, ready: Any) -> None:
        """As the simulated loop, but time moves on to `_until` only."""
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            due = self._next_timer()
            if due is None or due > self.clock.now + _SAME:
                self._standing.rest()
                self.limit = int(min(self.steps + _LIMIT, self._last_step))
                if self.on_rest():
                    return
                if self._until < math.inf and (due is None or due > self._until + _SAME):
                    self.clock.advance(max(0.0, self._until - self.clock.now))
                    self.stop()
                    return
        super()._fire_timers(ready)


@contextmanager
def _aside() -> Iterator[None]:
    """Leave the event loop and the task that run here, if any, so that another loop can run."""
    outer = asyncio._get_running_loop()
    if outer is None:
        yield
        return
    task = asyncio.current_task()
    if task is not None:
        asyncio.tasks._leave_task(outer, task)
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(outer)
        if task is not None:
            asyncio.tasks._enter_task(outer, task)
