"""Whole jobs with lookups: crashes lose no record, and what was known is asked for again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import streamcp as sc
from streamcp.testing.simulating import simulate
from tests.recovery.world import Target, staged


class Shop:
    """Prices that take their time."""

    async def price(self, item: int) -> int | None:
        await asyncio.sleep(0.1 * (item % 3))
        return None if item == 4 else item * 10


@asynccontextmanager
async def open_shop() -> AsyncIterator[Shop]:
    yield Shop()


async def price(item: int, shop: Shop) -> int | None:
    return await shop.price(item)


def priced(number: int, price: int | None) -> tuple[int, int | None]:
    return number, price


@pytest.mark.parametrize("ordered", [True, False])
def test_lookups_have_the_same_rows_whatever_crashes(ordered: bool) -> None:
    def make() -> sc.Job:
        job = sc.Job("shop", checkpoints=sc.Checkpoints(to="unused", every="200ms"))
        stream = job.source(sc.items(range(60)), name="numbers")
        stream.rebalance().lookup(
            lambda number: number % 7,
            price,
            priced,
            uses=open_shop,
            cache=4,
            ttl="300ms",
            ordered=ordered,
            retry=sc.Retry(attempts=3, backoff="50ms"),
            name="prices",
            parallelism=2,
        ).rebalance().sink(staged(Target()), name="out")
        return job

    simulate(make, seeds=range(15))
