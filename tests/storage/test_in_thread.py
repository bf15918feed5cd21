"""Blocking calls of storage: cancelling loses none and leaves none half done."""

from __future__ import annotations

import asyncio
import threading

import pytest

from streamcp.storage.in_thread import in_thread


async def test_cancelled_before_it_began_call_is_made_all_the_same() -> None:
    calls: list[int] = []
    task = asyncio.ensure_future(in_thread(calls.append, 1))
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task

    assert calls == [1]


async def test_cancelled_in_the_middle_waits_for_the_end_of_the_call() -> None:
    started, go_on = threading.Event(), threading.Event()
    ended: list[int] = []

    def call() -> None:
        started.set()
        go_on.wait(timeout=30)
        ended.append(1)

    task = asyncio.ensure_future(in_thread(call))
    while not started.is_set():  # noqa: ASYNC110 - set by a thread
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)

    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [1]


async def test_error_of_the_call_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        await in_thread(divmod, 1, 0)
