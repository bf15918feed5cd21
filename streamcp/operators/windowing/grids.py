"""Grids: event time divided into windows that follow one another without a gap.

Plain arithmetic over milliseconds; only a calendar grid asks a time zone. Knows nothing of
records and keys.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from streamcp.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from streamcp.operators.windows import CalendarUnit

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_FIRST_DAY = date(1970, 1, 1).toordinal()
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


class Grid(Protocol):
    """Windows by their starts."""

    def start_of(self, timestamp: int, /) -> int:
        """Return the start of the window that holds `timestamp`."""
        ...

    def end_of(self, start: int, /) -> int:
        """Return the end of the window that begins at `start`: the start of the next."""
        ...


class FixedGrid:
    """Windows of one size; one of them begins at `offset`."""

    __slots__ = ("offset", "size")

    def __init__(self, size: int, offset: int) -> None:
        self.size = size
        self.offset = offset % size

    def start_of(self, timestamp: int, /) -> int:
        """Return the start of the window that holds `timestamp`."""
        return timestamp - (timestamp - self.offset) % self.size

    def end_of(self, start: int, /) -> int:
        """Return the end of the window that begins at `start`."""
        return start + self.size


class GlobalGrid:
    """One window that holds everything."""

    __slots__ = ()

    def start_of(self, timestamp: int, /) -> int:
        """Return the least timestamp there is."""
        return MIN_TIMESTAMP

    def end_of(self, start: int, /) -> int:
        """Return the largest timestamp there is."""
        return MAX_TIMESTAMP


class _CalendarGrid:
    """Windows that begin at certain times of the wall clock of a time zone.

    They are numbered; `_begins` says where one begins on the wall clock, and `_number` in which
    one a time of the wall clock lies, which is a first guess only: where clocks are set back, the
    same wall clock time comes twice."""

    __slots__ = ("_end", "_start", "_zone")

    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone
        # The window that was asked for last: nearly always the next question's too.
        self._start = self._end = 0

    def start_of(self, timestamp: int, /) -> int:
        """Return the start of the window that holds `timestamp`."""
        if not self._start <= timestamp < self._end:
            self._find(timestamp)
        return self._start

    def end_of(self, start: int, /) -> int:
        """Return the end of the window that begins at `start`."""
        if start != self._start or self._start == self._end:
            self._find(start)
        return self._end

    def _find(self, timestamp: int) -> None:
        moment = (_EPOCH + timestamp * _MILLISECOND).astimezone(self._zone)
        number = self._number(moment.replace(tzinfo=None))
        while self._instant(number) > timestamp:
            number -= 1
        while (end := self._instant(number + 1)) <= timestamp:
            number += 1
        self._start, self._end = self._instant(number), end

    def _instant(self, number: int) -> int:
        return (self._begins(number).replace(tzinfo=self._zone) - _EPOCH) // _MILLISECOND

    def _number(self, wall: datetime) -> int:
        raise NotImplementedError

    def _begins(self, number: int) -> datetime:
        raise NotImplementedError


class DayGrid(_CalendarGrid):
    """Windows of `days` calendar days; one of them begins at `offset` (milliseconds of the wall
    clock) behind the midnight that begins `first` (by default 1 January 1970)."""

    __slots__ = ("_days", "_first", "_offset")

    def __init__(self, zone: ZoneInfo, days: int, offset: int, first: int = _FIRST_DAY) -> None:
        super().__init__(zone)
        self._days = days
        self._first = first
        self._offset = offset * _MILLISECOND

    def _number(self, wall: datetime) -> int:
        return ((wall - self._offset).toordinal() - self._first) // self._days

    def _begins(self, number: int) -> datetime:
        return datetime.fromordinal(self._first + number * self._days) + self._offset


class MonthGrid(_CalendarGrid):
    """Windows of `months` calendar months, counted from a January."""

    __slots__ = ("_months",)

    def __init__(self, zone: ZoneInfo, months: int) -> None:
        super().__init__(zone)
        self._months = months

    def _number(self, wall: datetime) -> int:
        return (wall.year * 12 + wall.month - 1) // self._months

    def _begins(self, number: int) -> datetime:
        year, month = divmod(number * self._months, 12)
        return datetime(year, month + 1, 1)  # noqa: DTZ001 (of the wall clock)


def calendar_grid(unit: CalendarUnit, zone: ZoneInfo) -> Grid:
    """Make the grid of a calendar unit."""
    if unit == "day":
        return DayGrid(zone, 1, 0)
    if unit == "week":
        return DayGrid(zone, 7, 0, _FIRST_DAY - 3)  # the Monday before
    return MonthGrid(zone, _MONTHS[unit])
