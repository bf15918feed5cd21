"""Records, services, sources and sinks that the programs beside this file share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import streamcp as sc


@dataclass(frozen=True)
class Order:
    id: int
    country: str
    currency: str
    amount: float
    ts: int


@dataclass(frozen=True)
class Rated:
    order: Order
    eur: float


@dataclass
class Visits:
    count: int = 0


class Http:
    async def get_json(self, path: str) -> float:
        return float(len(path))


@asynccontextmanager
async def open_http() -> AsyncGenerator[Http]:
    yield Http()


@sc.source
async def ticks(position: int = 0, *, symbol: str) -> AsyncIterator[tuple[float, int]]:
    while True:
        position += 1
        yield float(len(symbol)), position


@sc.source(splits=lambda: ["BTC", "ETH"])
async def split_ticks(split: str, position: int = 0) -> AsyncIterator[tuple[float, int]]:
    while True:
        position += 1
        yield float(len(split)), position


@sc.source(batches=True)
async def pages(position: str | None = None) -> AsyncIterator[tuple[list[Order], str]]:
    yield [], position or "cursor"


@sc.source(splits=lambda: range(3), batches=True)
async def split_pages(
    split: int, cursor: str = "", *, limit: int
) -> AsyncIterator[tuple[list[Order], str]]:
    yield [], cursor * limit * split


class Ledger:
    async def write(self, records: Sequence[Order], transaction: sc.Transaction) -> None: ...
    async def prepare(self, transaction: sc.Transaction) -> str:
        return transaction.id

    async def commit(self, transaction: sc.Transaction, token: str) -> None: ...
    async def abort(self, transaction: sc.Transaction) -> None: ...


class Staged:
    async def write(self, records: Sequence[object], transaction: sc.Transaction) -> None: ...
    async def prepare(self, transaction: sc.Transaction) -> int:
        return len(transaction.id)

    async def commit(self, transaction: sc.Transaction, token: int) -> None: ...


class WritesNumbers:
    async def write(self, records: Sequence[int]) -> None: ...


def keep(order: Order, visits: Visits, ctx: sc.KeyContext[str]) -> Order:
    return order


async def keep_slowly(order: Order, visits: Visits, ctx: sc.KeyContext[str]) -> Order:
    return order


def each(order: Order, visits: Visits, ctx: sc.KeyContext[str]) -> Iterator[Order]:
    yield order
