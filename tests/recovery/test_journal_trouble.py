"""A journal on a disk that fails, answers that it cannot hold, ids of calls, and savepoints."""

from __future__ import annotations

import asyncio
import errno
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.observability import events
from streamcp.runners.handle import JobHandle, JobResult
from streamcp.storage.local import LocalStorage
from streamcp.testing.running import run_job
from streamcp.testing.simulation.disk import SimulatedDisk
from streamcp.testing.simulation.disk_faults import DiskFault
from tests.recovery.test_journal_after_kills import killed_after

QUESTIONS = list(range(20))


def job(ask: Callable[[int], Any], out: list[Any], **options: Any) -> sc.Job:
    async def write(records: Any) -> None:
        out.extend(records)

    made = sc.Job(
        "questions",
        checkpoints=sc.Checkpoints(to="nowhere", every=None),
        restart=sc.Restart.none(),
    )
    numbers = made.source(sc.items(QUESTIONS), name="questions")
    options = {"concurrency": 4, "journal": True} | options
    numbers.map(ask, name="ask", **options).sink(write, name="out")
    return made


def run(
    made: sc.Job, disk: SimulatedDisk, use: Callable[[JobHandle], Any] | None = None
) -> JobResult | None:
    storage = LocalStorage(Path("/cp"), job=made.name, files=disk.process().files)
    return run_job(made, storage=storage, use=use)


class Service:
    def __init__(self) -> None:
        self.asked: list[int] = []

    async def __call__(self, question: int) -> int:
        await asyncio.sleep(0.1)
        self.asked.append(question)
        return -question


def new_disk() -> SimulatedDisk:
    return SimulatedDisk(random.Random(1))


def test_full_disk_is_told_once_and_answers_count_all_the_same() -> None:
    disk, service, out = new_disk(), Service(), list[Any]()
    told: list[events.Event] = []

    async def listen(handle: JobHandle) -> None:
        handle.events.subscribe(told.append)
        await handle.wait_finished()

    disk.plan(DiskFault("write", 1, errno.ENOSPC, path="/journal/", times=3))
    result = run(job(service, out), disk, listen)
    assert result is not None
    assert out == [-question for question in QUESTIONS]
    failed = [event for event in told if isinstance(event, events.JournalFailed)]
    assert len(failed) == 1
    assert "disk full" in failed[0].error


def test_answers_behind_a_trouble_are_found() -> None:
    disk, service = new_disk(), Service()
    disk.plan(DiskFault("write", 1, errno.ENOSPC, "part", path="/journal/"))
    run(job(service, []), disk, killed_after(0.35))
    first = len(service.asked)
    disk.plan()
    run(job(service, []), disk)
    again = [question for question, count in Counter(service.asked).items() if count > 1]
    assert 0 < len(again) < first, "those of the failed group alone are asked for again"


def test_answer_that_no_snapshot_could_hold_fails_the_job_at_once() -> None:
    class Connection:
        pass

    async def connect(question: int) -> Any:
        return Connection()

    with pytest.raises(sc.JobFailed, match=r"step 'ask'.*Connection"):
        run(job(connect, []), new_disk())


def test_filter_and_for_each_may_return_what_no_snapshot_could_hold() -> None:
    class Answer:
        def __bool__(self) -> bool:
            return True

    async def answer(question: int) -> object:
        return Answer()

    made = sc.Job("questions", checkpoints=sc.Checkpoints(to="nowhere", every=None))
    numbers = made.source(sc.items(QUESTIONS), name="questions")
    kept = numbers.filter(answer, name="filter", journal=True)
    kept.for_each(answer, name="each", journal=True)
    result = run(made, new_disk())
    assert result is not None
    assert result.outcome == "finished"


class Bank:
    """Charges once per id."""

    def __init__(self) -> None:
        self.charged: Counter[str] = Counter()

    async def __call__(self, amount: int) -> int:
        key = sc.call_id()
        await asyncio.sleep(0.1 + amount % 3 / 10)
        self.charged[key] += 1
        return amount


@pytest.mark.parametrize("seconds", [0.15, 0.25, 0.35, 0.55, 0.85])
def test_replayed_answer_keeps_the_id_of_its_call_from_others(seconds: float) -> None:
    """Equal records, and a kill between their answers: each has an id of its own, in all."""
    disk, bank = new_disk(), Bank()
    for use in (killed_after(seconds), killed_after(seconds / 2), None):
        made = sc.Job("charges", checkpoints=sc.Checkpoints(to="nowhere", every="200ms"))
        amounts = made.source(sc.items([1, 2, 2, 1, 2, 2, 1, 1, 2, 2]), name="amounts")
        amounts.map(bank, name="charge", concurrency=3, journal=True).sink(sc.discard(), name="out")
        run(made, disk, use)
    assert len(bank.charged) == 10
    assert set(bank.charged.values()) == {1}


def test_savepoint_begins_without_answers(tmp_path: Path) -> None:
    service = Service()
    savepoints: list[Path] = []

    async def save(handle: JobHandle) -> None:
        await asyncio.sleep(0.15)
        savepoints.append((await handle.savepoint(tmp_path / "savepoints")).path)
        await asyncio.sleep(0.2)
        raise asyncio.CancelledError

    here = sc.Checkpoints(to=tmp_path, every=None)
    run_job(job(service, []), use=save, checkpoints=here)
    asked = set(service.asked)
    service.asked.clear()
    run_job(job(service, []), restore=savepoints[0], fresh=True, checkpoints=here)
    assert asked & set(service.asked), "what was answered behind the savepoint is asked for again"
    assert asked | set(service.asked) == set(QUESTIONS)


@dataclass
class Seen:
    """A state whose entries are stored one by one."""

    numbers: sc.ListState[int] = field(default_factory=sc.ListState)


def test_state_with_entries_stored_one_by_one_is_replayed_as_it_was() -> None:
    disk, asked, out = new_disk(), list[int](), list[Any]()

    async def ask(number: int, seen: Seen, ctx: sc.KeyContext[int]) -> list[int]:
        await asyncio.sleep(0.2)
        asked.append(number)
        seen.numbers.append(number)
        return [sum(seen.numbers)]

    async def write(records: Any) -> None:
        out.extend(records)

    for use in (killed_after(0.9), killed_after(0.7), None):
        made = sc.Job("sums", checkpoints=sc.Checkpoints(to="nowhere", every="500ms"))
        keyed = made.source(sc.items(QUESTIONS), name="numbers").key_by(lambda number: number % 3)
        keyed.process(ask, name="ask", state=Seen, journal=True).sink(write, name="out")
        run(made, disk, use)
    assert sorted(asked) == QUESTIONS
    expected = [sum(range(number % 3, number + 1, 3)) for number in QUESTIONS]
    assert set(out) == set(expected)
