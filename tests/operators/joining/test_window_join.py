"""Window joins equal the pairs of what plain loops find in each window.

The windows, and what is late for them, are those of the loops that all windows are compared with;
here what is made of the records in a window is compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.operators.joining.sides import How
from streamcp.operators.joining.window_pairs import WindowJoin
from streamcp.operators.windows import (
    ON_CLOSE,
    Calendar,
    Global,
    Session,
    Sliding,
    Tumbling,
    WindowResult,
    Windows,
)
from tests.operators.joining.join_runs import FEED, ONE_INPUT, Event, JoinRun, Pair, pair
from tests.operators.windowing.test_window_properties import Oracle, SessionOracle, ms, spans

HOWS: list[How] = ["inner", "left", "right", "outer"]
Row = tuple[int, int, Pair]


def expected(events: list[Event], oracle: Oracle, how: How) -> tuple[list[Row], list[int]]:
    """The rows window by window, and in each by the numbers of the records."""
    windows, late = oracle.feed(
        [("step" if kind == "step" else "record", value) for kind, value in events]
    )
    rows: list[Row] = []
    for start, end, numbers in windows:
        lefts, rights = (
            [number for number in sorted(numbers) if events[number][0] == side]
            for side in ("left", "right")
        )
        pairs: list[Pair] = [(one, other) for one in lefts for other in rights]
        if not rights and how in ("left", "outer"):
            pairs = [(one, None) for one in lefts]
        if not lefts and how in ("right", "outer"):
            pairs = [(None, other) for other in rights]
        rows += [(start, end, both) for both in pairs]
    return rows, late


def check(
    events: list[Event], windows: Windows, oracle: Callable[[], Oracle], how: How, *, ordered: bool
) -> None:
    rows, late = expected(events, oracle(), how)
    for restoring in (False, True):
        run = JoinRun(lambda: WindowJoin(windows, pair, how), restoring=restoring)
        run.feed(events)
        results: list[WindowResult[str, Any]] = [result for _, result, _ in run.rows]
        found = [(result.start, result.end, result.value) for result in results]
        assert (found if ordered else Counter(found)) == (rows if ordered else Counter(rows))
        assert all(result.key == "k" for result in results)
        assert [at for *_, at in run.rows] == [result.end - 1 for result in results]
        assert run.late == late
        assert (run.state, run.timers) == (None, set())


@pytest.mark.parametrize("how", HOWS)
@given(size=st.integers(1, 25), offset=st.integers(0, 30), events=FEED | ONE_INPUT)
def test_tumbling_windows_join_in_the_order_of_arrival(
    how: How, size: int, offset: int, events: list[Event]
) -> None:
    check(
        events,
        Tumbling(ms(size), offset=ms(offset)),
        lambda: Oracle(spans(size, size, offset % size), ON_CLOSE, 0),
        how,
        ordered=True,
    )


@pytest.mark.parametrize("how", HOWS)
@given(every=st.integers(1, 12), longer=st.integers(0, 20), events=FEED | ONE_INPUT)
def test_sliding_windows_join_each_pair_in_every_window_of_both(
    how: How, every: int, longer: int, events: list[Event]
) -> None:
    size = every + longer
    check(
        events,
        Sliding(ms(size), ms(every)),
        lambda: Oracle(spans(size, every, 0), ON_CLOSE, 0),
        how,
        ordered=False,
    )


@pytest.mark.parametrize("how", HOWS)
@given(gap=st.integers(1, 12), events=FEED | ONE_INPUT)
def test_sessions_are_those_of_both_inputs_together(
    how: How, gap: int, events: list[Event]
) -> None:
    check(
        events,
        Session(ms(gap)),
        lambda: SessionOracle(lambda _: [], ON_CLOSE, 0, gap=gap),
        how,
        ordered=False,
    )


@pytest.mark.parametrize("windows", [Calendar("day"), Global()])
def test_other_windows_of_time_join_as_well(windows: Windows) -> None:
    run = JoinRun(lambda: WindowJoin(windows, pair, "outer"))
    run.feed([("left", 1), ("right", 2), ("left", 3)])
    assert [result.value for _, result, _ in run.rows] == [(0, 1), (2, 1)]
