"""A service that recognizes call ids does each thing once, however often the job is killed."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.runners.handle import JobHandle
from tests.recovery.world import run_job

# Some are equal.
AMOUNTS = [1, 2, 2, 3, 1, 2, 4, 5, 5, 5, 6, 1, 7, 8, 2, 9, 9, 3, 1, 1]


class Bank:
    """Charges once per id; `answers` is how long an answer takes."""

    def __init__(self, rnd: random.Random) -> None:
        self.charged: dict[str, int] = {}
        self.requests = 0
        self._rnd = rnd

    async def charge(self, amount: int, own_id: str) -> None:
        await asyncio.sleep(self._rnd.random())
        self.requests += 1
        assert self.charged.setdefault(own_id, amount) == amount, "another call has this id"
        await asyncio.sleep(self._rnd.random())


def job(directory: Path, kind: str, bank: Bank) -> sc.Job:
    async def charge(amount: int) -> int:
        await bank.charge(amount, sc.call_id())
        return amount

    async def keyed(amount: int, state: list[int], ctx: sc.KeyContext[int]) -> list[int]:
        await bank.charge(amount, ctx.call_id)
        return [amount]

    made = sc.Job(
        "charges",
        checkpoints=sc.Checkpoints(to=directory, every="500ms", mode="unaligned"),
        channel_capacity=5,
    )
    numbers: Any = made.source(sc.items(AMOUNTS), name="amounts")
    if kind == "keyed":
        stream = numbers.key_by(lambda amount: amount % 3).process(
            keyed, state=list, name="charge", concurrency=4
        )
    else:
        stream = numbers.map(charge, name="charge", concurrency=4, ordered=kind == "ordered")
    stream.sink(sc.discard(), name="out")
    return made


@pytest.mark.parametrize("kind", ["ordered", "unordered", "keyed"])
@pytest.mark.parametrize("seed", range(4))
def test_every_call_takes_effect_once(tmp_path: Path, kind: str, seed: int) -> None:
    rnd = random.Random(f"{kind} {seed}")
    bank = Bank(rnd)

    async def until_killed(handle: JobHandle) -> None:
        await asyncio.sleep(rnd.choice([0.3, 1.1, 1.7]))
        raise asyncio.CancelledError

    kills = 0
    while run_job(job(tmp_path, kind, bank), seed=seed, use=until_killed) is None and kills < 12:
        kills += 1
    run_job(job(tmp_path, kind, bank), seed=seed)
    assert kills > 1
    assert bank.requests > len(AMOUNTS), "no call was made again"
    assert sorted(bank.charged.values()) == sorted(AMOUNTS)


def test_fresh_start_gives_other_ids(tmp_path: Path) -> None:
    bank = Bank(random.Random(1))
    run_job(job(tmp_path, "ordered", bank))
    run_job(job(tmp_path, "ordered", bank), fresh=True)
    assert len(bank.charged) == 2 * len(AMOUNTS)


def test_job_that_was_killed_before_its_first_checkpoint_gives_the_same_ids(
    tmp_path: Path,
) -> None:
    bank = Bank(random.Random(1))

    async def until_killed(handle: JobHandle) -> None:
        await asyncio.sleep(0.45)
        raise asyncio.CancelledError

    assert run_job(job(tmp_path, "ordered", bank), use=until_killed) is None
    assert bank.charged, "nothing was charged before the kill"
    run_job(job(tmp_path, "ordered", bank))
    assert sorted(bank.charged.values()) == sorted(AMOUNTS)


def test_runs_without_checkpoints_have_nothing_to_do_with_each_other() -> None:
    seen: list[set[str]] = []
    for _ in range(2):
        ids: set[str] = set()

        async def ask(amount: int, ids: set[str] = ids) -> int:
            ids.add(sc.call_id())
            return amount

        made = sc.Job("asks")
        made.source(sc.items(AMOUNTS)).map(ask).sink(sc.discard())
        made.run()
        seen.append(ids)
    assert len(seen[0] | seen[1]) == 2 * len(AMOUNTS)
