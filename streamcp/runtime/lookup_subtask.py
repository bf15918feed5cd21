"""The task of a lookup step: a record is answered from what is known, or waits for one call.

Records are sorted out as they are admitted: those whose answer is known have their result at once,
and never meet the pool, its rates and its breaker; of those that ask for one key the first one
leads, and is the call; the others follow, and share its outcome. All of them are in the pending
list, so a snapshot holds them as records, whoever leads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Hashable
from typing import Any

from streamcp.checkpoint.snapshot import SectionKind
from streamcp.operators.steps import LookupStep
from streamcp.runtime.async_subtask import AsyncSubtask
from streamcp.runtime.lookups import Answers
from streamcp.runtime.pending import Ticket

Asker = tuple["LookupSubtask", Ticket]


class LookupSubtask(AsyncSubtask):
    """Runs `lookup`: `combine(record, answer)`, where `fetch(key(record))` gives the answer."""

    def prepare(self) -> None:
        """Wire the step and what is fused behind it."""
        super().prepare()
        spec = self._node.spec
        assert isinstance(spec, LookupStep)
        self._fetch = self._call if self._timed else self._fn
        self._key = spec.key
        self._combine = spec.combine
        self._answers_known: Answers[Asker] = self.context.answers_of(
            self._node.label, spec.cache, spec.ttl
        )
        self._leaders: deque[Ticket] = deque()
        self._asking: dict[Ticket, Hashable] = {}
        self.start, self.direct, self.in_place = self._leaders.popleft, None, False

    # ---- sorting out

    def admit_records(self, records: list[Any]) -> None:
        """Append records to the pending list."""
        super().admit_records(records)
        self._sort_out()

    def restore(self, kind: SectionKind, name: str, values: list[Any]) -> None:
        """Take back the pending list, or the state of a fused step."""
        super().restore(kind, name, values)
        if kind == "pending":
            self._sort_out()

    def _sort_out(self) -> None:
        while self._pending.waiting:
            self._sort(self._pending.start())

    def _sort(self, ticket: Ticket) -> None:
        """Answer a record, or let it lead or follow.

        A function of the user that fails here makes a call of the record, which fails again: here
        a failure could not be told, for the records are not admitted yet."""
        [record] = self.record_of(ticket)
        try:
            key = self._key(record)
            known = self._answers_known.known(key)
            if known:
                result = self._combine(record, known[0])
        except Exception:  # whatever a user's function, or the hash of a key, raises
            self._leaders.append(ticket)
            return
        if known:
            self._step_meter.cache_hits += 1
            self._finish(ticket, result)
        elif self._answers_known.asks(key, (self, ticket)):
            self._step_meter.cache_misses += 1
            self._asking[ticket] = key
            self._leaders.append(ticket)
        else:
            self._step_meter.cache_hits += 1

    # ---- what the pool asks

    @property
    def waiting(self) -> int:
        """Calls that could be started."""
        return len(self._leaders)

    def call(self, ticket: Ticket, attempt: int) -> Awaitable[Any]:
        """Begin an attempt."""
        if ticket not in self._asking:
            return self._alone(ticket)
        asked: Awaitable[Any] = self._fetch(self._asking[ticket])
        return asked

    async def _alone(self, ticket: Ticket) -> Any:
        """Give the answer for a record that failed when it was sorted out, or fail as it did."""
        [record] = self.record_of(ticket)
        key = self._key(record)
        known = self._answers_known.known(key)
        return known[0] if known else await self._fetch(key)

    def content_of(self, ticket: Ticket) -> tuple[Hashable, Any]:
        """What is asked for: the same call whichever record leads."""
        if ticket in self._asking:
            return None, self._asking[ticket]
        return super().content_of(ticket)

    def succeeded(self, ticket: Ticket, result: Any) -> None:
        """Keep the answer, and answer all that waited for it."""
        self._answer(ticket, result)
        if ticket in self._asking:
            for subtask, follower in self._answers_known.answered(self._asking.pop(ticket), result):
                subtask._answer(follower, result)

    def _answer(self, ticket: Ticket, answer: Any) -> None:
        [record] = self.record_of(ticket)
        try:
            result = self._combine(record, answer)
        except Exception as error:  # whatever a user's function raises
            self._failed_alone(ticket, error, 1)
        else:
            self._finish(ticket, result)
            self.tell()

    def failed(self, ticket: Ticket, error: Exception, attempts: int) -> None:
        """Fail the job, or keep the failure for all that waited for the answer."""
        followers: list[Asker] = []
        if ticket in self._asking:
            followers = self._answers_known.failed(self._asking.pop(ticket))
        self._failed_alone(ticket, error, attempts)
        for subtask, follower in followers:
            subtask._failed_alone(follower, error, attempts)

    def _failed_alone(self, ticket: Ticket, error: Exception, attempts: int) -> None:
        super().failed(ticket, error, attempts)
