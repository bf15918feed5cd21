"""The best of the results of all keys of a window equal those of a sorted list.

The machine's key is a window; results and watermarks come in any order that windows emit."""

from __future__ import annotations

import pickle
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streamcp.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from streamcp.operators.windowing.top import TopMachine, TopOnce, TopRefined
from streamcp.operators.windows import WindowResult
from streamcp.serialization.stable_hash import stable_hash
from tests.operators.windowing.window_runs import Context

END = 100
Result = WindowResult[str, int]


def scored(result: Result) -> int:
    return result.value


def result_of(key: str, value: int) -> Result:
    return WindowResult(key, 0, END, value)


def best(results: list[Result], n: int) -> list[Result]:
    """Those of one key in the order in which they came."""
    by_key = sorted(results, key=lambda one: stable_hash(one.key))
    return sorted(by_key, key=lambda one: -one.value)[:n]


class TopRun:
    """One window of a top step, whose state goes through bytes before each call."""

    def __init__(self, machine: Any) -> None:
        self.machine: Any = machine
        self.state: Any = None
        self.timers: set[int] = set()
        self.watermark = MIN_TIMESTAMP
        self.emitted: list[list[Result]] = []

    def result(self, result: Result, timestamp: int = END - 1) -> None:
        self._call(timestamp, lambda state, context: self.machine.fn(result, state, context))

    def advance(self, watermark: int) -> None:
        self.watermark = watermark
        while self.timers and (due := min(self.timers)) <= watermark:
            self.timers.discard(due)
            self._call(due, lambda state, context: self.machine.on_timer(due, state, context))

    def _call(self, timestamp: int, call: Any) -> None:
        state = self.machine.state() if self.state is None else pickle.loads(self.state)
        context = Context("", timestamp, self.watermark)
        context.key = ("group", 0, END)  # type: ignore[assignment]
        for made in call(state, context):
            assert (made.key, made.start, made.end) == ("group", 0, END)
            self.emitted.append(made.value)
        if context.cleared:
            self.timers.clear()
        self.state = None if context.cleared else pickle.dumps(state)
        self.timers |= context.timers


RESULTS = st.lists(st.tuples(st.sampled_from("abcdefg"), st.integers(0, 4)), max_size=15)


@given(n=st.integers(1, 6), drawn=RESULTS)
def test_best_are_those_of_a_sorted_list(n: int, drawn: list[tuple[str, int]]) -> None:
    results = [result_of(*one) for one in drawn]
    run = TopRun(TopOnce(n, scored))
    for result in results:
        run.result(result)
    run.advance(END - 2)
    assert run.emitted == []
    run.advance(END - 1)
    assert run.emitted == ([best(results, n)] if results else [])
    assert (run.state, run.timers) == (None, set())


@given(n=st.integers(1, 4), drawn=st.permutations(list(enumerate("abcdef"))))
def test_equal_ones_come_in_one_order_however_they_arrive(
    n: int, drawn: list[tuple[int, str]]
) -> None:
    results = [result_of(key, number // 3) for number, key in drawn]
    machines: list[TopMachine] = [TopOnce(n, scored), TopRefined(n, scored, 0)]
    for machine in machines:
        run = TopRun(machine)
        for result in results:
            run.result(result)
        run.advance(MAX_TIMESTAMP)
        assert run.emitted == [best(results, n)]


@given(n=st.integers(1, 4), lateness=st.integers(0, 9), before=RESULTS, after=RESULTS)
def test_last_result_of_a_key_counts_and_the_best_come_again_when_they_are_others(
    n: int, lateness: int, before: list[tuple[str, int]], after: list[tuple[str, int]]
) -> None:
    run = TopRun(TopRefined(n, scored, lateness))
    latest: dict[str, Result] = {}
    expected: list[list[Result]] = []
    for one in before:
        latest[one[0]] = result_of(*one)
        run.result(latest[one[0]])
    run.advance(END - 1)
    expected += [best([*latest.values()], n)] if latest else []
    for key, value in after if lateness else ():
        old, new = latest.get(key), result_of(key, value)
        was = best([*latest.values()], n)
        latest[key] = new
        now = best([*latest.values()], n)
        run.result(new, timestamp=50)
        if any(one is old for one in was) or any(one is new for one in now):
            expected.append(now)
    run.advance(END - 1 + lateness)
    assert run.emitted == expected
    assert (run.state, run.timers) == (None, set())
