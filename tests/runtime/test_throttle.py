"""Calls begin in their order, as early as the limits of their step allow and no earlier."""

from __future__ import annotations

from collections import defaultdict, deque
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamcp as sc
from streamcp.runtime.throttle import KeyFailed, StepLimits, Throttle


class Queue:
    """Calls that are tuples (key, number)."""

    def __init__(self, *tickets: Any) -> None:
        self.tickets = deque(tickets)

    def start(self) -> Any:
        return self.tickets.popleft()

    @property
    def waiting(self) -> int:
        return len(self.tickets)

    def record_of(self, ticket: Any) -> tuple[Any, ...]:
        return () if ticket == "timer" else (ticket,)


def throttle_of(limits: StepLimits, queue: Queue) -> Throttle:
    return Throttle(limits, queue, on_turn=lambda: None)


def started(throttle: Throttle, now: float) -> list[Any]:
    """All that may be started now."""
    found = []
    while True:
        try:
            found.append(throttle.start(now))
        except IndexError:
            return found


def run(throttles: list[Throttle], *, until: float = 1e6) -> list[tuple[float, Any]]:
    """Start whatever may be started, moving the time on to when something may; the subtasks ask
    in turn, one call each."""
    now, log = 0.0, list[tuple[float, Any]]()
    while now < until:
        for throttle in throttles:
            try:
                log.append((now, throttle.start(now)))
            except IndexError:
                continue
        times = [at for one in throttles if (at := one.ready_at()) is not None]
        if not times:
            break
        now = max(now, min(times))
    return log


def first(ticket: Any) -> Any:
    return ticket[0]


KEYS = st.lists(st.sampled_from("abc"), max_size=40)
RATES = st.builds(sc.Rate, st.sampled_from([1, 4, 10]), burst=st.sampled_from([None, 1, 3]))
BY_KEY = st.builds(
    sc.Rate, st.sampled_from([1, 3]), burst=st.sampled_from([1, 2]), key=st.just(first)
)


def check_rate(times: list[float], rate: sc.Rate) -> None:
    for i, begin in enumerate(times):
        for j in range(i + 1, len(times)):
            allowed = rate.at_once + (times[j] - begin) / rate.interval
            assert j - i + 1 <= allowed + 1e-6


@given(st.lists(KEYS, min_size=1, max_size=3), st.lists(RATES, max_size=2), BY_KEY, st.booleans())
def test_every_call_is_started_within_all_rates_and_in_the_order_of_its_key(
    queues: list[str], whole: list[sc.Rate], by_key: sc.Rate, keyed: bool
) -> None:
    rates = [*whole, by_key] if keyed else whole
    limits = StepLimits(rates, None, 0.0)
    throttles = [
        throttle_of(limits, Queue(*((key, n, number) for number, key in enumerate(queue))))
        for n, queue in enumerate(queues)
    ]
    log = run(throttles)
    assert len(log) == sum(map(len, queues))
    for rate in whole:
        check_rate([at for at, _ in log], rate)
    times = defaultdict[Any, list[float]](list)
    numbers = defaultdict[Any, list[int]](list)
    for at, (key, n, number) in log:
        times[key].append(at)
        numbers[key, n].append(number)
    assert all(one == sorted(one) for one in numbers.values())
    if keyed:
        for one in times.values():
            check_rate(one, by_key)
    else:
        assert [number for _, (_, n, number) in log if n == 0] == list(range(len(queues[0])))


@given(st.integers(1, 60), RATES)
def test_calls_of_one_subtask_take_no_longer_than_their_rate_says(
    count: int, rate: sc.Rate
) -> None:
    log = run([throttle_of(StepLimits([rate], None, 0.0), Queue(*range(count)))])
    assert log[-1][0] <= (count - 1) * rate.interval + 1e-6


def test_subtasks_get_their_turns() -> None:
    limits = StepLimits([sc.Rate(1)], None, 0.0)
    throttles = [throttle_of(limits, Queue(*[(name, i) for i in range(5)])) for name in "abc"]
    names = [ticket[0] for _, ticket in run(throttles)]
    assert all(set(names[i : i + 3]) == set("abc") for i in range(0, 15, 3))


def test_busy_key_does_not_hold_up_the_others() -> None:
    limits = StepLimits([sc.Rate(1, key=first)], None, 0.0)
    throttle = throttle_of(limits, Queue("a1", "a2", "a3", "b1", "a4", "c1"))
    assert started(throttle, 0.0) == ["a1", "b1", "c1"]
    assert throttle.ready_at() == 1.0
    assert started(throttle, 0.9) == []
    assert started(throttle, 1.0) == ["a2"]
    assert started(throttle, 9.0) == ["a3"]
    assert started(throttle, 10.0) == ["a4"]
    assert throttle.ready_at() is None


def test_timers_do_not_count_against_a_key() -> None:
    limits = StepLimits([sc.Rate(1, key=first)], None, 0.0)
    assert started(throttle_of(limits, Queue("t1", "timer", "timer")), 0.0) == [
        "t1",
        "timer",
        "timer",
    ]


def test_further_attempts_count_and_wait_like_any_call() -> None:
    limits = StepLimits([sc.Rate(1)], None, 0.0)
    throttle = throttle_of(limits, Queue("a", "b"))
    assert started(throttle, 0.0) == ["a"]
    assert throttle.again("a", 0.5) == 1.0
    assert started(throttle, 1.0) == []
    assert started(throttle, 2.0) == ["b"]
    assert throttle.again("b", 2.0) == 3.0


def test_time_without_calls_is_not_made_up_for() -> None:
    """As of a task that held still for a stop that failed."""
    throttle = throttle_of(StepLimits([sc.Rate(1)], None, 0.0), Queue("a", "b", "c"))
    assert started(throttle, 0.0) == ["a"]
    assert started(throttle, 50.0) == ["b"]


def test_subtask_that_leaves_passes_its_turn_on() -> None:
    limits, turns = StepLimits([sc.Rate(1)], None, 0.0), list[str]()
    first, second = (
        Throttle(limits, Queue(name, name), partial(turns.append, name)) for name in "ab"
    )
    assert started(first, 0.0) == ["a"]  # and it queues up for its next one
    assert started(second, 0.0) == []
    assert started(second, 1.0) == [], "the other one's turn"
    first.leave()
    assert turns == ["b"]
    assert started(second, 1.0) == ["b"]


def test_nothing_is_started_while_the_breaker_is_open_but_probes() -> None:
    limits = StepLimits([], sc.CircuitBreaker(failures=1, reset_after="10s", probes=1), 0.0)
    throttle = throttle_of(limits, Queue(*"abcd"))
    breaker = limits.breaker
    assert breaker is not None
    assert throttle.start(0.0) == "a"
    breaker.failed(breaker.began(), 0.0)
    assert started(throttle, 9.0) == []
    assert throttle.ready_at() == 10.0
    assert throttle.start(10.0) == "b"
    probe = breaker.began()
    assert started(throttle, 11.0) == []
    assert throttle.ready_at() is None, "only the end of the probe changes that"
    breaker.succeeded(probe)
    assert started(throttle, 11.0) == ["c", "d"]


@pytest.mark.parametrize("key", [lambda ticket: ticket.nope, lambda ticket: []])
def test_key_function_that_fails_gives_the_call_back(key: Any) -> None:
    throttle = throttle_of(StepLimits([sc.Rate(1, key=key)], None, 0.0), Queue("a", "timer"))
    with pytest.raises(KeyFailed) as caught:
        throttle.start(0.0)
    assert caught.value.ticket == "a"
    assert throttle.start(0.0) == "timer"
