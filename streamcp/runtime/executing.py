"""Plain functions that run beside the event loop, as the calls of a coroutine step (rule P15).

What runs in a thread or a process cannot be cancelled. A call that is given up (it took too long)
goes on there, and whoever made it waits for that before the next one: there are never more of them
than calls at once. What it returns then is dropped. Knows no record, and no step but by name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import BrokenExecutor, Executor
from types import GeneratorType
from typing import Any, TypeAlias

import anyio

from streamcp.operators.calls import OWN_CALL
from streamcp.runtime.calling import refuse_awaitable

_logger = logging.getLogger(__name__)

# Functions that have not returned when the job ends are waited for no longer than this (seconds).
CLOSING_TIME = 5.0

Begin: TypeAlias = Callable[..., "asyncio.Future[Any]"]
"""Begins a call with arguments."""


def worked_off(fn: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call a function where it runs; a generator is worked off there."""
    OWN_CALL.set(None)  # ids are counted by the event loop's thread alone
    try:
        result = fn(*arguments)
        if result.__class__ is GeneratorType:
            return list(result)
    except StopIteration as error:  # a future cannot hold it
        raise RuntimeError("it raised StopIteration") from error
    refuse_awaitable(result)
    return result


class Executing:
    """The calls of one subtask, in an executor with room for all that are made at once."""

    def __init__(self, concurrency: int, name: str) -> None:
        self._concurrency = concurrency
        self._name = name
        self._executor = self._new_executor()
        self._running: dict[asyncio.Task[Any], asyncio.Future[Any]] = {}

    def _new_executor(self) -> Executor:
        raise NotImplementedError

    def _begin(self, fn: Callable[..., Any]) -> Begin:
        """Make what begins a call of `fn`."""
        raise NotImplementedError

    def coroutine_of(self, fn: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """Make a coroutine function of a plain one."""
        begin = self._begin(fn)

        async def call(*arguments: Any) -> Any:
            task, executor = asyncio.current_task(), self._executor
            assert task is not None
            try:
                self._running[task] = future = begin(*arguments)
                result = await asyncio.shield(future)
            except BrokenExecutor as error:
                if self._executor is executor:
                    self._executor = self._new_executor()
                raise RuntimeError(
                    "a process of its executor has ended, killed or out of memory; the calls that "
                    "it and the others were at are lost"
                ) from error
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
            self._leave(left)
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _leave(self, left: int) -> None:
        """Functions that have not returned are left behind."""
        _logger.warning(
            "step %r: %s of its functions have not returned, and cannot be ended; the process ends "
            "only after them",
            self._name,
            left,
        )
