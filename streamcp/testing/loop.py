"""An asyncio event loop in virtual time: waiting for a timer takes no time.

When no callback is ready and no thread works, the clock jumps to the next timer. A test that
would wait forever fails at once. It must not be used with sockets or child processes: while they
are slow, virtual time runs on.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from typing_extensions import TypeVarTuple, Unpack

from streamcp.testing.clock import ManualClock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# What one reading of the loop's own clock costs: small against every timer of a test, and enough
# for tasks that share the loop by measured time to take turns.
TICK = 1e-6


class WaitsForever(RuntimeError):
    """No callback is ready, no timer is set and no thread works: nothing will ever happen."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is that of `clock`.

    Threads of `anyio.to_thread` (with the default limiter) and of `run_in_executor` are waited for
    in real time, while virtual time stands still."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock if clock is not None else ManualClock(tick=TICK)
        self._executor_calls = 0
        self._limiter: anyio.CapacityLimiter | None = None
        super().__init__(_JumpingSelector(self))
        self._clock_resolution = 1e-9

    def time(self) -> float:
        """Virtual seconds since the start."""
        return self.clock.now

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run `func` in a thread; virtual time stands still until it has returned."""
        future = super().run_in_executor(executor, func, *args)
        self._executor_calls += 1
        future.add_done_callback(self._executor_call_done)
        return future

    def _executor_call_done(self, _: asyncio.Future[Any]) -> None:
        self._executor_calls -= 1

    async def shutdown_default_executor(self, *args: Any) -> None:
        """Wait for the threads of `run_in_executor`, in real time."""
        self._executor_calls += 1
        try:
            await super().shutdown_default_executor(*args)
        finally:
            self._executor_calls -= 1

    @property
    def threads_work(self) -> bool:
        """A thread works on something that will wake this loop."""
        anyio_calls = self._limiter.borrowed_tokens if self._limiter is not None else 0
        return self._executor_calls > 0 or anyio_calls > 0

    def knows_limiter(self) -> bool:
        """Say whether anyio's limiter is known; if not, a task asks for it in the next turn.

        Only a task may ask, and only it tells how many threads work for anyio."""
        if self._limiter is None:
            self.create_task(self._learn_limiter())
        return self._limiter is not None

    async def _learn_limiter(self) -> None:
        self._limiter = anyio.to_thread.current_default_thread_limiter()

    def waits_forever(self) -> WaitsForever:
        """Make the error that names the tasks which wait."""
        names = sorted(task.get_name() for task in asyncio.all_tasks(self))
        return WaitsForever(
            "no callback is ready, no timer is set and no thread works; these tasks wait: "
            + ", ".join(names)
        )


class _JumpingSelector(selectors.DefaultSelector):
    """Waits by moving the clock."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; move virtual time by `timeout` if nothing is."""
        ready = super().select(0)
        if ready or timeout == 0 or not self._loop.knows_limiter():
            return ready
        if self._loop.threads_work:
            return super().select(None)
        if timeout is None:
            raise self._loop.waits_forever()
        self._loop.clock.advance(timeout)
        return ready


def run_virtual(main: Coroutine[Any, Any, T], *, clock: ManualClock | None = None) -> T:
    """Run `main` to its end in a fresh loop in virtual time and asyncio's debug mode.

    Raises what `main` raises, and WaitsForever."""
    with asyncio.Runner(debug=True, loop_factory=lambda: VirtualTimeLoop(clock)) as runner:
        return runner.run(main)
