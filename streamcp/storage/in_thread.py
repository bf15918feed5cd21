"""Calling storage from the event loop: in a thread that gets its turns quickly.

A thread that returns from a system call must get the interpreter lock back, and a busy event loop
gives it up only once per switch interval, 5 ms by default: the dozen calls of one checkpoint took
a fifth of a second that way. While storage works, the interval is short.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

# A thread waits no longer than this for the lock; switching this often costs the loop nothing
# that could be measured.
QUICK = 0.0002


class _Switching:
    """The interval is short while at least one call is under way, then as it was before."""

    def __init__(self) -> None:
        self._calls = 0
        self._before = 0.0

    def __enter__(self) -> None:
        if self._calls == 0:
            self._before = sys.getswitchinterval()
            sys.setswitchinterval(min(QUICK, self._before))
        self._calls += 1

    def __exit__(self, *exc_info: object) -> None:
        self._calls -= 1
        if self._calls == 0:
            sys.setswitchinterval(self._before)


_switching = _Switching()


async def in_thread(call: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
    """Call something that blocks. Cancelling waits for its end: a half-done call has no owner,
    and one that had not yet begun is made all the same: nobody would know that it was not."""
    with _switching:
        calling = asyncio.get_running_loop().run_in_executor(None, call, *arguments)
        try:
            return await asyncio.shield(calling)
        except asyncio.CancelledError:
            await _wait_for_end(calling)
            raise


async def _wait_for_end(calling: asyncio.Future[Any]) -> None:
    """Wait, however often the waiting is cancelled; the outcome has no taker any more."""
    while not calling.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([calling])
    if not calling.cancelled():
        calling.exception()
