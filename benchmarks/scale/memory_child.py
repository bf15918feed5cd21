"""One process: `python -m benchmarks.scale.memory_child KIND COUNT` writes the bytes of one of
COUNT things of that kind (for channels: of an exchange between COUNT subtasks and as many)."""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import streamcp as sc
from benchmarks.scale.accounts import Account, Accounts, update
from benchmarks.scale.feed import Feed, counting_job
from streamcp.runners.local import run_blocking


def resident() -> int:
    """Bytes of this process that are in memory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


async def of_account(keys: int) -> float:
    """Keys of a job, each with a dataclass."""
    accounts = Accounts(keys, None)
    async with accounts.job.start():
        await accounts.feed.give(1)
        before = resident()
        await accounts.feed.give(keys - 1)
        return (resident() - before) / (keys - 1)


async def of_dict_entry(keys: int) -> float:
    """The same in a dict."""
    order, states = list(range(keys)), dict[int, Account]()
    no_context = cast("sc.KeyContext[int]", None)  # `update` does not look at it
    before = resident()
    for key in order:
        update(key, states.setdefault(key, Account()), no_context)
    return (resident() - before) / keys


async def of_count(keys: int) -> float:
    """Keys of a job that counts."""
    order = list(range(keys))
    feed = Feed(lambda split: order, 1)
    async with counting_job(feed, 1).start():
        await feed.give(1)
        before = resident()
        await feed.give(keys - 1)
        return (resident() - before) / (keys - 1)


async def of_channel(parallelism: int) -> float:
    """Channels of an exchange, with a share of the subtasks on both sides; nothing flows."""
    small, large = Feed(lambda split: [0], 1), Feed(lambda split: [0], parallelism)
    async with counting_job(small, 1).start():
        await asyncio.sleep(0.1)
        before = resident()
        async with counting_job(large, parallelism).start():
            await asyncio.sleep(1)
            return (resident() - before) / parallelism**2


KINDS: dict[str, Callable[[int], Awaitable[float]]] = {
    "accounts": of_account,
    "dict": of_dict_entry,
    "counts": of_count,
    "channels": of_channel,
}


async def measure(kind: str, count: int) -> None:
    """Write one figure."""
    print(await cast("Any", KINDS[kind])(count), flush=True)


if __name__ == "__main__":
    run_blocking(lambda: measure(sys.argv[1], int(sys.argv[2])))
