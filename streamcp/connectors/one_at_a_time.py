"""Blocking calls on one object, in a thread, one at a time.

Whoever waits for a call may be cancelled; the thread cannot. So the next call waits until the
last one has really ended, and clean-up comes after it. Knows nothing of what is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

A = ParamSpec("A")
R = TypeVar("R")


class OneAtATime:
    """Runs blocking calls in the event loop's thread pool, never two of them at once."""

    def __init__(self) -> None:
        self._running: asyncio.Future[Any] | None = None

    async def run(self, call: Callable[A, R], /, *args: A.args, **kwargs: A.kwargs) -> R:
        """Call in a thread and return what it returns, or raise what it raises.

        Cancelled, it returns at once and the result is lost; the call itself goes on to its end."""
        await self.wait_idle()
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(None, partial(call, *args, **kwargs))
        running.add_done_callback(_seen)
        self._running = running
        # Shielded: cancelling the future itself would make an unfinished call look finished.
        return await asyncio.shield(running)

    async def wait_idle(self) -> None:
        """Return when no call is running."""
        while (running := self._unfinished()) is not None:
            await asyncio.wait([running])

    def run_last(self, call: Callable[[], object]) -> None:
        """Call as soon as no other call is running: now, or when it ends."""
        if (running := self._unfinished()) is None:
            call()
        else:
            running.add_done_callback(lambda _: call())

    def _unfinished(self) -> asyncio.Future[Any] | None:
        return None if self._running is None or self._running.done() else self._running


def _seen(done: asyncio.Future[Any]) -> None:
    """An error whose waiter was cancelled is nobody's: asyncio must not report it as forgotten."""
    if not done.cancelled():
        done.exception()
