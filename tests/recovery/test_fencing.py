"""Two copies of a job on one directory: the older one commits nothing more (P34)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.observability import events
from tests.recovery.world import (
    Copies,
    Target,
    TransactionalTargetSink,
    happened,
    staged,
    transactional,
)


@sc.source
async def numbers(position: int = 0) -> AsyncIterator[Any]:
    for i in range(position, 200):
        await asyncio.sleep(0.1)
        yield i, i + 1


def _row(number: int) -> list[int]:
    return [number]


def _job(directory: Path, sink: Any, row: Any = _row) -> sc.Job:
    job = sc.Job(
        "copies",
        checkpoints=sc.Checkpoints(to=directory, every="1s"),
        restart=sc.Restart.fixed_delay(attempts=5, delay="2s"),
    )
    stream = job.source(numbers(), name="numbers").map(row)
    stream.sink(sink, name="out")
    return job


def _expect_each_once(target: Target) -> None:
    assert Counter(r[0] for r in target.records("out")) == Counter(range(200))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("make", [transactional, staged])
def test_copy_that_was_taken_over_from_stops_and_commits_nothing_more(
    tmp_path: Path, make: Any, seed: int
) -> None:
    """jet#2824, #2503 (case 38), rh-faust#367: what the old copy still has under way is void."""
    target, copies = Target(), Copies(seed)

    async def main() -> None:
        _, old_task = copies.start(_job(tmp_path, make(target)))
        await asyncio.sleep(5 + seed * 0.1001)
        new, new_task = copies.start(_job(tmp_path, make(target)), take_over=True)
        await happened(new, events.JobRestored)
        committed = {name for name in target.committed if ".1." in name}
        with pytest.raises(sc.Fenced):
            await old_task
        late = {name for name in target.committed if ".0.1." in name} - committed
        assert len(late) <= 1, "at most what the restored checkpoint names"
        await new_task

    copies.run(main)
    _expect_each_once(target)


def test_second_copy_is_refused_while_the_first_shows_life(tmp_path: Path) -> None:
    target, copies = Target(), Copies()

    async def main() -> None:
        _, first = copies.start(_job(tmp_path, transactional(target)))
        await asyncio.sleep(5)
        _, second = copies.start(_job(tmp_path, transactional(target)))
        with pytest.raises(sc.StorageError, match=r"another copy.*take_over"):
            await second
        await first

    copies.run(main)
    _expect_each_once(target)


@pytest.mark.parametrize("old_takes_over", [False, True])
def test_copy_that_was_taken_over_from_while_it_waits_to_restart_does_not_take_back(
    tmp_path: Path, old_takes_over: bool
) -> None:
    target, copies = Target(), Copies()
    calls: list[int] = []

    def fail_once(number: int) -> list[int]:
        calls.append(number)
        if len(calls) == 50:
            raise ConnectionError("away")
        return [number]

    async def main() -> None:
        old, old_task = copies.start(
            _job(tmp_path, transactional(target), fail_once), take_over=old_takes_over
        )
        await happened(old, events.JobRestarting)
        _, new_task = copies.start(_job(tmp_path, transactional(target)), take_over=True)
        with pytest.raises((sc.Fenced, sc.StorageError)):
            await old_task
        result = await new_task
        assert (result.outcome, result.attempts) == ("finished", 1)

    copies.run(main)
    _expect_each_once(target)


def test_old_copy_that_is_still_starting_removes_nothing_of_the_new_one(tmp_path: Path) -> None:
    """What the new copy has prepared lies in the target, and no checkpoint names it yet."""
    target, copies = Target(), Copies()
    opening: list[str] = []
    written = asyncio.Event()

    class SlowToOpen(TransactionalTargetSink):
        async def __aenter__(self) -> SlowToOpen:
            opening.append("copy")
            if len(opening) == 1:
                await written.wait()
            return self

        async def write(self, records: Sequence[Any], transaction: sc.Transaction, /) -> None:
            await super().write(records, transaction)
            written.set()

        async def __aexit__(self, *_: object) -> None:
            pass

    async def main() -> None:
        sink = partial(SlowToOpen, target, lambda: None)
        _, old_task = copies.start(_job(tmp_path, sink))
        await asyncio.sleep(1)
        _, new_task = copies.start(_job(tmp_path, sink), take_over=True)
        with pytest.raises(sc.Fenced):
            await old_task
        result = await new_task
        assert result.attempts == 1

    copies.run(main)
    _expect_each_once(target)
