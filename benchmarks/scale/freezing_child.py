"""The process with the state: `python -m benchmarks.scale.freezing_child KEYS SEED WINDOW`.

It says "ready" when every key is there. For each line that it reads it takes one checkpoint, of the
idle job ("idle"), or while keys are updated ("all", "few"), and writes its figures as JSON. WINDOW
is the seconds without a checkpoint, before and behind one.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import streamcp as sc
from benchmarks.scale.accounts import Accounts
from streamcp.runners.local import run_blocking

GIVEN = 50_000  # updates that are let through at a time


class Ticker:
    """Wants its turn every millisecond; `longest` is what it has waited beyond that."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def run(self) -> None:
        """Tick until cancelled."""
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            self.longest = max(self.longest, now - last - 0.001)
            last = now


async def update_forever(accounts: Accounts) -> None:
    """Update keys as fast as the job can, until cancelled."""
    while True:
        await accounts.feed.give(GIVEN)


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """Let something run beside the body."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class Measuring:
    """One job, of which checkpoints are taken."""

    def __init__(self, accounts: Accounts, running: sc.Running, window: float) -> None:
        self._accounts = accounts
        self._running = running
        self._window = window
        self._all = accounts.order
        self._few = accounts.order[::100]

    async def idle(self) -> dict[str, Any]:
        """A checkpoint while nothing else is done."""
        ticker = Ticker()
        async with beside(ticker.run()):
            await asyncio.sleep(self._window)
            without, ticker.longest = ticker.longest, 0.0
            used = time.process_time()
            taken = await self._running.checkpoint()
            used = time.process_time() - used
        return {
            "sync": taken.sync,
            "gap": ticker.longest,
            "gap_without": without,
            "processor": used,
            "durable": taken.durable_delay,
            "bytes": taken.state_bytes,
            "keys": len(self._all),
        }

    async def busy(self, kind: str) -> dict[str, Any]:
        """A checkpoint while keys are updated, and the throughput before and behind it."""
        self._accounts.order[:] = self._all if kind == "all" else self._few * 100
        async with beside(update_forever(self._accounts)):
            await asyncio.sleep(self._window)
            before = await self._cost(asyncio.sleep(self._window))
            durable = asyncio.ensure_future(self._running.checkpoint())
            done = self._accounts.feed.through
            during = await self._cost(asyncio.wait([durable]))
            done = self._accounts.feed.through - done
            behind = await self._cost(asyncio.sleep(self._window))
        without = (before + behind) / 2
        return {
            "lost": 1 - without / during,
            "extra": (during - without) * done,
            "durable": durable.result().durable_delay,
        }

    async def _cost(self, wait: Awaitable[Any]) -> float:
        """Seconds of the processor per update while something is waited for."""
        feed = self._accounts.feed
        done, used = feed.through, time.process_time()
        await wait
        return (time.process_time() - used) / max(1, feed.through - done)


async def measure(keys: int, seed: int, window: float) -> None:
    """Make all keys, then checkpoints as they are asked for."""
    with tempfile.TemporaryDirectory() as folder:
        accounts = Accounts(keys, folder, seed)
        async with accounts.job.start() as running:
            await accounts.make_all()
            measuring = Measuring(accounts, running, window)
            print("ready", flush=True)
            while kind := (await asyncio.to_thread(sys.stdin.readline)).strip():
                figures = await (measuring.idle() if kind == "idle" else measuring.busy(kind))
                print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    keys, seed, window = sys.argv[1:]
    run_blocking(lambda: measure(int(keys), int(seed), float(window)))
