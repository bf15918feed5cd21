"""One process: `python -m benchmarks.scale.restore_child WHAT FOLDER KEYS RECORDS`.

WHAT is "make" (the checkpoint, and the file for pickle), "restore", or "read" (by pickle). It
writes the seconds that took: by the clock, and of the processor.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeAlias

import streamcp as sc
from benchmarks.scale.accounts import Account, Accounts, update
from streamcp.runners.local import run_blocking

PAYLOAD = 100
BATCH = 1000

Record: TypeAlias = tuple[int, bytes]


class Waiting:
    """A sink that never takes a second record."""

    def __init__(self) -> None:
        self.free = asyncio.Event()

    async def take(self, record: Record) -> None:
        """Wait."""
        await self.free.wait()


class _Enough(Exception):
    """Ends a job at once."""


def make_records(first: int, stop: int) -> list[Record]:
    return [(number, number.to_bytes(PAYLOAD, "big")) for number in range(first, stop)]


class Bench:
    """The job: accounts, and beside them records that wait before a sink. `runs` is set when its
    source is asked for something, `all_given` when it has no more."""

    def __init__(self, folder: Path, keys: int, in_flight: int) -> None:
        self.runs = asyncio.Event()
        self.all_given = asyncio.Event()
        self.accounts = Accounts(keys, folder, capacity=2 * in_flight)
        self.job = self.accounts.job
        self._in_flight = in_flight
        waiting = Waiting()
        records = self.job.source(self._source(), name="records").rebalance()
        records.for_each(waiting.take, name="waiting", concurrency=1)

    def _source(self) -> sc.Source[Record]:
        @sc.source(batches=True)
        async def records(position: int = 0) -> AsyncIterator[tuple[list[Record], int]]:
            self.runs.set()
            while position < self._in_flight:
                stop = min(position + BATCH, self._in_flight)
                yield make_records(position, stop), stop
                position = stop
            self.all_given.set()
            await asyncio.Event().wait()

        return records()


async def make(folder: Path, keys: int, in_flight: int) -> None:
    """Take a checkpoint when every key is there and every record on its way."""
    bench = Bench(folder, keys, in_flight)
    try:
        async with bench.job.start() as running:
            await bench.accounts.make_all()
            await bench.all_given.wait()
            taken = await running.checkpoint()
            assert taken.in_flight_records >= in_flight - BATCH, taken
            raise _Enough
    except _Enough:
        pass
    accounts = {key: Account() for key in range(keys)}
    for key, account in accounts.items():
        update(key, account, None)  # type: ignore[arg-type]  # it does not look at the context
    content = (accounts, make_records(0, in_flight))
    (folder / "pickled").write_bytes(pickle.dumps(content, protocol=5))


async def restore(folder: Path, keys: int, in_flight: int) -> None:
    """Start the job, until it runs."""
    bench = Bench(folder, keys, in_flight)
    try:
        async with bench.job.start():
            await bench.runs.wait()
            raise _Enough
    except _Enough:
        pass


def read(folder: Path) -> None:
    """Read the file."""
    with open(folder / "pickled", "rb") as file:
        pickle.load(file)


async def main(what: str, folder: Path, keys: int, in_flight: int) -> None:
    """Do what is asked for."""
    if what == "make":
        await make(folder, keys, in_flight)
        print(0, 0)
        return
    started, used = time.perf_counter(), time.process_time()
    if what == "restore":
        await restore(folder, keys, in_flight)
    else:
        read(folder)
    print(time.perf_counter() - started, time.process_time() - used)


if __name__ == "__main__":
    what, folder, keys, in_flight = sys.argv[1:]
    run_blocking(lambda: main(what, Path(folder), int(keys), int(in_flight)))
