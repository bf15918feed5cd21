"""As-of joins equal a plain loop over all records, and keep no more than can still be met.

What comes in is as for interval joins: any order, late, equal timestamps, one input only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.operators.joining.asof import AsofJoin
from streamcp.operators.joining.sides import How
from tests.operators.joining.join_runs import (
    FEED,
    ONE_INPUT,
    Event,
    JoinRun,
    Row,
    in_time,
    pair,
    reached,
)

TOLERANCE = st.none() | st.integers(0, 20)


def expected(events: list[Event], tolerance: int | None, how: How) -> list[Row]:
    """In the order of the left records' timestamps: that is how they come."""
    left, right, _, watermarks = in_time(events)
    rows: list[Row] = []
    for one, at in sorted(left.items(), key=lambda item: item[1]):
        met = None
        for other, then in right.items():
            fits = then <= at and (tolerance is None or then >= at - tolerance)
            if fits and (met is None or then >= right[met]):
                met = other
        if met is not None or how == "left":
            rows.append((reached(watermarks, at), (one, met), at))
    return rows


@pytest.mark.parametrize("how", ["inner", "left"])
@given(tolerance=TOLERANCE, events=FEED | ONE_INPUT)
def test_asof_join_equals_a_loop_over_all_records(
    how: How, tolerance: int | None, events: list[Event]
) -> None:
    for restoring in (False, True):
        run = JoinRun(lambda: AsofJoin(pair, tolerance, how), restoring=restoring)
        run.feed(events)
        assert run.rows == expected(events, tolerance, how)
        assert run.late == in_time(events)[2]
        assert run.timers == set()


@given(tolerance=TOLERANCE, events=FEED)
def test_versions_are_kept_as_long_as_a_left_record_can_meet_them(
    tolerance: int | None, events: list[Event]
) -> None:
    left, right, _, watermarks = in_time(events)
    seen = 0

    def check(run: JoinRun) -> None:
        nonlocal seen
        watermark = watermarks[seen]
        waiting = {n for n, at in left.items() if n <= seen and at > watermark}
        kept = {n for n, at in right.items() if n <= seen and at > watermark}
        # Of those up to the watermark the newest, if it can be as young as is asked for.
        old = [(at, n) for n, at in right.items() if n <= seen and at <= watermark]
        if old and (tolerance is None or max(old)[0] + tolerance > watermark):
            kept.add(max(old)[1])
        seen += 1
        if run.state is None:
            assert not waiting | kept
        else:
            found = set(run.state.waiting.records), set(run.state.versions.records)
            assert found == (waiting, kept)

    JoinRun(lambda: AsofJoin(pair, tolerance, "inner")).feed(events, check)


def test_of_versions_with_one_timestamp_the_one_that_came_last_is_met() -> None:
    run = JoinRun(lambda: AsofJoin(pair, None, "inner"))
    run.record("left", 5, 0)
    for number in (1, 2, 3):
        run.record("right", 5, number)
    run.advance(5)
    assert [value for _, value, _ in run.rows] == [(0, 3)]


def test_version_exactly_as_old_as_the_tolerance_is_met() -> None:
    run = JoinRun(lambda: AsofJoin(pair, 10, "left"))
    run.record("right", 0, 0)
    run.record("left", 10, 1)
    run.record("left", 11, 2)
    run.advance(20)
    assert [value for _, value, _ in run.rows] == [(1, 0), (2, None)]


def test_last_version_of_a_key_is_kept_without_a_tolerance_until_the_input_ends() -> None:
    run = JoinRun(lambda: AsofJoin(pair, None, "inner"))
    for timestamp in range(100):
        run.record("right", timestamp, timestamp)
    run.advance(10**9)
    assert run.state.versions.records == [99]
    assert run.timers == set()


def test_timer_calls_do_not_grow_with_the_records() -> None:
    run = JoinRun(lambda: AsofJoin(pair, None, "left"))
    for timestamp in range(1000):
        run.record("left", timestamp, timestamp)
        run.record("right", timestamp, timestamp)
    records = run.calls
    run.advance(500)
    run.advance(2000)
    assert run.calls - records <= 6
