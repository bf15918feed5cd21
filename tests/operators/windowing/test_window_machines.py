"""Single situations of window machines: the boundaries, late records, and what is forgotten when.

Those with a report's number replay what went wrong in other systems."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from streamcp.elements import MAX_TIMESTAMP
from streamcp.operators.aggregates import Aggregate, Count, Max, Sum
from streamcp.operators.collecting import Records
from streamcp.operators.windowing.making import make_window_machine
from streamcp.operators.windows import (
    ON_CLOSE,
    Calendar,
    CountWindow,
    Emit,
    Session,
    Sliding,
    Tumbling,
    Windows,
    early,
)
from tests.operators.windowing.window_runs import WindowRun


def run(
    windows: Windows,
    aggregate: Aggregate[Any, Any] | None = None,
    *,
    emit: Emit = ON_CLOSE,
    lateness: int = 0,
) -> WindowRun:
    used = Count() if aggregate is None else aggregate
    return WindowRun(lambda: make_window_machine(windows, used, emit, lateness, "late"))


def emitted(run: WindowRun) -> list[tuple[int, int, Any]]:
    found = [(result.start, result.end, result.value) for result in run.results]
    run.results.clear()
    return found


def test_window_closes_at_its_last_millisecond_and_not_before() -> None:
    tumbling = run(Tumbling("10ms"))
    tumbling.record(0)
    tumbling.record(9)
    tumbling.record(10)
    tumbling.advance(8)
    assert emitted(tumbling) == []
    tumbling.advance(9)
    assert emitted(tumbling) == [(0, 10, 2)]


def test_key_without_windows_is_forgotten() -> None:
    for windows in (Tumbling("10ms"), Sliding("10ms", "2ms"), Session("10ms")):
        forgotten = run(windows)
        forgotten.record(0)
        forgotten.advance(100)
        assert len(forgotten.results) == (5 if isinstance(windows, Sliding) else 1)
        assert (forgotten.state, forgotten.timers) == (None, set())


def test_key_whose_count_window_has_filled_is_forgotten() -> None:
    counted = run(CountWindow(2))
    counted.record(5)
    assert counted.state is not None
    counted.record(3)
    assert emitted(counted) == [(3, 6, 2)]
    assert counted.state is None


def test_number_of_timers_does_not_grow_with_the_records() -> None:
    for windows in (Tumbling("1s"), Sliding("1s", "100ms"), Session("100ms")):
        busy = run(windows)
        for timestamp in range(1000):
            busy.record(timestamp)
        assert busy.timers_set <= 10
        busy.advance(MAX_TIMESTAMP)
        assert busy.timers_set <= 40


def test_hopping_windows_hold_a_timestamp_far_from_their_origin() -> None:
    """Case 7, bytewax#413: hop 700 ms, size 1600 ms, an origin years away."""
    timestamp = 1_709_315_512_577
    hopping = run(Sliding("1600ms", every="700ms"))
    hopping.record(timestamp)
    hopping.advance(timestamp + 5_000)
    assert hopping.late == []
    found = emitted(hopping)
    assert 2 <= len(found) <= 3
    starts = [start for start in range(timestamp - 1_599, timestamp + 1) if start % 700 == 0]
    assert found == [(start, start + 1_600, 1) for start in starts]


