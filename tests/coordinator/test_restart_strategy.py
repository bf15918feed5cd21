"""Whether and when a failed job is restarted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.config import Restart
from streamcp.coordinator.restart_strategy import GiveUp, RestartAfter, RestartStrategy


def test_none_gives_up_at_the_first_failure() -> None:
    assert RestartStrategy(Restart.none()).on_failure(0.0) == GiveUp("no restart strategy is set")


def test_fixed_delay_gives_up_after_its_attempts() -> None:
    strategy = RestartStrategy(Restart.fixed_delay(attempts=2, delay="3s"))
    answers = [strategy.on_failure(now) for now in (0.0, 1e6, 2e6)]
    assert answers == [RestartAfter(3.0), RestartAfter(3.0), GiveUp("all 2 restarts are used up")]


def test_fixed_delay_without_a_number_restarts_always() -> None:
    strategy = RestartStrategy(Restart.fixed_delay(attempts=None, delay="1s"))
    assert {strategy.on_failure(0.0) for _ in range(100)} == {RestartAfter(1.0)}


def backoff(attempts: int | None = None, reset_after: str = "60s") -> RestartStrategy:
    return RestartStrategy(
        Restart.exponential_backoff(
            attempts=attempts, delay="1s", maximum="5s", multiplier=2.0, reset_after=reset_after
        )
    )


def test_backoff_grows_up_to_its_maximum() -> None:
    strategy = backoff()
    assert [strategy.on_failure(float(now)) for now in range(5)] == [
        RestartAfter(seconds) for seconds in (1.0, 2.0, 4.0, 5.0, 5.0)
    ]


def test_backoff_starts_anew_after_a_time_without_failure() -> None:
    strategy = backoff(attempts=2)
    assert strategy.on_failure(0.0) == RestartAfter(1.0)
    assert strategy.on_failure(1.0) == RestartAfter(2.0)
    assert strategy.on_failure(3.0 + 60.0) == RestartAfter(1.0)


def test_backoff_delay_is_no_time_without_failure() -> None:
    """A delay as long as the reset would otherwise begin anew for ever."""
    strategy = backoff(reset_after="1s")
    assert strategy.on_failure(0.0) == RestartAfter(1.0)
    assert strategy.on_failure(1.5) == RestartAfter(2.0)
    assert strategy.on_failure(4.0) == RestartAfter(4.0)


def test_backoff_gives_up_after_its_attempts() -> None:
    strategy = backoff(attempts=1)
    strategy.on_failure(0.0)
    assert strategy.on_failure(1.0) == GiveUp("all 1 restarts are used up")


def test_delay_above_the_maximum_is_the_maximum() -> None:
    strategy = RestartStrategy(Restart.exponential_backoff(delay="10s", maximum="2s"))
    assert strategy.on_failure(0.0) == RestartAfter(2.0)


def test_thousands_of_failures_do_not_overflow_the_backoff() -> None:
    strategy = backoff()
    for now in range(5000):
        strategy.on_failure(float(now))
    assert strategy.on_failure(5000.0) == RestartAfter(5.0)


def rate() -> RestartStrategy:
    return RestartStrategy(Restart.failure_rate(attempts=2, interval="10s", delay="1s"))


def test_failure_rate_gives_up_above_its_rate() -> None:
    strategy = rate()
    assert [strategy.on_failure(now) for now in (0.0, 5.0, 10.0)] == [
        RestartAfter(1.0),
        RestartAfter(1.0),
        GiveUp("3 failures in 10 s are more than 2"),
    ]


def test_failure_rate_forgets_old_failures() -> None:
    strategy = rate()
    answers = {strategy.on_failure(now) for now in (0.0, 5.0, 10.1, 15.2, 20.3)}
    assert answers == {RestartAfter(1.0)}


@given(st.lists(st.floats(0, 200), max_size=20))
def test_backoff_is_always_between_delay_and_maximum(gaps: list[float]) -> None:
    strategy, now = backoff(), 0.0
    for gap in gaps:
        now += gap
        answer = strategy.on_failure(now)
        assert isinstance(answer, RestartAfter)
        assert 1.0 <= answer.seconds <= 5.0


@pytest.mark.parametrize(
    "restart",
    [
        Restart.none(),
        Restart.fixed_delay(),
        Restart.exponential_backoff(attempts=1),
        Restart.failure_rate(attempts=1),
    ],
)
def test_every_strategy_with_a_limit_gives_up_in_the_end(restart: Restart) -> None:
    strategy = RestartStrategy(restart)
    answers = [strategy.on_failure(0.0) for _ in range(5)]
    assert isinstance(answers[-1], GiveUp)
