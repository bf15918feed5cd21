"""The chain of Flink's own benchmark of checkpoints under backpressure, and the law for it.

Sources → exchange → stage → ... → exchange → last stage, four subtasks each, so that every exchange
has 4 × 4 channels. One stage is slow, by default the last one. It takes one record at a time
(`concurrency=1`); a coroutine as sink would take whole batches and wait for all of one at once.

The law: an aligned barrier waits for every record before it, so with k full exchanges of p channels
with C records each before a subtask of μ records per second it takes k·p·C/μ.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import streamcp as sc

BATCH = 64  # records that a source yields at once
Record: TypeAlias = tuple[int, bytes]

# asyncio cannot sleep for less with any accuracy: shorter service times are gathered until they
# amount to so much.
SHORTEST_SLEEP = 0.001
LONGEST_ARREAR = 0.1  # so much lost time is caught up with
# Single records cannot keep a fast sink busy: the next one has to come through the event loop.
MAY_BE_IDLE = 1.1


class Service:
    """Takes `seconds` per record, by awaiting, for each of its callers one record at a time.

    A token bucket per caller: a caller sleeps when what it owes amounts to 5 ms. At 10 ms per
    record that is every record, at 1 ms every fifth: on average the time per record is exact."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.served = 0
        self._due: dict[asyncio.Task[Any] | None, float] = {}

    async def take(self, record: object) -> None:
        now = asyncio.get_running_loop().time()
        caller = asyncio.current_task()
        owed_since = max(self._due.get(caller, now), now - LONGEST_ARREAR)
        due = self._due[caller] = owed_since + self.seconds_for(record)
        self.served += 1
        if due - now >= SHORTEST_SLEEP:
            await asyncio.sleep(due - now)

    async def answer(self, record: Record) -> Record:
        """Take a record in the middle of a job, and hand it on."""
        await self.take(record)
        return record

    def seconds_for(self, record: object) -> float:
        """What this record takes."""
        return self.seconds


@dataclass(frozen=True, slots=True)
class Gate:
    """What a saturated job looks like: these sources wait for room for 90 % of the time, and this
    task waits for nothing: at most `idle` of the time, the mean of its subtasks; it has taken at
    least `taken` records."""

    sources: tuple[str, ...]
    slow: str
    idle: float = 0.1
    taken: int = 0


class Topology(Protocol):
    """A job that can be saturated; its values are JSON values."""

    @property
    def parallelism(self) -> int: ...

    @property
    def capacity(self) -> int: ...

    @property
    def service(self) -> float:
        """Seconds per record in the slow step."""
        ...

    @property
    def hops(self) -> int:
        """Exchanges that a barrier passes before it is in the slow step."""
        ...

    def build(self, job: sc.Job) -> tuple[Service, Gate]:
        """Add the steps."""
        ...

    def aligned_delay(self, rate: float) -> float:
        """What an aligned barrier takes by the law; `rate`: records per second that one subtask
        of the slow step serves, as measured."""
        ...


def records(parallelism: int, payload: int) -> Any:
    """An endless source: numbers, each with a payload of its own of so many bytes."""

    @sc.source(splits=lambda: range(parallelism), batches=True)
    async def numbered(split: int, position: int = 0) -> AsyncIterator[tuple[list[Record], int]]:
        while True:
            numbers = range(position, position + BATCH)
            yield [(number, filling(number, payload)) for number in numbers], position + BATCH
            position += BATCH

    return numbered()


def filling(number: int, size: int) -> bytes:
    """So many bytes that differ from number to number."""
    return (number % (1 << 8 * min(size, 8))).to_bytes(size, "big")


def identity(record: Record) -> Record:
    return record


def ignore(record: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Chain:
    """`stages` stages behind the sources, each behind an exchange; stage number `slow` (the last
    one if None) takes `service` seconds per record."""

    service: float
    capacity: int
    payload: int = 100
    stages: int = 2
    slow: int | None = None
    parallelism: int = 4

    @property
    def hops(self) -> int:
        return self.stages if self.slow is None else self.slow

    def build(self, job: sc.Job) -> tuple[Service, Gate]:
        service = Service(self.service)
        stream = job.source(records(self.parallelism, self.payload), name="records")
        for stage in range(1, self.stages):
            spread = stream.rebalance()
            if stage == self.slow:
                stream = spread.map(service.answer, name="slow", concurrency=1)
            else:
                stream = spread.map(identity, name=f"stage {stage}")
        if self.hops == self.stages:
            stream.rebalance().for_each(service.take, name="slow", concurrency=1)
        else:
            stream.rebalance().for_each(ignore, name="end")
        return service, Gate(("records",), "slow", idle=0.1 if self.capacity > 1 else MAY_BE_IDLE)

    def aligned_delay(self, rate: float) -> float:
        return self.hops * self.parallelism * self.capacity / rate
