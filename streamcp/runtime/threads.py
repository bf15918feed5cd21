"""Plain functions that run in threads, as the calls of a coroutine step (rule P15).

A thread cannot be cancelled. A call that is given up (it took too long) goes on in its thread, and
whoever made it waits for that before the next one: there are never more threads than calls at once.
What it returns then is dropped. Knows no record, and no step but by name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from types import GeneratorType
from typing import Any

import anyio

from streamcp.operators.calls import OWN_CALL
from streamcp.runtime.calling import refuse_awaitable

_logger = logging.getLogger(__name__)

# Functions that have not returned when the job ends are waited for no longer than this (seconds).
CLOSING_TIME = 5.0


class Threads:
    """The threads of one subtask: `concurrency` of them, made when they are needed."""

    def __init__(self, concurrency: int, name: str) -> None:
        self._name = name
        self._executor = ThreadPoolExecutor(concurrency, thread_name_prefix=name)
        self._running: dict[asyncio.Task[Any], asyncio.Future[Any]] = {}

    def coroutine_of(self, fn: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """Make a coroutine function of a plain one. A generator is worked off in the thread.

        The function sees the context variables of its call."""

        def work(*arguments: Any) -> Any:
            OWN_CALL.set(None)  # ids are counted by the event loop's thread alone
            try:
                result = fn(*arguments)
                if result.__class__ is GeneratorType:
                    return list(result)
            except StopIteration as error:  # a future cannot hold it
                raise RuntimeError("it raised StopIteration") from error
            refuse_awaitable(result)
            return result

        async def call(*arguments: Any) -> Any:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None
            run = copy_context().run
            future = loop.run_in_executor(self._executor, run, work, *arguments)
            self._running[task] = future
            result = await asyncio.shield(future)
            del self._running[task]
            return result

        return call

    async def wait_returned(self) -> None:
        """Wait until the function that this task has called, and given up, has returned."""
        task = asyncio.current_task()
        assert task is not None
        future = self._running.pop(task, None)
        if future is not None and not future.done():
            await asyncio.wait([future])

    async def close(self) -> None:
        """Wait for the functions that have not returned, for a time; they cannot be ended."""
        running = [future for future in self._running.values() if not future.done()]
        self._running.clear()
        if running:
            with anyio.move_on_after(CLOSING_TIME, shield=True):
                await asyncio.wait(running)
        left = sum(not future.done() for future in running)
        if left:
            _logger.warning(
                "step %r: %s of its functions have not returned, and a thread cannot be ended; the "
                "process ends only after them",
                self._name,
                left,
            )
        self._executor.shutdown(wait=False, cancel_futures=True)
