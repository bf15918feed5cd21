"""A context checks times and passes them on as milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.errors import SettingsError
from streamcp.operators.context import KeyContext, TimerClock
from streamcp.operators.tags import Tag


class Recorder:
    def __init__(self, clock: TimerClock) -> None:
        self.calls: list[Any] = []
        self.clock = clock

    def now(self) -> int:
        return 7_000

    def set_timer(self, at: int, clock: TimerClock, /) -> None:
        self.calls.append(at if clock == self.clock else (at, clock))

    def delete_timer(self, at: int, clock: TimerClock, /) -> None:
        self.calls.append(("delete", at, clock))

    def emit(self, output: str, value: Any, /) -> None:
        self.calls.append((output, value))

    def clear_state(self) -> None:
        self.calls.append("clear")

    def call_id(self) -> str:
        return "7"


def _context(
    timestamp: int = 1_000, clock: TimerClock = "processing"
) -> tuple[KeyContext[str], list[Any]]:
    recorder = Recorder(clock)
    return KeyContext("FR", timestamp, recorder), recorder.calls


def test_context_tells_key_and_time() -> None:
    context, _ = _context()
    assert (context.key, context.timestamp) == ("FR", 1_000)


def test_call_id_is_that_of_the_call() -> None:
    context, _ = _context()
    assert context.call_id == "7"


def test_absolute_time_is_passed_on() -> None:
    context, calls = _context()
    context.set_timer(5)
    context.clear_state()
    assert calls == [5, "clear"]


@pytest.mark.parametrize("after", ["30s", timedelta(seconds=30)])
def test_duration_counts_from_the_beginning_of_the_call(after: Any) -> None:
    context, calls = _context(1_000)
    context.set_timer(after=after)
    assert calls == [31_000]


def test_duration_in_the_other_clock_counts_from_now() -> None:
    context, calls = _context(1_000, "event")
    context.set_timer(after="1s")
    context.set_timer(after="1s", clock="processing")
    context.set_timer(5, clock="processing")
    assert calls == [2_000, (8_000, "processing"), (5, "processing")]


def test_timer_is_deleted_in_the_clock_of_the_stream_or_the_named_one() -> None:
    context, calls = _context(clock="event")
    context.delete_timer(5)
    context.delete_timer(6, clock="processing")
    assert calls == [("delete", 5, "event"), ("delete", 6, "processing")]


def test_tags_of_one_name_are_one_output() -> None:
    context, calls = _context()
    context.emit_to(Tag[int]("odd"), 1)
    context.emit_to(Tag[int]("odd"), 3)
    assert calls == [("side odd", 1), ("side odd", 3)]


@given(st.datetimes(min_value=datetime(1970, 1, 2)), st.integers(-12, 12))  # noqa: DTZ001
def test_aware_datetime_is_the_same_instant_in_every_zone(naive: datetime, hours: int) -> None:
    context, calls = _context()
    moment = naive.replace(year=2024 if naive.year > 9000 else naive.year, tzinfo=UTC)
    context.set_timer(moment)
    context.set_timer(moment.astimezone(timezone(timedelta(hours=hours))))
    assert calls[0] == calls[1] == round(moment.timestamp() * 1000)


@pytest.mark.parametrize(
    ("at", "remedy"),
    [
        (1.5, r"in seconds\? write round\(ts \* 1000\)"),
        (datetime(2024, 1, 1), "of which time zone"),  # noqa: DTZ001
        (True, "write an int"),
        ("30s", "write an int"),
    ],
)
def test_what_is_no_timestamp_is_refused(at: Any, remedy: str) -> None:
    context, calls = _context()
    with pytest.raises(SettingsError, match=remedy):
        context.set_timer(at)
    assert calls == []


@pytest.mark.parametrize("after", [30, 1.5, "30", "-1s"])
def test_what_is_no_duration_is_refused(after: Any) -> None:
    context, _ = _context()
    with pytest.raises(SettingsError, match="is not a duration"):
        context.set_timer(after=after)


def test_exactly_one_kind_of_time_is_needed() -> None:
    context, _ = _context()
    with pytest.raises(SettingsError, match="one of a time and after="):
        context.set_timer()  # type: ignore[call-overload]
    with pytest.raises(SettingsError, match="one of a time and after="):
        context.set_timer(5, after="1s")  # type: ignore[call-overload]
