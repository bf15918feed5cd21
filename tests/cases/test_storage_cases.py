"""Reports about stored checkpoints, old attempts that are still alive, and state that expires."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import streamcp as sc
from streamcp.durable_files import LOCAL_FILES, explain
from streamcp.errors import Fenced
from streamcp.observability import events
from streamcp.runners.handle import JobHandle
from streamcp.storage.local import LocalStorage
from streamcp.testing.storage_checks import SECTIONS, SUBTASK, complete_example, example_manifest
from tests.cases.small_jobs import killed_after, numbers
from tests.recovery.world import (
    Copies,
    Target,
    TransactionalTargetSink,
    happened,
    run_job,
    staged,
    transactional,
)

DATA = [(SUBTASK, section) for section in SECTIONS]


# ---- old attempts


def test_late_completion_of_a_replaced_attempt_is_refused_and_the_restored_one_stays_readable(
    tmp_path: Path,
) -> None:
    """jet#2824, #2503 (case 38): what A has of 11 comes after B has restored 10."""
    old, new = (LocalStorage(tmp_path, job="orders") for _ in range(2))
    first = old.start_attempt()
    complete_example(old, "orders", 10, first.number)
    late = old.write_data(11, DATA)
    second = new.start_attempt(take_over=True)
    assert [one.checkpoint_id for one in second.completed] == [10]
    with pytest.raises(Fenced):
        old.complete(example_manifest("orders", 11, first.number, late))
    old.retain(0)
    old.discard(10)
    old.close()
    assert new.verify(10) == []
    assert second.next_checkpoint_id > 11
    new.close()


def test_write_that_returns_when_another_copy_runs_is_never_visible(tmp_path: Path) -> None:
    """faust#323, rh-faust#367 (case 48): the old producer is alive, in the middle of a write."""
    target, copies = Target(), Copies()

    class Stuck(TransactionalTargetSink):
        async def write(self, records: Sequence[Any], transaction: sc.Transaction, /) -> None:
            if ".1." in transaction.id and len(target.committed) > 2:
                stuck.append(transaction.id)
                await asyncio.sleep(60)
            await super().write(records, transaction)

    stuck: list[str] = []

    def job() -> sc.Job:
        made = sc.Job("copies", checkpoints=sc.Checkpoints(to=tmp_path, every="1s"))
        stream = made.source(numbers(count=100, pause=0.1), name="numbers").map(lambda n: [n])
        stream.rebalance().sink(lambda: Stuck(target, lambda: None), name="out")
        return made

    async def main() -> None:
        _, old = copies.start(job())
        await asyncio.sleep(8)
        assert stuck
        new, task = copies.start(job(), take_over=True)
        await happened(new, events.JobRestored)
        with pytest.raises((sc.Fenced, sc.StorageError)):
            await old
        await task

    copies.run(main)
    assert not set(stuck) & target.committed.keys()
    assert Counter(row[0] for row in target.records("out")) == Counter(range(100))


# ---- removing


def test_data_that_is_still_being_completed_survives_the_removal_of_older_checkpoints(
    tmp_path: Path,
) -> None:
    """arroyo#802, #688, #689 (case 40): what is removed while an upload is under way is nothing
    that it refers to, and nothing of its own."""
    storage = LocalStorage(tmp_path, job="orders")
    attempt = storage.start_attempt()
    first = complete_example(storage, "orders", 1, attempt.number)
    complete_example(storage, "orders", 2, attempt.number)
    refers_to_first = first.acknowledgements[0].sections
    storage.complete(example_manifest("orders", 3, attempt.number, refers_to_first))
    own = storage.write_data(4, DATA)
    assert storage.retain(1) == [1, 2]
    storage.complete(example_manifest("orders", 4, attempt.number, own))
    assert storage.verify(3) == []
    assert storage.verify(4) == []
    storage.close()


def test_checkpoints_go_on_while_old_ones_cannot_be_removed(tmp_path: Path) -> None:
    """arroyo#1086 (case 40): a removal that fails, from the start on, fails nothing else, and is
    made up for."""
    target = Target()
    error = explain("removed", Path("data"), OSError(errno.EACCES, ""))

    job = sc.Job("tidy", checkpoints=sc.Checkpoints(to=tmp_path, every="1s", retain=1))
    stream = job.source(numbers(count=100, pause=0.1), name="numbers").map(lambda n: [n])
    stream.sink(transactional(target), name="out")

    def kept() -> int:
        return len([*(tmp_path / "tidy").glob("chk-*")])

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(5.5)
        assert kept() >= 4
        failing.stop()
        await asyncio.sleep(2)
        assert kept() == 1

    failing = mock.patch.object(LOCAL_FILES, "remove_file", side_effect=error)
    failing.start()
    try:
        result = run_job(job, use=use)
    finally:
        failing.stop()
    assert result is not None
    assert (result.failed_checkpoints, result.attempts) == (0, 1)
    assert Counter(row[0] for row in target.records("out")) == Counter(range(100))


# ---- state that expires


@dataclass
class Kept:
    value: int = 0


def test_key_that_is_refreshed_when_it_expires_keeps_its_value(tmp_path: Path) -> None:
    """quix#1129 (case 43). The sweep that was due comes behind refresh and restore."""
    target = Target()

    @sc.source(batches=True)
    async def batches(position: int = 0) -> AsyncIterator[tuple[list[int], int]]:
        moments = [(10, [1]), (5, [2, 3]), (9, [4]), (40, [5]), (10, [6])]
        for i, (seconds, values) in enumerate(moments[position:], position):
            await asyncio.sleep(seconds)
            yield values, i + 1

    def refresh(value: int, kept: Kept, ctx: sc.KeyContext[str]) -> list[list[int]]:
        before, kept.value = kept.value, value
        return [[value, before]]

    def job() -> sc.Job:
        made = sc.Job("expiring", checkpoints=sc.Checkpoints(to=tmp_path))
        keyed = made.source(batches(), name="batches").key_by(lambda n: "only")
        kept = keyed.process(refresh, state=Kept, ttl="10s", name="kept")
        kept.sink(staged(target), name="out")
        return made

    assert run_job(job(), use=killed_after(16)) is None
    run_job(job())
    # The last two are ten seconds apart: exactly the ttl.
    assert target.records("out") == [[1, 0], [2, 1], [3, 2], [4, 3], [5, 0], [6, 0]]
