"""The journal of an attempt: makes answers durable, in groups, and lets them count (decision 0024).

Answers that come while a group is being written make the next one: there is no delay but that of
the disk, and the event loop never waits for it. An answer that cannot be written counts all the
same; it is told, once per trouble, that its call may be made again.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from streamcp.checkpoint.journal import (
    Answer,
    AnswersOfSubtask,
    JournalHead,
    JournalSegments,
    LeftAnswers,
    by_step,
)
from streamcp.clock import Clock
from streamcp.errors import StorageError
from streamcp.observability import events
from streamcp.runtime.waking import Wakeup
from streamcp.storage.contract import JournalStorage
from streamcp.storage.in_thread import in_thread

_logger = logging.getLogger(__name__)

Classes = Callable[[], Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class _Queued:
    """An answer that has come; `counts` lets it take effect."""

    answer: Answer
    owner: AnswersOfSubtask
    counts: Callable[[], None]


class Journal:
    """The journal of one attempt, for all its steps. `left` are the answers that were found, per
    step; `head` says whose it is."""

    def __init__(
        self,
        storage: JournalStorage,
        head: JournalHead,
        left: Sequence[Answer],
        *,
        classes: Classes,
        clock: Clock,
        report: Callable[[events.Event], object],
    ) -> None:
        """Carry over what is `left`, whose values have the numbers of `classes`."""
        self.head = head
        self.left: Mapping[str, LeftAnswers] = defaultdict(LeftAnswers, by_step(left))
        self._carried = left
        self._storage = storage
        self._classes = classes
        self._clock = clock
        self._report = report
        self._serials = count(len(left) + 1)
        self._segments = JournalSegments(answer.serial for answer in left)
        self._queue: deque[_Queued] = deque()
        self._covered: list[int] = []
        self._wakeup = Wakeup()
        self._in_trouble = False

    # ---- what subtasks ask

    def add(self, owner: AnswersOfSubtask, counts: Callable[[], None], **answer: Any) -> None:
        """Queue an answer of `owner`, given by the fields of `Answer` but `serial`, `cut` and `at`.
        `counts` is called once it is durable, or cannot be made so."""
        serial, at = next(self._serials), self._clock.wall_ms()
        owner.came(serial)
        made = Answer(serial=serial, cut=owner.cut, at=at, **answer)
        self._queue.append(_Queued(made, owner, counts))
        self._wakeup.set()

    def take(
        self, owner: AnswersOfSubtask, step: str, content: bytes, state: bytes
    ) -> Answer | None:
        """Take the answer that is left of a call; from then on it counts. None if there is none."""
        answer = self.left[step].take(content, state)
        if answer is not None:
            owner.used(answer.serial)
            self._segments.counts(answer.serial, owner.cut)
        return answer

    def numbers_of(self, step: str) -> list[tuple[bytes, int]]:
        """The contents and numbers of the calls of a step whose answers were found."""
        return [
            (one.content, one.number)
            for one in self._carried
            if one.step == step and one.number is not None
        ]

    def completed(self, checkpoint_id: int) -> None:
        """A checkpoint is complete: what it covers is needed no more."""
        self._covered += self._segments.completed(checkpoint_id)
        if self._covered:
            self._wakeup.set()

    # ---- the disk

    async def begin(self) -> None:
        """Make what is carried over this attempt's own, durably, before anything runs.

        Raises StorageError: a disk that cannot do it cannot begin an attempt either."""
        await in_thread(self._storage.begin, self.head, self._classes(), self._carried)

    async def run(self) -> None:
        """Write what comes, until cancelled. Raises what an answer raises when it counts."""
        while True:
            while self._queue or self._covered:
                await self._write_group()
                await self._tidy_up()
            await self._wakeup.wait()

    async def finish(self, *, is_over: bool) -> None:
        """The attempt has ended: write what has come, which counts here no more; if the job is
        over, remove everything."""
        try:
            group = self._take_queue()
            if group and not is_over:
                await self._write(group)
            if is_over:
                self._covered += self._segments.everything()
            await self._tidy_up()
        finally:  # also if it is cancelled
            await in_thread(self._storage.close)

    def _take_queue(self) -> list[_Queued]:
        taken = list(self._queue)
        self._queue.clear()
        return taken

    async def _write_group(self) -> None:
        group = self._take_queue()
        if not group:
            return
        await self._write(group)
        for one in group:
            serial, owner = one.answer.serial, one.owner
            owner.counts(serial)
            self._segments.counts(serial, owner.cut)
            one.counts()

    async def _write(self, group: Sequence[_Queued]) -> None:
        # Before it is: a checkpoint that completes meanwhile must not have the segment removed.
        segment = self._segments.hold(one.answer.serial for one in group)
        written = False
        try:
            written = await self._try(partial(self._append, segment, group))
        finally:
            if not written:  # or it is not known, since this was cancelled
                # A part of it may be there; what came behind it would not be read.
                self._segments.leave(segment)

    async def _tidy_up(self) -> None:
        covered, self._covered = self._covered, []
        if covered:
            await in_thread(self._storage.remove, covered)

    def _append(self, segment: int, group: Sequence[_Queued]) -> None:
        answers = [one.answer for one in group]
        self._storage.append(segment, self._classes(), answers)

    async def _try(self, call: Callable[[], None]) -> bool:
        """Let a thread call; False if the disk fails, which is told once."""
        try:
            await in_thread(call)
        except StorageError as error:
            self._tell(error)
            return False
        self._in_trouble = False
        return True

    def _tell(self, error: StorageError) -> None:
        if self._in_trouble:
            return
        self._in_trouble = True
        self._report(events.JournalFailed(self._clock.wall_ms(), str(error)))
        _logger.warning(
            "answers are not journaled for now, so their calls may be made again after a crash: %s",
            error,
        )
