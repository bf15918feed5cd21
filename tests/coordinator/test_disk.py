"""The coordinator's queue for the disk."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

from streamcp.coordinator.disk import DiskWork


async def test_calls_that_wait_are_made_in_one_thread_and_completions_go_first() -> None:
    work, made = DiskWork(), []
    ended = asyncio.Event()

    def call(name: str) -> None:
        made.append((name, threading.current_thread().name))
        if name == "second":
            work.complete(complete)

    async def complete() -> None:
        made.append(("complete", "loop"))
        work.call(partial(call, "fourth"))
        ended.set()

    for name in ("first", "second", "third"):
        work.call(partial(call, name))
    running = asyncio.ensure_future(work.run())
    await ended.wait()
    running.cancel()
    await asyncio.wait([running])
    await work.finish()
    assert [name for name, _ in made] == ["first", "second", "complete", "third", "fourth"]
    assert made[0][1] == made[1][1] != threading.current_thread().name
