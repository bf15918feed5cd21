"""`executor="thread"`: calls in threads of this process (see `executing`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from streamcp.runtime.executing import Begin, Executing, worked_off


class Threads(Executing):
    """Threads are made when they are needed. A function sees the context variables of its call."""

    def _new_executor(self) -> Executor:
        return ThreadPoolExecutor(self._concurrency, thread_name_prefix=self._name)

    def _begin(self, fn: Callable[..., Any]) -> Begin:
        def begin(*arguments: Any) -> asyncio.Future[Any]:
            loop, run = asyncio.get_running_loop(), copy_context().run
            return loop.run_in_executor(self._executor, run, worked_off, fn, arguments)

        return begin
