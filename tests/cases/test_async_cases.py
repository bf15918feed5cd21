"""Reports about asynchronous steps, their queues, and what a snapshot has of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from tests.cases.small_jobs import first_values, killed_after, numbers
from tests.recovery.world import Target, run_job, staged

KINDS = ("ordered", "unordered", "keyed")


@dataclass
class Count:
    n: int = 0


def _called(stream: Any, call: Any, kind: str, concurrency: int) -> Any:
    async def keyed(number: int, state: Count, ctx: sc.KeyContext[int]) -> list[list[int]]:
        state.n += 1
        return [await call(number)]

    if kind == "keyed":
        return stream.key_by(lambda n: n).process(
            keyed, state=Count, name="call", concurrency=concurrency
        )
    return stream.map(call, name="call", concurrency=concurrency, ordered=kind == "ordered")


@pytest.mark.parametrize("after", [8, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_full_queue_of_calls_and_one_more_that_waits_are_restored_without_a_deadlock(
    tmp_path: Path, kind: str, after: int
) -> None:
    """FLINK-7949 = flink#4924 (case 31); also where fewer calls may be outstanding than before."""
    target = Target()
    stuck = True

    async def call(number: int) -> list[int]:
        await asyncio.sleep(1e5 if stuck else 1)
        return [number]

    def job(concurrency: int) -> sc.Job:
        checkpoints = sc.Checkpoints(to=tmp_path, mode="unaligned")
        made = sc.Job("full", checkpoints=checkpoints, channel_capacity=1)
        stream = made.source(numbers(count=60), name="numbers").rebalance()
        _called(stream, call, kind, concurrency).sink(staged(target), name="out")
        return made

    assert run_job(job(8), use=killed_after(1)) is None
    stuck = False
    result = run_job(job(after))
    assert result is not None
    assert (result.outcome, result.restored_from) == ("finished", 1)
    assert first_values(target) == list(range(60))


@pytest.mark.parametrize("seed", range(3))
def test_equal_records_of_an_unordered_step_are_as_many_after_two_restores(
    tmp_path: Path, seed: int
) -> None:
    """hz#23271 (case 34): records are told apart by their place, never by their value. Watermarks,
    across which the report's records came, do not exist yet."""
    target = Target()
    letters = ["a", "a", "b", "a", "a", "b"] * 4
    calls = 0

    async def call(letter: str) -> list[str]:
        nonlocal calls
        calls += 1
        await asyncio.sleep(calls * 7 % 5)
        return [letter]

    def job() -> sc.Job:
        made = sc.Job("equal", checkpoints=sc.Checkpoints(to=tmp_path, mode="unaligned"))
        stream = made.source(sc.items(letters), name="letters").rebalance()
        called = stream.map(call, name="call", ordered=False, concurrency=3)
        called.sink(staged(target), name="out")
        return made

    for _ in range(2):
        assert run_job(job(), use=killed_after(4), seed=seed) is None
    run_job(job(), seed=seed)
    assert Counter(row[0] for row in target.records("out")) == Counter(letters)
