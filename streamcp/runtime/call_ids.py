"""Ids of calls, by which a service can tell that a call is made again (decision 0017).

An id is made of the job's life, the step, the content of what is called for, and a number: how
often that content was called for before. A call that is made again after a restore has the same
content, and finds the same number: the next numbers are in the snapshot, and so are the numbers
of calls that had not ended.

Counting each content apart would need a memory of every record that ever passed. So contents
share counters: one of `BUCKETS`, by its digest. The numbers of one content still never repeat,
so no id is ever given twice; but they depend on how contents with the same counter are mixed.
Plain synchronous code: knows no task, no call and no file.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeAlias

from xxhash import xxh3_128_hexdigest

# A record that others overtake after a restore finds another number with a chance of one in so
# many per record.
BUCKETS = 65_536
# Counters are kept and written in pages, and only pages that were used.
_PAGE = 256

Pages: TypeAlias = tuple[tuple[int, bytes], ...]
Number: TypeAlias = tuple[bytes, int]
"""Digest of a content, and its number."""
OpenCall: TypeAlias = tuple[Hashable, bytes, int]
"""Key of the record, digest of the content, and its number, of a call that has not ended."""


class Numbers:
    """The next number of the contents of each bucket: larger than all that were given."""

    __slots__ = ("_pages",)

    def __init__(self) -> None:
        self._pages: dict[int, array[int]] = {}

    def give(self, content: bytes) -> int:
        """Give the next number for a content."""
        counters, place = self._place(content)
        number = counters[place]
        counters[place] = number + 1
        return number

    def given(self, content: bytes, number: int) -> None:
        """Another one has given a number for a content."""
        counters, place = self._place(content)
        counters[place] = max(counters[place], number + 1)

    def join(self, pages: Pages) -> None:
        """Take what others have given into account."""
        for page, other in pages:
            counters, others = self._page(page), array("Q")
            others.frombytes(other)
            counters[:] = array("Q", map(max, counters, others))

    def pages(self) -> Pages:
        """Give all that is known, as plain values."""
        return tuple((page, counters.tobytes()) for page, counters in self._pages.items())

    def _place(self, content: bytes) -> tuple[array[int], int]:
        page, place = divmod(int.from_bytes(content[:8], "little") % BUCKETS, _PAGE)
        return self._page(page), place

    def _page(self, page: int) -> array[int]:
        if page not in self._pages:
            self._pages[page] = array("Q", bytes(8 * _PAGE))
        return self._pages[page]


class StepCallIds:
    """What the subtasks of a step share, so that equal records in different ones have different
    ids, and a record the same one, whichever it comes to. `life` is what tells the runs of a job
    apart that have nothing to do with each other."""

    __slots__ = ("_answered", "_prefix", "numbers")

    def __init__(self, job: str, step: str, life: str, answered: Iterable[Number] = ()) -> None:
        """`answered` are numbers of calls behind the restored checkpoint whose answers were found:
        nobody else may get them."""
        self._prefix = f"{life} {len(job)} {job} {step}"
        self._answered = frozenset(answered)
        self.numbers = Numbers()

    def give(self, content: bytes) -> int:
        """Give the next number for a content that no answered call has."""
        while self.is_answered(content, number := self.numbers.give(content)):
            pass
        return number

    def is_answered(self, content: bytes, number: int) -> bool:
        """A number is that of a call whose answer was found."""
        return (content, number) in self._answered

    def text(self, number: Number) -> str:
        """An id as users see it: 32 hexadecimal digits."""
        content, count = number
        return xxh3_128_hexdigest(f"{self._prefix} {content.hex()} {count}".encode())


class SubtaskCallIds:
    """The ids that one subtask has given: by `ticket`, as long as its call has not ended.

    Its snapshot holds the largest numbers that it has given itself. Subtasks are cut at different
    moments: what others have given belongs to theirs, or was given behind the cut."""

    __slots__ = ("_calls", "_left", "_numbers", "_step")

    def __init__(self, step: StepCallIds) -> None:
        self._step = step
        self._numbers = Numbers()
        self._calls: dict[Any, tuple[Hashable, Number]] = {}
        self._left: dict[bytes, list[tuple[Hashable, int]]] = {}  # of calls before the restore

    def __len__(self) -> int:
        """Count the calls that are remembered."""
        return len(self._calls)

    def of(self, ticket: Any, key: Hashable, content: bytes) -> str:
        """The id of a call for `content`; `key` is that of its record, None without one.

        A number that was given before the restore, to a call of the same content that had not
        ended, is given first: calls of one content can take each other's place."""
        if ticket not in self._calls:
            count = self._take_left(content)
            if count is None:
                count = self._step.give(content)
                self._numbers.given(content, count)
            self._calls[ticket] = key, (content, count)
        return self._step.text(self._calls[ticket][1])

    def _take_left(self, content: bytes) -> int | None:
        left = self._left.get(content, [])
        while left:
            _, count = left.pop(0)
            if not left:
                del self._left[content]
            if not self._step.is_answered(content, count):
                return count
        return None

    def number_of(self, ticket: Any) -> int | None:
        """The number of a call that has not ended; None if its id was never asked for."""
        known = self._calls.get(ticket)
        return None if known is None else known[1][1]

    def answered(self, content: bytes, number: int) -> None:
        """A call before the restore had this number, and its answer was found."""
        self._numbers.given(content, number)

    def forget(self, has_ended: Callable[[Any], bool]) -> None:
        """Forget the calls that have ended."""
        self._calls = {
            ticket: known for ticket, known in self._calls.items() if not has_ended(ticket)
        }

    # ---- snapshot and restore

    def snapshot(self) -> tuple[Pages, list[OpenCall]]:
        """Give the numbers, and the calls that have not ended: `forget` the others first."""
        open_calls: list[OpenCall] = [(key, *number) for key, number in self._calls.values()]
        for content, left in self._left.items():
            open_calls += [(key, content, count) for key, count in left]
        return self._numbers.pages(), open_calls

    def restore(self, pages: Pages, open_calls: Iterable[OpenCall]) -> None:
        """Take a snapshot back, also several."""
        self._numbers.join(pages)
        self._step.numbers.join(pages)
        for key, content, count in open_calls:
            left = self._left.setdefault(content, [])
            left.append((key, count))
            left.sort(key=lambda one: one[1])
