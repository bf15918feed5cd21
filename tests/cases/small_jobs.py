"""What the replayed reports share: a source of numbers, and the two ways in which a run ends
without having come to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import streamcp as sc
from streamcp.runners.handle import JobHandle
from tests.recovery.world import Target

Use = Callable[[JobHandle], Awaitable[None]]


@sc.source
async def numbers(
    position: int = 0, *, count: int, pause: float = 0.0, open_end: bool = False
) -> AsyncIterator[tuple[int, int]]:
    """Count; with `open_end` more may always come, and never does."""
    for i in range(position, count):
        if pause:
            await asyncio.sleep(pause)
        yield i, i + 1
    if open_end:
        await asyncio.sleep(1e6)


def killed_after(seconds: float, *, checkpoints: int = 1) -> Use:
    """Take checkpoints after a time, and kill the job behind them."""

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(seconds)
        for _ in range(checkpoints):
            await handle.checkpoint()
        raise asyncio.CancelledError

    return use


def first_values(target: Target, sink: str = "out") -> list[Any]:
    """The first value of each row that readers of committed data see, sorted."""
    return sorted(row[0] for row in target.records(sink))
