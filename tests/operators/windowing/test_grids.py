"""Windows of a grid follow one another without a gap, also where clocks are changed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.operators.windowing.grids import DayGrid, FixedGrid, Grid, calendar_grid

# Clocks are changed at two, at midnight, by half an hour, never; one day of Apia is missing.
ZONES = ["Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Kolkata"]
ODD_ZONES = [*ZONES, "Pacific/Apia", "America/Havana", "UTC", "Africa/Cairo"]
HOUR, DAY = 3_600_000, 86_400_000
MOMENTS = st.integers(
    int(datetime(1975, 1, 1, tzinfo=UTC).timestamp() * 1000),
    int(datetime(2037, 1, 1, tzinfo=UTC).timestamp() * 1000),
)


def at(zone: str, *wall: int) -> int:
    moment = datetime(*wall, tzinfo=ZoneInfo(zone))  # type: ignore[misc, arg-type]
    return round(moment.timestamp() * 1000)


def wall(zone: str, timestamp: int) -> datetime:
    return datetime.fromtimestamp(timestamp / 1000, ZoneInfo(zone))


def unit_of(unit: str, moment: datetime) -> Any:
    return {
        "day": moment.date(),
        "week": moment.isocalendar()[:2],
        "month": (moment.year, moment.month),
        "quarter": (moment.year, (moment.month - 1) // 3),
        "year": moment.year,
    }[unit]


@given(st.integers(1, 10**9), st.integers(0, 10**10), st.integers(-(10**13), 10**13))
def test_window_of_one_size_holds_its_timestamp(size: int, offset: int, timestamp: int) -> None:
    grid = FixedGrid(size, offset)
    start = grid.start_of(timestamp)
    assert start <= timestamp < start + size == grid.end_of(start)
    assert (start - offset) % size == 0


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("unit", ["day", "week", "month", "quarter", "year"])
@given(timestamp=MOMENTS)
def test_calendar_window_is_the_whole_unit_of_the_wall_clock(
    zone: str, unit: Any, timestamp: int
) -> None:
    grid = calendar_grid(unit, ZoneInfo(zone))
    start = grid.start_of(timestamp)
    end = grid.end_of(start)
    inside = unit_of(unit, wall(zone, timestamp))
    assert start <= timestamp < end
    assert unit_of(unit, wall(zone, start)) == inside
    assert unit_of(unit, wall(zone, end - 1)) == inside
    assert unit_of(unit, wall(zone, start - 1)) != inside
    assert unit_of(unit, wall(zone, end)) != inside


@pytest.mark.parametrize("zone", ODD_ZONES)
@given(
    days=st.integers(1, 10),
    offset=st.integers(0, DAY - 1),
    timestamps=st.lists(MOMENTS, max_size=8),
)
def test_windows_of_days_follow_one_another_whatever_was_asked_before(
    zone: str, days: int, offset: int, timestamps: list[int]
) -> None:
    grid = DayGrid(ZoneInfo(zone), days, offset)
    for timestamp in timestamps:
        start = grid.start_of(timestamp)
        fresh = DayGrid(ZoneInfo(zone), days, offset)
        end = fresh.end_of(start)
        assert start <= timestamp < end
        assert (fresh.start_of(end - 1), fresh.start_of(end)) == (start, end)
        assert (days * DAY - 26 * HOUR) < end - start < (days * DAY + 26 * HOUR)


@pytest.mark.parametrize(
    ("day", "hours"), [((2024, 3, 30), 24), ((2024, 3, 31), 23), ((2024, 10, 27), 25)]
)
def test_day_on_which_clocks_are_changed_has_23_or_25_hours(
    day: tuple[int, int, int], hours: int
) -> None:
    grid = calendar_grid("day", ZoneInfo("Europe/Berlin"))
    start = at("Europe/Berlin", *day)
    assert grid.start_of(start + 5 * HOUR) == start
    assert grid.end_of(start) - start == hours * HOUR


def test_hour_that_comes_twice_is_twice_in_its_day() -> None:
    grid = calendar_grid("day", ZoneInfo("Europe/Berlin"))
    day = at("Europe/Berlin", 2024, 10, 27)
    first = at("Europe/Berlin", 2024, 10, 27, 2, 30)
    assert grid.start_of(first) == grid.start_of(first + HOUR) == day


def test_midnight_that_does_not_exist_is_when_clocks_were_changed() -> None:
    """In Sao Paulo, 4 November 2018 began at one o'clock."""
    grid = calendar_grid("day", ZoneInfo("America/Sao_Paulo"))
    start = grid.start_of(at("America/Sao_Paulo", 2018, 11, 4, 12))
    assert wall("America/Sao_Paulo", start).hour == 1
    assert wall("America/Sao_Paulo", start - 1).day == 3


def test_business_day_begins_at_its_hour_of_the_wall_clock() -> None:
    grid: Grid = DayGrid(ZoneInfo("Europe/Berlin"), 1, 6 * HOUR)
    for day in ((2024, 3, 30), (2024, 3, 31), (2024, 7, 1)):
        start = grid.start_of(at("Europe/Berlin", *day, 12))
        assert start == at("Europe/Berlin", *day, 6)


def test_week_begins_on_monday() -> None:
    grid = calendar_grid("week", ZoneInfo("UTC"))
    start = grid.start_of(at("UTC", 2024, 1, 3))
    assert start == at("UTC", 2024, 1, 1)
