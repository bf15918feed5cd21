"""Lists with timestamps, and sources that keep together: the same output whatever crashes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import streamcp as sc
from streamcp.testing.simulating import simulate
from tests.end_to_end.clicks import Click
from tests.recovery.world import Target, staged


@dataclass(frozen=True)
class Priced:
    user: int
    ts: int
    price: int


def clicks(speed: int, count: int) -> list[Click]:
    """Out of order by less than five seconds."""
    return [Click(n % 4, 1000 * (n * speed + (n * 7) % 5)) for n in range(count)]


@sc.source(splits=lambda: range(1, 4))
async def divided(split: int, position: int = 0) -> AsyncIterator[tuple[Click, int]]:
    for number, click in list(enumerate(clicks(split, 30)))[position:]:
        await asyncio.sleep(0.001 * split)
        yield click, number + 1


@sc.source
async def slowly(position: int = 0) -> AsyncIterator[tuple[Click, int]]:
    for number, click in list(enumerate(clicks(2, 60)))[position:]:
        await asyncio.sleep(0.02)
        yield click, number + 1


async def priced(batch: list[Click]) -> list[Priced]:
    await asyncio.sleep(0.01)
    return [Priced(click.user, click.ts, click.ts % 97) for click in batch]


def written(results: sc.Stream[Any]) -> None:
    results.rebalance().sink(staged(Target()), name="out")


def totals(job: sc.Job, source: sc.Source[Click], **together: Any) -> sc.Job:
    marks = sc.Watermarks[Click](lambda click: click.ts, out_of_orderness="5s", **together)
    batches = job.source(source, name="clicks", watermarks=marks).batch(7, "200ms", name="seven")
    apart = batches.map(priced, name="price", concurrency=3).unbatch()
    keyed = apart.key_by(lambda one: one.user)
    written(keyed.window(sc.Tumbling("10s"), name="w").aggregate(sc.Sum(lambda one: one.price)))
    return job


def new_job() -> sc.Job:
    checkpoints = sc.Checkpoints(to="unused", every="1s")
    return sc.Job("totals", checkpoints=checkpoints, types=[Click, Priced])


def test_windows_behind_lists_have_the_same_results_whatever_crashes() -> None:
    simulate(lambda: totals(new_job(), slowly()), seeds=range(15))


def test_sources_that_keep_together_have_the_same_results_whatever_crashes() -> None:
    simulate(lambda: totals(new_job(), divided(), align="group", max_drift="5s"), seeds=range(15))
