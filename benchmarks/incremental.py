"""Checkpoints of a large keyed state of which little changes: whole beside incremental.

One job per kind, with every key touched once before anything is measured. Between two checkpoints
one key in a hundred is touched. The first checkpoint, whole in both kinds, is not counted.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import streamcp as sc
from benchmarks.harness import Row, Run, Suite, at_most, median_row
from streamcp.checkpoint.statistics import CheckpointStatistics

TOUCHED = 100
"""One key in so many is touched between two checkpoints."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Keys of the state, and checkpoints per kind."""

    keys: int
    checkpoints: int


FULL = Sizes(100_000, 60)
QUICK = Sizes(20_000, 8)


@dataclass
class Account:
    """The state of a key."""

    owner: str = ""
    count: int = 0
    total: float = 0.0


def update(key: int, state: Account, context: sc.KeyContext[int]) -> None:
    """Touch the state of a key."""
    state.owner = f"customer {key}"
    state.count += 1
    state.total += key / 7


class Feed:
    """A source that gives as many keys as it is told to."""

    def __init__(self, keys: int) -> None:
        self.keys = keys
        self.wanted = asyncio.Event()
        self.done = asyncio.Event()
        self.at = 0
        self.upto = 0

    async def give(self, count: int) -> None:
        """Let that many further keys be touched, in turn."""
        self.upto = self.at + count
        self.done.clear()
        self.wanted.set()
        await self.done.wait()

    def source(self) -> sc.Source[int]:
        """Make the source."""

        @sc.source(batches=True)
        async def keys(position: int = 0) -> AsyncIterator[tuple[list[int], int]]:
            while True:
                await self.wanted.wait()
                while self.at < self.upto:
                    stop = min(self.at + 1000, self.upto)
                    batch = [number % self.keys for number in range(self.at, stop)]
                    self.at = stop
                    yield batch, stop
                self.wanted.clear()
                self.done.set()

        return keys()


async def changes(run: Run[Sizes]) -> Sequence[Row]:
    """Take the checkpoints of both kinds."""
    whole = await _taken(run, incremental=False)
    changed = await _taken(run, incremental=True)
    return [
        *_rows("whole", whole),
        *_rows("incremental", changed),
        Row(
            "bytes of incremental checkpoints beside whole ones",
            _mean(changed, "state_bytes") / _mean(whole, "state_bytes"),
            "×",
            target=at_most(0.15),
            detail="on average, compaction included",
        ),
        median_row(
            "duration beside whole ones",
            [_durable(one) / _durable(other) for one, other in zip(changed, whole, strict=True)],
            "×",
            target=at_most(0.5),
            detail="trigger to durable",
        ),
        Row(
            "duration beside whole ones, on average",
            _mean(changed, "durable_delay") / _mean(whole, "durable_delay"),
            "×",
            detail="compaction included",
        ),
    ]


@dataclass
class PlainLog:
    """One key with a plain list."""

    entries: list[int] = field(default_factory=list)


@dataclass
class Log:
    """The same with a list whose entries are stored one by one."""

    entries: sc.ListState[int] = field(default_factory=sc.ListState)


def append(number: int, log: PlainLog | Log, context: sc.KeyContext[int]) -> None:
    """Append to the only list."""
    log.entries.append(number)


async def entries(run: Run[Sizes]) -> Sequence[Row]:
    """One key with a long list, to which one entry is appended between two checkpoints."""
    plain = await _appended(run, PlainLog)
    listed = await _appended(run, Log)
    return [
        *_rows("plain list", plain),
        *_rows("ListState", listed),
        Row(
            "bytes of a ListState beside a plain list",
            _mean(listed, "state_bytes") / _mean(plain, "state_bytes"),
            "×",
            target=at_most(0.15),
            detail=f"{run.sizes.keys:,} entries in one key; compaction included",
        ),
    ]


async def _appended(run: Run[Sizes], state: type[PlainLog | Log]) -> list[CheckpointStatistics]:
    run.say(state.__name__)
    with tempfile.TemporaryDirectory() as folder:
        feed = Feed(10 * run.sizes.keys)
        settings = sc.Checkpoints(to=folder, incremental=True)
        job = sc.Job("log", checkpoints=settings, types=[PlainLog, Log])
        keyed = job.source(feed.source(), name="numbers").key_by(lambda number: 0)
        keyed.process(append, state=state, name="log").sink(sc.discard(), name="out")
        async with job.start() as running:
            await feed.give(run.sizes.keys)
            await running.checkpoint()
            taken = []
            for _ in range(run.sizes.checkpoints):
                await feed.give(1)
                taken.append(await running.checkpoint())
            return taken


async def _taken(run: Run[Sizes], *, incremental: bool) -> list[CheckpointStatistics]:
    run.say("incremental" if incremental else "whole")
    with tempfile.TemporaryDirectory() as folder:
        feed = Feed(run.sizes.keys)
        settings = sc.Checkpoints(to=folder, incremental=incremental)
        job = sc.Job("accounts", checkpoints=settings, types=[Account])
        keyed = job.source(feed.source(), name="keys").key_by(lambda key: key)
        keyed.process(update, state=Account, name="accounts").sink(sc.discard(), name="out")
        async with job.start() as running:
            await feed.give(run.sizes.keys)
            await running.checkpoint()
            taken = []
            for _ in range(run.sizes.checkpoints):
                await feed.give(run.sizes.keys // TOUCHED)
                taken.append(await running.checkpoint())
            return taken


def _rows(kind: str, taken: Sequence[CheckpointStatistics]) -> list[Row]:
    return [
        median_row(f"{kind}: bytes", [one.state_bytes / 1000 for one in taken], "kB"),
        median_row(f"{kind}: trigger to durable", [_durable(one) * 1000 for one in taken], "ms"),
    ]


def _durable(one: CheckpointStatistics) -> float:
    return one.durable_delay or 0.0


def _mean(taken: Sequence[CheckpointStatistics], name: str) -> float:
    return sum(float(getattr(one, name) or 0.0) for one in taken) / len(taken)


SUITE = Suite("incremental", {"changes": changes, "entries": entries}, FULL, QUICK)
