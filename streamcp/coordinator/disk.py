"""What the coordinator does on the disk, one thing after another, beside the running job."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from streamcp.storage.in_thread import in_thread


class DiskWork:
    """A queue for one background task. Completions go before everything that only tidies up."""

    def __init__(self) -> None:
        self._completions: deque[Callable[[], Awaitable[None]]] = deque()
        self._calls: deque[Callable[[], Any]] = deque()
        self._wakeup = asyncio.Event()

    def complete(self, completion: Callable[[], Awaitable[None]]) -> None:
        """Queue the completion of a checkpoint."""
        self._completions.append(completion)
        self._wakeup.set()

    def call(self, call: Callable[[], Any]) -> None:
        """Queue a call that blocks and never raises."""
        self._calls.append(call)
        self._wakeup.set()

    async def run(self) -> None:
        """Work until cancelled. Raises what a completion raises."""
        while True:
            while self._completions or self._calls:
                if self._completions:
                    await self._completions.popleft()()
                else:
                    await in_thread(self._tidy_up)
            self._wakeup.clear()
            await self._wakeup.wait()

    async def finish(self) -> None:
        """Make the calls that are left: the job has ended."""
        self._completions.clear()
        if self._calls:
            await in_thread(self._tidy_up)

    def _tidy_up(self) -> None:
        """Make the queued calls, until a completion waits: one way to the thread and back."""
        while self._calls and not self._completions:
            self._calls.popleft()()
