"""The pending list of an async step: records, and results that wait for their turn (P20 to P22).

Entries are in arrival order. They are kept in chunks (the records admitted at once) rather than
one object per record, which would cost more than the call itself. A record that could be changed
while a coroutine has it is kept in frozen form.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import IntEnum
from itertools import repeat
from typing import Any

from streamcp.elements import MAX_TIMESTAMP, Mark, Watermark
from streamcp.errors import SerializationError
from streamcp.runtime.event_time import content_of_mark, mark_of
from streamcp.serialization.captured import Captured
from streamcp.serialization.immutable import all_immutable, is_deeply_immutable
from streamcp.serialization.serializer import Serializer


class Status(IntEnum):
    """What an entry of a pending list holds."""

    RECORD = 0  # a record whose call has not returned: it is called again
    RESULT = 1  # a result that was not emitted: it is emitted, not called again
    FAILURE = 2  # a failure that was not diverted yet
    FROZEN_RECORD = 3  # a record, as bytes of this process: never stored
    RIGHT_RECORD = 5  # the same two of a step's second input (4 is a due timer of a keyed step)
    RIGHT_FROZEN_RECORD = 6
    WATERMARK = 7  # between the entries: its content is the timestamp
    IDLE_STATUS = 8
    # (9 is a due event-time timer of a keyed step.) With the watermark that it is judged by, since
    # it is no longer among those that it came with: the content is (record, watermark).
    JUDGED_RECORD = 10
    JUDGED_RIGHT_RECORD = 11


# Plain numbers, which are stored: looked up for every pending record while a barrier passes, and
# `Status.RECORD.value` is slower than all that is done with it.
_RECORD, _RESULT, _FAILURE, _FROZEN_RECORD = (
    status.value for status in (Status.RECORD, Status.RESULT, Status.FAILURE, Status.FROZEN_RECORD)
)

JUDGED: dict[int, int] = {
    Status.RECORD.value: Status.JUDGED_RECORD.value,
    Status.RIGHT_RECORD.value: Status.JUDGED_RIGHT_RECORD.value,
}
"""What becomes of the records of a keyed step that leave the list in which they were."""

MARKS = (Status.WATERMARK.value, Status.IDLE_STATUS.value)
"""Of what is between the entries, and no entry."""


def says_all(mark: Mark, before: object) -> bool:
    """Say whether a mark makes one of its kind just before it needless. The end of time does not:
    timers that set the next go on up to the watermark before it."""
    return type(mark) is type(before) and mark != Watermark(MAX_TIMESTAMP)


def stored_mark(mark: Mark) -> tuple[int, Any]:
    """A mark as it is stored between the entries."""
    status = Status.WATERMARK if isinstance(mark, Watermark) else Status.IDLE_STATUS
    return status.value, content_of_mark(mark)


THAWED: dict[int, Status] = {
    Status.FROZEN_RECORD: Status.RECORD,
    Status.RIGHT_FROZEN_RECORD: Status.RIGHT_RECORD,
}
"""What is stored of a record that is kept in frozen form."""


class CapturedPending(Captured):
    """A pending list at the cut, a list of (status, content).

    Frozen records are thawed when the list is written: their bytes have the class numbers of this
    process and attempt, which another one could not read (rule P37)."""

    __slots__ = ("_own",)

    def __init__(
        self, entries: Callable[[], list[tuple[int, Any]]], serializer: Serializer, *, step: str
    ) -> None:
        """Capture what `entries()` of `step` lists, as it was at the cut: it is called late, since
        listing hundreds of records takes longer than all else while the barrier passes."""
        super().__init__(entries, serializer, step=step)
        self._own = serializer

    def freeze(self) -> None:
        """Serialize the list, once. Never raises: a failure is kept in `error`."""
        if self.frozen is None and self.error is None:
            try:
                self.value = [self._thawed(*entry) for entry in self.value()]
            except SerializationError as error:
                self.error = error
        super().freeze()

    def _thawed(self, status: int, content: Any) -> tuple[int, Any]:
        if status in THAWED:
            return THAWED[status].value, self._own.loads(content)
        return status, content


class _Missing:
    """A call that has not returned."""

    __slots__ = ()


class Failed:
    """The outcome of a call that failed; `failure` is None where it is dropped."""

    __slots__ = ("failure",)

    def __init__(self, failure: Any) -> None:
        self.failure = failure


MISSING: Any = _Missing()
EMITTED: Any = _Missing()

Ticket = tuple["Chunk", int]


class Chunk:
    """Records admitted together; `results[i]` belongs to `records[i]`."""

    __slots__ = ("first", "frozen", "open", "records", "results", "segment")

    def __init__(self, records: list[Any], segment: int = 0) -> None:
        self.records = records
        self.segment = segment  # how many marks have come before it
        self.results: list[Any] = [MISSING] * len(records)
        self.frozen: dict[int, bytes] | None = None
        self.first = 0  # the first whose result has not been emitted (ordered)
        self.open = len(records)  # how many have not been emitted

    def as_it_is(self) -> Chunk:
        """Copy what may change. Nothing that is pending is touched: there may be a lot of it."""
        chunk = Chunk.__new__(Chunk)
        chunk.records, chunk.frozen, chunk.results = self.records, self.frozen, self.results[:]
        return chunk

    def entries(self) -> list[tuple[int, Any]]:
        """List what is pending as (status, content)."""
        pending = enumerate(self.results)
        return [self._entry(i, result) for i, result in pending if result is not EMITTED]

    def _entry(self, i: int, result: Any) -> tuple[int, Any]:
        if result is MISSING:
            if self.frozen is not None and i in self.frozen:
                return _FROZEN_RECORD, self.frozen[i]
            return _RECORD, self.records[i]
        if type(result) is Failed:
            return _FAILURE, result.failure
        return _RESULT, result


def _entries(one: Chunk | Mark) -> list[tuple[int, Any]]:
    return one.entries() if type(one) is Chunk else [stored_mark(one)]  # type: ignore[arg-type]


class PendingList:
    """What an async step without state holds.

    `count` is the number of entries, `failures` that of the `Failed` among them. Ordered: results
    are emitted in the order of their records; else in the order in which they come, but not across
    one of the `marks` that stand between the entries (rule P22)."""

    def __init__(self, *, ordered: bool, serializer: Serializer, step: str, keep: bool) -> None:
        """With `keep`, records must stay as they came: for snapshots and retries."""
        self.count = 0
        self.failures = 0
        self._ordered = ordered
        self._serializer = serializer
        self._step = step
        self._keep = keep
        self.marks: deque[Mark] = deque()
        self._chunks: deque[Chunk | Mark] = deque()
        self._ready: deque[Ticket] = deque()
        self._finished: deque[Ticket] = deque()
        self._passed = 0  # marks that have gone on
        self._later: dict[int, deque[Ticket]] = {}  # finished behind a mark, by segment
        # Takes the next record to be called, in order of arrival; IndexError if there is none.
        self.start: Callable[[], Ticket] = self._ready.popleft

    @property
    def waiting(self) -> int:
        """Records whose call has not been started."""
        return len(self._ready)

    def admit(self, records: list[Any]) -> None:
        """Append records."""
        chunk = Chunk(records, self._passed + len(self.marks))
        if self._keep and not all_immutable(records):
            self._freeze_mutable(chunk)
        self._chunks.append(chunk)
        self.count += len(records)
        self._ready.extend(zip(repeat(chunk), range(len(records)), strict=False))

    # ---- marks

    def mark(self, mark: Mark) -> None:
        """Put a mark behind all entries; of two side by side the later one may say all."""
        if self._chunks and says_all(mark, self._chunks[-1]):
            self._chunks[-1] = self.marks[-1] = mark
        else:
            self._chunks.append(mark)
            self.marks.append(mark)

    @property
    def due_mark(self) -> Mark | None:
        """The mark before which no entry is left."""
        first = self._chunks[0] if self.marks else None
        return None if first is None or type(first) is Chunk else self.marks[0]

    def pass_mark(self) -> None:
        """The due mark has gone on: what has finished behind it may be emitted."""
        self._chunks.popleft()
        self.marks.popleft()
        self._passed += 1
        self._finished.extend(self._later.pop(self._passed, ()))

    def _freeze_mutable(self, chunk: Chunk) -> None:
        for i, record in enumerate(chunk.records):
            if not is_deeply_immutable(record):
                if chunk.frozen is None:
                    chunk.frozen = {}
                try:
                    chunk.frozen[i] = self._serializer.dumps(record, step=self._step)
                except SerializationError:
                    # A snapshot that must hold it declines its checkpoint, with the reason.
                    continue

    def record(self, ticket: Ticket, attempt: int) -> Any:
        """The record of a call; for a further attempt as it came, whatever the first one did."""
        chunk, i = ticket
        if attempt > 1 and chunk.frozen is not None and i in chunk.frozen:
            return self._serializer.loads(chunk.frozen[i])
        return chunk.records[i]

    def has_ended(self, ticket: Ticket) -> bool:
        """Say whether a call has come to its result, or failure."""
        chunk, i = ticket
        return chunk.results[i] is not MISSING

    def finish(self, ticket: Ticket, result: Any) -> None:
        """Take a result (or a `Failed`)."""
        chunk, i = ticket
        chunk.results[i] = result
        if type(result) is Failed:
            self.failures += 1
        if not self._ordered:
            self._finished_of(chunk).append(ticket)

    def _finished_of(self, chunk: Chunk) -> deque[Ticket]:
        """Where what has finished of a chunk waits: for room, or for the marks before it."""
        if chunk.segment == self._passed:
            return self._finished
        return self._later.setdefault(chunk.segment, deque())

    def take_results(self, limit: int) -> list[Any]:
        """Take up to `limit` results that may be emitted now, in their order."""
        results = self._take_ordered(limit) if self._ordered else self._take_finished(limit)
        self.count -= len(results)
        if self.failures:
            self.failures -= sum(type(result) is Failed for result in results)
        return results

    def _take_ordered(self, limit: int) -> list[Any]:
        taken: list[Any] = []
        chunks = self._chunks
        while chunks and len(taken) < limit:
            chunk = chunks[0]
            if type(chunk) is not Chunk:
                break
            results, first = chunk.results, chunk.first
            end = min(len(results), first + limit - len(taken))
            i = first
            while i < end and results[i] is not MISSING:
                i += 1
            taken += results[first:i]
            results[first:i] = [EMITTED] * (i - first)
            chunk.first = i
            if i < len(results):
                break
            chunks.popleft()
        return taken

    def _take_finished(self, limit: int) -> list[Any]:
        taken: list[Any] = []
        finished = self._finished
        while finished and len(taken) < limit:
            chunk, i = finished.popleft()
            taken.append(chunk.results[i])
            chunk.results[i] = EMITTED
            chunk.open -= 1
        chunks = self._chunks
        while chunks and type(oldest := chunks[0]) is Chunk and oldest.open == 0:
            chunks.popleft()
        return taken

    # ---- snapshot and restore

    def cut(self) -> Callable[[], list[tuple[int, Any]]]:
        """Return what lists the pending entries as they are now, as (status, content) in order of
        arrival."""
        chunks = [one.as_it_is() if type(one) is Chunk else one for one in self._chunks]
        return lambda: [entry for one in chunks for entry in _entries(one)]

    def restore(self, entries: Iterable[tuple[int, Any]]) -> None:
        """Put a list back as it was: results keep their places and are not called again."""
        between: list[tuple[int, Any]] = []
        for status, content in entries:
            if status in MARKS:
                self._restore(between)
                between = []
                self.mark(mark_of(content))
            else:
                between.append((status, content))
        self._restore(between)

    def _restore(self, entries: Iterable[tuple[int, Any]]) -> None:
        records: list[Any] = []
        results: list[Any] = []
        for status, content in entries:
            match Status(status):
                case Status.RECORD:
                    records.append(content)
                    results.append(MISSING)
                case Status.RESULT:
                    records.append(None)
                    results.append(content)
                case Status.FAILURE:
                    records.append(None)
                    results.append(Failed(content))
                    self.failures += 1
        chunk = Chunk(records, self._passed + len(self.marks))
        chunk.results = results
        if self._keep:
            self._freeze_mutable(chunk)
        if records:
            self._chunks.append(chunk)
            self.count += len(records)
            self._ready.extend((chunk, i) for i, one in enumerate(results) if one is MISSING)
            if not self._ordered:
                finished = ((chunk, i) for i, one in enumerate(results) if one is not MISSING)
                self._finished_of(chunk).extend(finished)
