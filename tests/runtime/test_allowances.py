"""An allowance never lets more calls pass than its rate says, and no fewer for long."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamcp as sc
from streamcp.errors import SettingsError
from streamcp.runtime.allowances import Allowances

RATES = st.builds(
    sc.Rate,
    st.sampled_from([1, 2, 5, 8]),
    per=st.sampled_from(["1s", "2s"]),
    burst=st.sampled_from([None, 1, 2, 6]),
)
PAUSES = st.lists(st.sampled_from([0.0, 0.0625, 0.125, 0.5, 1.0, 9.0]), min_size=1, max_size=60)


def calls_at(allowances: Allowances, pauses: Sequence[float]) -> list[float]:
    """When calls are made if as many are made as may be, after each pause."""
    now, made = 0.0, []
    for pause in pauses:
        now += pause
        while allowances.ready_at() <= now:
            allowances.take(now)
            made.append(now)
    return made


@given(RATES, PAUSES)
def test_never_more_than_a_burst_and_what_the_time_allows(
    rate: sc.Rate, pauses: list[float]
) -> None:
    made = calls_at(Allowances(rate, 0.0), pauses)
    for (i, first), (j, last) in combinations(enumerate(made), 2):
        assert j - i + 1 <= rate.at_once + (last - first) / rate.interval + 1e-9


@given(RATES, PAUSES)
def test_who_waits_until_it_is_ready_loses_no_call(rate: sc.Rate, pauses: list[float]) -> None:
    allowances = Allowances(rate, 0.0)
    now = 0.0
    for pause in pauses:
        now = max(now + pause, allowances.ready_at())
        before = allowances.ready_at()
        allowances.take(now)
        assert allowances.ready_at() <= max(before, now) + rate.interval + 1e-9


def test_begins_with_room_for_one_call_and_saves_up_a_burst() -> None:
    allowances = Allowances(sc.Rate(1, per="1s", burst=5), 100.0)
    assert calls_at_once(allowances, 100.0) == 1
    assert calls_at_once(allowances, 102.0) == 2
    assert calls_at_once(allowances, 200.0) == 5


def calls_at_once(allowances: Allowances, now: float) -> int:
    made = 0
    while allowances.ready_at() <= now:
        allowances.take(now)
        made += 1
    return made


def test_keys_have_allowances_of_their_own_and_full_ones_are_forgotten() -> None:
    allowances = Allowances(sc.Rate(1, per="1s"), 0.0)
    for i in range(10_000):
        assert allowances.ready_at(i) <= 0.001 * i
        allowances.take(0.001 * i, i)
        assert allowances.ready_at(i) == pytest.approx(0.001 * i + 1)
    assert len(allowances) <= 2100  # a thousand are not full at any moment


@pytest.mark.parametrize(("limit", "at_once"), [(1, 1), (100, 1), (1000, 10), (50_000, 500)])
def test_calls_are_spread_evenly_unless_that_is_finer_than_a_timer(
    limit: int, at_once: int
) -> None:
    assert sc.Rate(limit).at_once == at_once


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: sc.Rate(0), "more than 0"),
        (lambda: sc.Rate(float("nan")), "more than 0"),
        (lambda: sc.Rate(1, per="0s"), "more than zero"),
        (lambda: sc.Rate(1, per=1), "no duration|not a duration"),  # type: ignore[arg-type]
        (lambda: sc.Rate(1, burst=0), "1 or more"),
        (lambda: sc.Rate(1, key="user"), "no function"),  # type: ignore[arg-type]
        (lambda: sc.CircuitBreaker(failures=0), "failures=0"),
        (lambda: sc.CircuitBreaker(probes=0), "probes=0"),
        (lambda: sc.CircuitBreaker(reset_after="0s"), "more than zero"),
        (lambda: sc.Retry(jitter=1.5), "0 to 1"),
        (lambda: sc.Retry(maximum=5), "not a duration"),  # type: ignore[arg-type]
    ],
)
def test_impossible_values_are_refused(make: object, part: str) -> None:
    with pytest.raises(SettingsError, match=part):
        make()  # type: ignore[operator]


@given(st.integers(1, 2000), st.floats(0, 1), st.floats(0, 1))
def test_retry_waits_twice_as_long_each_time_up_to_its_maximum(
    failures: int, jitter: float, chance: float
) -> None:
    retry = sc.Retry(attempts=9, backoff="100ms", maximum="5s", jitter=jitter)
    whole = min(0.1 * 2 ** min(failures - 1, 99), 5.0)
    assert retry.delay(failures) == pytest.approx(whole)
    assert whole * (1 - jitter) - 1e-9 <= retry.delay(failures, chance) <= whole
