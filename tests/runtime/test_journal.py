"""The end of a journal: whatever comes in between, its file is closed."""

from __future__ import annotations

import asyncio
import threading

import pytest

from streamcp.checkpoint.journal import AnswersOfSubtask, JournalHead
from streamcp.runtime.journal import Journal
from streamcp.testing.clock import ManualClock


class StuckStorage:
    """Appends only when it may; says whether it was closed behind that."""

    def __init__(self) -> None:
        self.appends = threading.Event()
        self.may_append = threading.Event()
        self.is_open = False

    def append(self, *appended: object) -> None:
        self.appends.set()
        self.may_append.wait()
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


async def test_file_is_closed_although_the_job_is_cancelled_while_the_journal_ends() -> None:
    storage = StuckStorage()
    journal = Journal(
        storage,  # type: ignore[arg-type]  # as much of one as is used here
        JournalHead(1, 0),
        [],
        classes=list,
        clock=ManualClock(),
        report=lambda event: None,
    )
    journal.add(
        AnswersOfSubtask(0),
        lambda: None,
        step="ask",
        content=bytes(16),
        state=b"",
        number=None,
        value=b"1",
    )
    ending = asyncio.create_task(journal.finish(is_over=False))
    await asyncio.to_thread(storage.appends.wait)
    ending.cancel()
    await asyncio.sleep(0)
    storage.may_append.set()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert not storage.is_open
