"""Lists of records before a coroutine, and a job that is killed: every record exactly once."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.runners.handle import JobHandle
from tests.recovery.world import Target, run_job, transactional

COUNT = 60


@sc.source
async def trickle(position: int = 0) -> Any:
    for i in range(position, COUNT):
        await asyncio.sleep(0.03 if i % 7 else 0.4)
        yield i, i + 1


def job(directory: Path, mode: Any, target: Target, rnd: random.Random, parallelism: int) -> sc.Job:
    async def ask(batch: list[int]) -> list[list[int]]:
        await asyncio.sleep(rnd.random())
        return [[number] for number in batch]

    made = sc.Job(
        "batches",
        checkpoints=sc.Checkpoints(to=directory, every="300ms", mode=mode),
        channel_capacity=8,
    )
    stream = made.source(trickle(), name="numbers").rebalance()
    batches = stream.batch(5, "200ms", name="batch", parallelism=parallelism)
    answers = batches.map(ask, name="ask", concurrency=3, parallelism=parallelism).unbatch(
        parallelism=parallelism
    )
    answers.rebalance().sink(transactional(target), name="out", parallelism=1)
    return made


@pytest.mark.parametrize("mode", ["unaligned", "aligned"])
@pytest.mark.parametrize("seed", range(4))
def test_every_record_comes_once(tmp_path: Path, mode: str, seed: int) -> None:
    rnd, target = random.Random(f"{mode} {seed}"), Target()
    # A staged or transactional sink says what was committed; the parallelism changes on the way.
    parallelism = [1, 2, 3, 2]

    async def until_killed(handle: JobHandle) -> None:
        await asyncio.sleep(rnd.choice([0.7, 1.3, 1.9]))
        raise asyncio.CancelledError

    kills = 0
    while kills < 8:
        made = job(tmp_path, mode, target, rnd, parallelism[kills % 4])
        if run_job(made, seed=seed, use=until_killed) is not None:
            break
        kills += 1
    run_job(job(tmp_path, mode, target, rnd, 1), seed=seed)
    assert kills > 1
    assert sorted(record[0] for record in target.records("out")) == list(range(COUNT))
