"""Knowing when an awaitable is about to wait, without disturbing it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from streamcp.runtime.stepping import Stepping
from tests.runtime.engine import settle


class Noted:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


async def at_once(value: int) -> int:
    return value


async def hops(count: int) -> int:
    for _ in range(count):
        await asyncio.sleep(0)
    return count


@pytest.mark.parametrize("waits", [0, 1, 5])
async def test_is_told_once_and_only_if_it_waits(waits: int) -> None:
    before_wait = Noted()
    assert await Stepping(hops(waits), before_wait) == waits
    assert before_wait.count == min(waits, 1)


async def test_error_passes_through_before_and_after_a_wait() -> None:
    async def fail(wait: bool) -> None:
        if wait:
            await asyncio.sleep(0)
        raise ValueError("failed")

    for wait in (False, True):
        with pytest.raises(ValueError, match="failed"):
            await Stepping(fail(wait), Noted())


async def test_cancellation_reaches_the_awaitable_where_it_waits() -> None:
    seen: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            seen.append("cancelled")
            await asyncio.sleep(0)
            seen.append("cleaned up")
            raise

    async def step() -> None:
        await Stepping(wait(), Noted())

    async with asyncio.TaskGroup() as group:
        task = group.create_task(step())
        await settle(3)
        task.cancel()
    assert seen == ["cancelled", "cleaned up"]


async def test_result_of_a_future_passes_through() -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, "result")
    assert await Stepping(future, Noted()) == "result"


async def test_generator_can_be_closed_after_what_came_before_its_wait_failed() -> None:
    closed: list[str] = []

    async def generator() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.sleep(100)
            yield 2
        finally:
            await asyncio.sleep(0)
            closed.append("closed")

    def fail() -> None:
        raise LookupError("before the wait")

    values = generator()
    assert await Stepping(values.__anext__(), fail) == 1
    with pytest.raises(LookupError, match="before the wait"):
        await Stepping(values.__anext__(), fail)
    assert closed == ["closed"]
    await values.aclose()  # type: ignore[attr-defined]
