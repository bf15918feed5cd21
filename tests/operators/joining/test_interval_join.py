"""Interval joins equal plain loops over all records, and keep no more than can still be joined.

What comes in: records of both inputs in any order, some of them late, many with equal timestamps,
of one input only, and watermarks in steps of any size. In one of two runs the state goes through
bytes before every call."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamcp.operators.joining.intervals import IntervalJoin
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

HOWS: list[How] = ["inner", "left", "right", "outer"]


def expected(events: list[Event], before: int, after: int, how: How) -> Counter[Row]:
    left, right, _, watermarks = in_time(events)
    rows: Counter[Row] = Counter()
    met: set[int] = set()
    for one, at in left.items():
        for other, then in right.items():
            if at - before <= then <= at + after:
                met |= {one, other}
                rows[max(one, other), (one, other), max(at, then)] += 1
    if how in ("left", "outer"):
        for one in left.keys() - met:
            certain = left[one] + after
            rows[reached(watermarks, certain), (one, None), certain] += 1
    if how in ("right", "outer"):
        for other in right.keys() - met:
            certain = right[other] + before
            rows[reached(watermarks, certain), (None, other), certain] += 1
    return rows


@pytest.mark.parametrize("how", HOWS)
@given(before=st.integers(0, 20), after=st.integers(0, 20), events=FEED | ONE_INPUT)
@example(before=0, after=0, events=[])
def test_interval_join_equals_loops_over_all_records(
    how: How, before: int, after: int, events: list[Event]
) -> None:
    for restoring in (False, True):
        run = JoinRun(lambda: IntervalJoin(pair, before, after, how), restoring=restoring)
        run.feed(events)
        assert Counter(run.rows) == expected(events, before, after, how)
        assert run.late == in_time(events)[2]
        assert (run.state, run.timers) == (None, set())


@given(before=st.integers(0, 20), after=st.integers(0, 20), events=FEED)
def test_records_are_kept_as_long_as_a_partner_can_come(
    before: int, after: int, events: list[Event]
) -> None:
    left, right, _, watermarks = in_time(events)
    seen = 0

    def check(run: JoinRun) -> None:
        nonlocal seen
        watermark = watermarks[seen]
        lefts = {n for n, at in left.items() if n <= seen and at + after > watermark}
        rights = {n for n, at in right.items() if n <= seen and at + before > watermark}
        seen += 1
        if run.state is None:
            assert not lefts | rights
        else:
            assert (set(run.state.left.records), set(run.state.right.records)) == (lefts, rights)

    JoinRun(lambda: IntervalJoin(pair, before, after, "inner")).feed(events, check)


def test_pairs_of_a_record_come_in_the_order_of_time_and_equal_ones_in_that_of_arrival() -> None:
    run = JoinRun(lambda: IntervalJoin(pair, 10, 0, "inner"))
    for number, timestamp in enumerate([5, 3, 5, 4]):
        run.record("right", timestamp, number)
    run.record("left", 6, 9)
    assert [value for _, value, _ in run.rows] == [(9, 1), (9, 3), (9, 0), (9, 2)]


def test_both_ends_of_the_interval_belong_to_it() -> None:
    run = JoinRun(lambda: IntervalJoin(pair, 5, 2, "inner"))
    run.record("left", 10, 0)
    for number, timestamp in enumerate([4, 5, 12, 13], 1):
        run.record("right", timestamp, number)
    assert [row[1:] for row in run.rows] == [((0, 2), 10), ((0, 3), 12)]


def test_timer_calls_do_not_grow_with_the_records() -> None:
    run = JoinRun(lambda: IntervalJoin(pair, 100, 0, "outer"))
    for timestamp in range(1000):
        run.record("left", timestamp, timestamp)
        run.record("right", timestamp, timestamp)
    records = run.calls
    run.advance(500)
    run.advance(2000)
    assert run.calls - records <= 6
