"""Functions in threads, and a job that is killed: every record exactly once, state included."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.runners.handle import JobHandle
from tests.recovery.world import Target, run_job, staged

COUNT = 40


@dataclass
class Seen:
    numbers: list[int] = field(default_factory=list)


@dataclass
class Order:
    number: int
    note: str = ""


@sc.source
async def orders(position: int = 0) -> Any:
    for i in range(position, COUNT):
        await asyncio.sleep(0.05)
        yield Order(i), i + 1


def job(directory: Path, target: Target) -> sc.Job:
    def annotate(order: Order) -> Order:
        order.note += "!"
        return order

    def collect(order: Order, seen: Seen, ctx: sc.KeyContext[int]) -> list[list[Any]]:
        seen.numbers.append(order.number)
        return [[order.number, order.note, len(seen.numbers)]]

    made = sc.Job(
        "threads",
        checkpoints=sc.Checkpoints(to=directory, every="300ms", mode="unaligned"),
        channel_capacity=6,
        types=[Order],
    )
    annotated = made.source(orders(), name="orders").map(
        annotate, name="annotate", executor="thread", concurrency=3
    )
    annotated.key_by(lambda order: order.number % 4).process(
        collect, state=Seen, name="collect", executor="thread", concurrency=3
    ).sink(staged(target), name="out")
    return made


@pytest.mark.parametrize("seed", range(4))
def test_every_record_counts_once(tmp_path: Path, seed: int) -> None:
    rnd, target = random.Random(seed), Target()

    async def until_killed(handle: JobHandle) -> None:
        await asyncio.sleep(rnd.choice([0.5, 0.9]))
        raise asyncio.CancelledError

    kills = 0
    while run_job(job(tmp_path, target), seed=seed, use=until_killed) is None and kills < 8:
        kills += 1
    run_job(job(tmp_path, target), seed=seed)
    assert kills > 1
    expected = [[i, "!", i // 4 + 1] for i in range(COUNT)]
    assert sorted(target.records("out")) == expected
