"""The end of a journal: what is written stays readable, and its file is closed."""

from __future__ import annotations

import asyncio
import threading

import pytest

from streamcp.checkpoint.journal import AnswersOfSubtask, JournalHead
from streamcp.errors import StorageError
from streamcp.runtime.journal import Journal
from streamcp.testing.clock import ManualClock


class StuckStorage:
    """Appends only when it may; the first time it fails then. Says what was appended to, and
    whether it was closed behind that."""

    def __init__(self) -> None:
        self.appends = threading.Event()
        self.may_append = threading.Event()
        self.segments: list[int] = []
        self.is_open = False

    def append(self, segment: int, *appended: object) -> None:
        self.appends.set()
        self.may_append.wait()
        self.is_open = True
        self.segments.append(segment)
        if len(self.segments) == 1:
            raise StorageError("disk full")

    def close(self) -> None:
        self.is_open = False


def journal_with_an_answer(storage: StuckStorage) -> Journal:
    journal = Journal(
        storage,  # type: ignore[arg-type]  # as much of one as is used here
        JournalHead(1, 0),
        [],
        classes=list,
        clock=ManualClock(),
        report=lambda event: None,
    )
    answer(journal)
    return journal


def answer(journal: Journal) -> None:
    given = {"step": "ask", "content": bytes(16), "state": b"", "number": None, "value": b"1"}
    journal.add(AnswersOfSubtask(0), lambda: None, **given)


async def cancelled_while_it_appends(task: asyncio.Task[None], storage: StuckStorage) -> None:
    await asyncio.to_thread(storage.appends.wait)
    task.cancel()
    await asyncio.sleep(0)
    storage.may_append.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_file_is_closed_although_the_job_is_cancelled_while_the_journal_ends() -> None:
    storage = StuckStorage()
    journal = journal_with_an_answer(storage)
    ending = asyncio.create_task(journal.finish(is_over=False))
    await cancelled_while_it_appends(ending, storage)
    assert storage.segments
    assert not storage.is_open


async def test_nothing_is_appended_behind_a_group_of_which_only_a_part_may_be_there() -> None:
    """The job ends while the group is being written, so nobody sees that it has failed."""
    storage = StuckStorage()
    journal = journal_with_an_answer(storage)
    await cancelled_while_it_appends(asyncio.create_task(journal.run()), storage)
    answer(journal)
    await journal.finish(is_over=False)
    failed, written = storage.segments
    assert written > failed
