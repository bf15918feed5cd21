"""The marks of event time in the pending list of a keyed step, and what is open before each (P21).

Entries leave such a list in any order, so each has the number of marks that came before it, its
epoch, and a mark goes on when no entry of its epoch or an earlier one is open. Plain numbers: it
knows neither keys nor timers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Protocol, TypeVar

from streamcp.elements import Mark, Watermark
from streamcp.runtime.pending import says_all, stored_mark


class _Numbered(Protocol):
    epoch: int


E = TypeVar("E", bound=_Numbered)


class PendingMarks:
    """Marks in their order. `epoch` is that of what is admitted now."""

    __slots__ = ("_first", "_open", "epoch", "marks")

    def __init__(self) -> None:
        self.marks: deque[Mark] = deque()
        self.epoch = 0
        self._first = 0  # the epoch before the first mark
        self._open: deque[int] = deque((0,))  # per epoch, from the first on

    def __bool__(self) -> bool:
        """There are marks."""
        return bool(self.marks)

    def add(self, mark: Mark) -> None:
        """Put a mark behind all entries; of two side by side the later one may say all."""
        if self.marks and not self._open[-1] and says_all(mark, self.marks[-1]):
            self.marks[-1] = mark
            return
        self.marks.append(mark)
        self._open.append(0)
        self.epoch += 1

    def _place(self, epoch: int) -> int:
        """Where an epoch stands among those that are left; the past ones are in the first."""
        return max(0, epoch - self._first)

    def opened(self, epoch: int) -> None:
        """An entry has come."""
        self._open[self._place(epoch)] += 1

    def closed(self, epoch: int) -> None:
        """An entry has left."""
        self._open[self._place(epoch)] -= 1

    @property
    def due(self) -> Mark | None:
        """The first mark, if nothing is open before it."""
        return self.marks[0] if self.marks and not self._open[0] else None

    def pass_first(self) -> None:
        """The first mark has gone on."""
        self.marks.popleft()
        self._open.popleft()
        self._first += 1

    # ---- watermarks

    @property
    def newest_watermark(self) -> int | None:
        """The last watermark among the marks."""
        return next((m.timestamp for m in reversed(self.marks) if isinstance(m, Watermark)), None)

    def watermark_before(self, epoch: int, passed: int) -> int:
        """What has been announced before an entry of `epoch`; `passed` has gone on already."""
        before = list(islice(self.marks, self._place(epoch)))
        return next((m.timestamp for m in reversed(before) if isinstance(m, Watermark)), passed)

    def watermark_at(self, epoch: int, passed: int) -> int:
        """The first watermark behind the entries of `epoch`: what has made its timers due."""
        behind = islice(self.marks, self._place(epoch), None)
        return next((m.timestamp for m in behind if isinstance(m, Watermark)), passed)

    def epoch_of(self, timestamp: int) -> int:
        """The epoch of a timer: it comes before the first watermark that makes it due."""
        for number, mark in enumerate(self.marks):
            if isinstance(mark, Watermark) and mark.timestamp >= timestamp:
                return self._first + number
        return self.epoch

    def between(
        self, entries: Iterable[E], stored: Callable[[E], tuple[int, Any]]
    ) -> list[tuple[int, Any]]:
        """List entries as they are stored, in the order of their epochs, with the marks where
        they stand."""
        by_epoch: list[list[tuple[int, Any]]] = [[] for _ in self._open]
        for entry in entries:
            by_epoch[self._place(entry.epoch)].append(stored(entry))
        listed = by_epoch[0]
        for mark, behind in zip(self.marks, by_epoch[1:], strict=True):
            listed += [stored_mark(mark), *behind]
        return listed
