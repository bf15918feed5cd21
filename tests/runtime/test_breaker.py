"""A circuit breaker against a model: what it lets pass depends on the outcomes of its own round."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamcp.config import CircuitBreaker
from streamcp.runtime.breaker import Breaker

FAILURES, PAUSE, PROBES = 3, 10.0, 2


def breaker() -> Breaker:
    return Breaker(CircuitBreaker(failures=FAILURES, reset_after="10s", probes=PROBES))


def test_opens_after_failures_in_a_row_only() -> None:
    one = breaker()
    outcomes = [False, False, True, False, False, False]
    opened = []
    for ok in outcomes:
        number = one.began()
        opened.append(one.succeeded(number) if ok else one.failed(number, 5.0))
    assert opened == [False] * 5 + [True]
    assert one.is_open
    assert one.ready_at() == 5.0 + PAUSE


def test_closes_when_all_probes_have_succeeded() -> None:
    one = opened_breaker()
    first, second = one.began(), one.began()
    assert one.ready_at() == float("inf")
    assert not one.succeeded(first)
    assert one.is_open
    assert one.succeeded(second)
    assert one.ready_at() == float("-inf")


def test_failed_probe_opens_it_anew_and_the_other_one_counts_for_nothing() -> None:
    one = opened_breaker()
    first, second = one.began(), one.began()
    assert one.failed(first, 20.0)
    assert one.ready_at() == 20.0 + PAUSE
    assert not one.succeeded(second)
    assert not one.failed(second, 25.0)
    assert one.ready_at() == 20.0 + PAUSE


def test_calls_from_before_it_opened_count_for_nothing() -> None:
    one = breaker()
    old = one.began()
    for _ in range(FAILURES):
        one.failed(one.began(), 0.0)
    assert not one.succeeded(old)
    assert not one.failed(old, 3.0)
    assert one.ready_at() == PAUSE


def opened_breaker() -> Breaker:
    one = breaker()
    for _ in range(FAILURES):
        one.failed(one.began(), 0.0)
    return one


class Calls(RuleBasedStateMachine):
    """Calls begin when they may, and end in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.one = breaker()
        self.now = 0.0
        self.open_calls: list[tuple[int, bool]] = []  # number, and whether it began as a probe
        self.probes = 0  # begun since it was opened

    @rule(seconds=st.sampled_from([0.0, 1.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.one.ready_at() <= self.now)
    @rule()
    def begin(self) -> None:
        probe = self.one.is_open
        self.probes += probe
        self.open_calls.append((self.one.began(), probe))

    @precondition(lambda self: self.open_calls)
    @rule(data=st.data(), ok=st.booleans())
    def end(self, data: Any, ok: bool) -> None:
        index = data.draw(st.integers(0, len(self.open_calls) - 1))
        number, _ = self.open_calls.pop(index)
        was_open = self.one.is_open
        changed = self.one.succeeded(number) if ok else self.one.failed(number, self.now)
        if changed:
            self.probes = 0
            assert self.one.is_open is not ok
            assert was_open or not ok
            if self.one.is_open:
                assert self.one.ready_at() == self.now + PAUSE

    @invariant()
    def lets_no_more_than_its_probes_pass_while_open(self) -> None:
        if self.one.is_open:
            assert self.probes <= PROBES

    @invariant()
    def never_waits_for_a_probe_that_nobody_makes(self) -> None:
        if self.one.ready_at() == float("inf"):
            assert any(probe for _, probe in self.open_calls)


Calls.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestCalls = Calls.TestCase