def test_events_microseconds_apart_are_always_one_session() -> None:
    """Case 10, bytewax#427: ten events, a gap of one second, fifty runs."""
    for shift in range(50):
        session = run(Session("1s"))
        for number in range(10):
            session.record(1_700_000_000_000 + shift * 137 + number // 4)
        session.advance(MAX_TIMESTAMP)
        assert [value for *_, value in emitted(session)] == [10]


def test_late_event_of_a_closed_session_is_not_glued_to_the_next_one() -> None:
    """Case 11, jet#747: the session has closed; the event would also reach into the next one."""
    session = run(Session("5ms"))
    session.record(1)
    session.record(10 - 5)
    session.record(9)
    session.advance(13)
    assert emitted(session) == [(1, 14, 3)]
    session.record(16)
    session.record(12, "late one")
    session.advance(MAX_TIMESTAMP)
    assert session.late == ["late one"]
    assert emitted(session) == [(16, 21, 1)]


def test_record_between_a_closed_session_and_an_open_one_that_touch_is_late() -> None:
    session = run(Session("8ms"))
    session.record(0)
    session.record(8)
    session.advance(14)
    assert emitted(session) == [(0, 8, 1)]
    session.record(7, "late one")
    session.advance(MAX_TIMESTAMP)
    assert (emitted(session), session.late) == ([(8, 16, 1)], ["late one"])


def test_session_whose_predecessor_is_forgotten_takes_what_is_not_late() -> None:
    session = run(Session("5ms"))
    session.record(16)
    session.advance(13)
    session.record(12)
    session.advance(MAX_TIMESTAMP)
    assert emitted(session) == [(12, 21, 2)]


@pytest.mark.parametrize(("lateness", "closes"), [(0, 14), (3, 14)])
def test_session_closes_one_gap_behind_its_last_record(lateness: int, closes: int) -> None:
    """Case 13, KAFKA-8289 (apache/kafka#6654) and KAFKA-12718 (#10824): last record at 10, gap 5;
    time that reaches 11 closes nothing, time that reaches 15 (the watermark is 14) does. A record
    at 15 begins a new session."""
    session = run(Session("5ms"), lateness=lateness)
    session.record(10)
    session.advance(10)
    session.advance(closes - 1)
    assert emitted(session) == []
    session.record(15)
    session.advance(closes)
    assert emitted(session) == [(10, 15, 1)]
    session.advance(MAX_TIMESTAMP)
    assert emitted(session) == [(15, 20, 1)]


def test_session_within_the_allowed_lateness_grows_and_is_emitted_again() -> None:
    session = run(Session("5ms"), lateness=10)
    session.record(10)
    session.advance(14)
    session.record(8)
    assert emitted(session) == [(10, 15, 1), (8, 15, 2)]
    session.record(13)
    assert emitted(session) == []
    session.advance(17)
    assert emitted(session) == [(8, 18, 3)]


def test_event_older_than_every_open_sliding_window_creates_none() -> None:
    """Case 15, quix#728."""
    sliding = run(Sliding("30ms", "10ms"))
    sliding.record(100)
    sliding.advance(99)
    sliding.record(69, "old")
    assert sliding.late == ["old"]
    sliding.record(70)  # the last window that it is in, [70, 100), has closed just now
    sliding.record(80)
    sliding.advance(MAX_TIMESTAMP)
    assert sliding.late == ["old", None]
    assert emitted(sliding) == [(80, 110, 2), (90, 120, 1), (100, 130, 1)]


@pytest.mark.parametrize("windows", [Tumbling("10ms"), Sliding("10ms", "5ms"), Session("10ms")])
@pytest.mark.parametrize("lateness", [0, 100])
def test_event_of_a_closed_window_never_disappears(windows: Windows, lateness: int) -> None:
    """Case 16, faust#137: it goes to the late records, or its window is emitted again."""
    closed = run(windows, Records(), lateness=lateness)
    closed.record(1, "first")
    closed.advance(50)
    closed.results.clear()
    closed.record(2, "second")
    if lateness:
        assert closed.late == []
        assert closed.results[-1].value == ["first", "second"]
    else:
        assert (closed.late, closed.results) == (["second"], [])


@pytest.mark.parametrize("aggregate", [Count(), Max(lambda second: second)])
def test_every_hopping_pane_holds_its_full_span(aggregate: Aggregate[int, int]) -> None:
    """Case 17, rh-faust#514 and faust#195: hop 3 s, size 30 s, one event per second."""
    hopping = run(Sliding("30s", every="3s"), aggregate)
    for second in range(300):
        hopping.record(second * 1000, second)
        hopping.advance(second * 1000 - 1)
    found = [(start, value) for start, _, value in emitted(hopping) if start >= 0]
    assert [start for start, _ in found] == [3_000 * n for n in range(90)]
    for start, value in found:
        assert value == (30 if isinstance(aggregate, Count) else start // 1000 + 29)


def test_late_record_of_an_allowed_window_emits_it_again_until_it_is_forgotten() -> None:
    tumbling = run(Tumbling("10ms"), lateness=5)
    tumbling.record(3)
    tumbling.advance(9)
    tumbling.record(4)
    tumbling.advance(13)
    tumbling.record(5)
    assert emitted(tumbling) == [(0, 10, 1), (0, 10, 2), (0, 10, 3)]
    tumbling.advance(14)
    tumbling.record(6, "late one")
    assert (emitted(tumbling), tumbling.late) == ([], ["late one"])
    assert tumbling.state is None


def test_early_results_come_only_where_something_has_changed() -> None:
    tumbling = run(Tumbling("100ms"), emit=early(every="10ms"))
    tumbling.record(3)
    tumbling.advance(25)
    tumbling.record(26)
    tumbling.record(95)
    tumbling.advance(60)
    tumbling.advance(99)
    assert emitted(tumbling) == [(0, 100, 1), (0, 100, 3), (0, 100, 3)]


def test_sums_over_slices_are_merged_a_few_at_a_time() -> None:
    merges = 0

    class Counting(Sum[int, int]):
        small = True

        def merge(self, left: int, right: int, /) -> int:
            nonlocal merges
            merges += 1
            return left + right

    sliding = run(Sliding("1s", "1ms"), Counting(lambda number: number))
    for timestamp in range(5_000):
        sliding.record(timestamp, 1)
        sliding.advance(timestamp - 1)
    assert sliding.results[-1].value == 1_000
    assert merges / len(sliding.results) < 4


def test_calendar_month_in_a_time_zone() -> None:
    def berlin(*wall: int) -> int:
        moment = datetime(*wall, tzinfo=ZoneInfo("Europe/Berlin"))  # type: ignore[misc, arg-type]
        return round(moment.astimezone(UTC).timestamp() * 1000)

    month = run(Calendar("month", timezone="Europe/Berlin"))
    for day in (1, 15, 31):
        month.record(berlin(2024, 3, day))
    month.record(berlin(2024, 4, 1))
    month.advance(berlin(2024, 4, 1) - 1)
    assert emitted(month) == [(berlin(2024, 3, 1), berlin(2024, 4, 1), 3)]
