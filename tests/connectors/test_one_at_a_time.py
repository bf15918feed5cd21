from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from streamcp.connectors.one_at_a_time import OneAtATime


class Blocking:
    """A call that lasts until it is released, and notes when it began and ended."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.release = threading.Event()
        self.began = threading.Event()

    def __call__(self) -> str:
        self.log.append("began")
        self.began.set()
        assert self.release.wait(10)
        self.log.append("ended")
        return "result"


async def test_result_and_error_reach_the_caller() -> None:
    thread = OneAtATime()

    assert await thread.run(int, "7") == 7
    with pytest.raises(ValueError, match="seven"):
        await thread.run(int, "seven")
    assert await thread.run(int, "8") == 8


async def test_call_after_a_cancelled_one_waits_for_its_end() -> None:
    log: list[str] = []
    thread, blocking = OneAtATime(), Blocking(log)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(thread.run(blocking))
        await asyncio.to_thread(blocking.began.wait)
        first.cancel()
        second = group.create_task(thread.run(log.append, "second"))
        await asyncio.sleep(0)
        assert first.cancelled() or first.cancelling()
        assert not second.done()
        blocking.release.set()

    assert log == ["began", "ended", "second"]


async def test_run_last_comes_after_a_call_that_is_still_running() -> None:
    log: list[str] = []
    thread, blocking = OneAtATime(), Blocking(log)
    async with asyncio.TaskGroup() as group:
        group.create_task(thread.run(blocking)).cancel()
        running = group.create_task(thread.run(blocking))
        await asyncio.to_thread(blocking.began.wait)
        running.cancel()
        thread.run_last(lambda: log.append("last"))
        assert log == ["began"]
        blocking.release.set()
        await thread.wait_idle()

    assert log == ["began", "ended", "last"]


async def test_run_last_comes_at_once_when_nothing_runs() -> None:
    log: list[str] = []

    OneAtATime().run_last(lambda: log.append("last"))

    assert log == ["last"]


async def test_error_of_a_call_whose_waiter_was_cancelled_is_not_reported() -> None:
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reported.append(str(context))
    )
    thread, began, release = OneAtATime(), threading.Event(), threading.Event()

    def fail() -> None:
        began.set()
        assert release.wait(10)
        raise OSError("disk full")

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(thread.run(fail))
        await asyncio.to_thread(began.wait)
        waiting.cancel()
    release.set()
    await thread.wait_idle()
    del thread, waiting
    gc.collect()
    assert reported == []
