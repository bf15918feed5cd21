"""A running count that works on as many records as it is told to, and then waits.

So several jobs of one process, or of several, take turns: those that are not measured sleep.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeAlias

import streamcp as sc

BATCH = 1024
Keys: TypeAlias = Callable[[int], Sequence[int]]
"""The keys that a split has, by its number; read round and round, and asked for before each
window."""


def same(key: int) -> int:
    return key


class Feed:
    """Source and sink of one job: `await feed.give(n)` returns when n further records are through.

    Each of `splits` splits gives an equal share, so `n` is to be a multiple of their number."""

    def __init__(self, keys: Keys, splits: int) -> None:
        self.through = 0  # records, ever
        self._keys = keys
        self._splits = splits
        self._upto = 0
        self._missing = 0
        self._gates = [asyncio.Event() for _ in range(splits)]
        self._done = asyncio.Event()

    async def give(self, records: int) -> None:
        """Let so many further records through."""
        self._upto += records // self._splits
        self._missing = records // self._splits * self._splits
        self._done.clear()
        for gate in self._gates:
            gate.set()
        await self._done.wait()

    def source(self) -> sc.Source[int]:
        """Make the source."""

        @sc.source(splits=lambda: range(self._splits), batches=True)
        async def keys(split: int, position: int = 0) -> AsyncIterator[tuple[list[int], int]]:
            gate = self._gates[split]
            while True:
                own = self._keys(split)
                size = len(own)
                while position < self._upto:
                    at = position % size
                    batch = list(own[at : min(at + BATCH, at + self._upto - position)])
                    position += len(batch)
                    yield batch, position
                gate.clear()
                await gate.wait()

        return keys()

    async def write(self, records: Sequence[object], /) -> None:
        """Take results, as the sink."""
        self.through += len(records)
        self._missing -= len(records)
        if self._missing <= 0:
            self._done.set()


def count_by_hand(keys: Sequence[int], counts: dict[int, int]) -> None:
    """What `counting_job` does with records, without a job."""
    for key in keys:
        count = counts[key] = counts.get(key, 0) + 1
        _ = (key, count)


def counting_job(feed: Feed, parallelism: int, checkpoints: sc.Checkpoints | None = None) -> sc.Job:
    """Sources → exchange by key → running count → sink, each with that many subtasks."""
    job = sc.Job("counting", parallelism=parallelism, checkpoints=checkpoints)
    counts = job.source(feed.source(), name="keys").key_by(same).count(name="counts")
    counts.sink(lambda: feed, name="out")
    return job
