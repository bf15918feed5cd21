"""When checkpoints are triggered (rules P5, P28, P33)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streamcp.checkpoint.trigger_policy import (
    FINAL_RETRY_PAUSE,
    TriggerNow,
    TriggerPolicy,
    Wait,
)

PERIODIC = TriggerNow("periodic")


def policy(
    interval: float | None = 10.0, min_pause: float = 0.0, max_concurrent: int = 1
) -> TriggerPolicy:
    return TriggerPolicy(interval, min_pause, max_concurrent, now=0.0)


def triggered(policy: TriggerPolicy, now: float) -> TriggerNow:
    decision = policy.decide(now)
    assert isinstance(decision, TriggerNow)
    return decision


def test_first_checkpoint_comes_one_interval_after_the_start() -> None:
    chosen = policy(interval=10.0)
    assert chosen.decide(9.9) == Wait(10.0)
    assert chosen.decide(10.0) == PERIODIC


def test_without_interval_nothing_comes_by_itself() -> None:
    assert policy(interval=None).decide(1e9) == Wait(None)


def test_running_checkpoint_delays_the_next() -> None:
    chosen = policy(interval=10.0)
    running = triggered(chosen, 10.0)
    assert chosen.decide(25.0) == Wait(None)
    chosen.ended(running, 25.0, completed=True)
    assert chosen.decide(25.0) == PERIODIC


def test_long_checkpoint_is_followed_by_one_not_by_all_that_were_missed() -> None:
    chosen = policy(interval=10.0)
    chosen.ended(triggered(chosen, 10.0), 75.0, completed=True)
    chosen.ended(triggered(chosen, 75.0), 75.1, completed=True)
    assert chosen.decide(75.1) == Wait(85.0)


def test_min_pause_lies_between_the_end_and_the_next_trigger() -> None:
    chosen = policy(interval=10.0, min_pause=8.0)
    chosen.ended(triggered(chosen, 10.0), 15.0, completed=True)
    assert chosen.decide(20.0) == Wait(23.0)
    assert chosen.decide(23.0) == PERIODIC


def test_min_pause_follows_a_failed_checkpoint_too() -> None:
    chosen = policy(interval=10.0, min_pause=8.0)
    chosen.ended(triggered(chosen, 10.0), 15.0, completed=False)
    assert chosen.next_due(15.0) == 23.0


def test_request_runs_at_once_when_nothing_runs() -> None:
    chosen = policy()
    chosen.request(1)
    assert chosen.decide(3.0) == TriggerNow("requested", (1,))


def test_request_while_one_runs_waits_for_the_next_slot() -> None:
    chosen = policy()
    running = triggered(chosen, 10.0)
    chosen.request(1)
    assert chosen.decide(11.0) == Wait(None)
    chosen.ended(running, 12.0, completed=True)
    assert chosen.decide(12.0) == TriggerNow("requested", (1,))


def test_waiting_requests_share_one_checkpoint() -> None:
    chosen = policy()
    running = triggered(chosen, 10.0)
    for request in (1, 2, 3):
        chosen.request(request)
    chosen.ended(running, 12.0, completed=True)
    assert chosen.decide(12.0) == TriggerNow("requested", (1, 2, 3))


def test_request_respects_the_min_pause() -> None:
    chosen = policy(min_pause=5.0)
    chosen.ended(triggered(chosen, 10.0), 12.0, completed=True)
    chosen.request(1)
    assert chosen.decide(12.0) == Wait(17.0)


def test_requested_checkpoint_takes_the_place_of_the_periodic_one() -> None:
    chosen = policy(interval=10.0)
    chosen.request(1)
    chosen.ended(triggered(chosen, 9.0), 9.5, completed=True)
    assert chosen.decide(10.0) == Wait(19.0)


def test_new_interval_counts_from_the_last_trigger() -> None:
    chosen = policy(interval=3600.0)
    chosen.ended(triggered(chosen, 3600.0), 3601.0, completed=True)
    chosen.set_interval(5.0)
    assert chosen.decide(3601.0) == Wait(3605.0)
    chosen.set_interval(None)
    assert chosen.decide(1e9) == Wait(None)


def test_stop_comes_before_requests_and_answers_them() -> None:
    chosen = policy(min_pause=5.0)
    chosen.ended(triggered(chosen, 10.0), 12.0, completed=True)
    chosen.request(1)
    chosen.request_stop(2)
    assert chosen.decide(12.0) == TriggerNow("stop", (2, 1))


def test_stop_waits_for_the_running_one() -> None:
    chosen = policy()
    running = triggered(chosen, 10.0)
    chosen.request_stop(1)
    assert chosen.decide(11.0) == Wait(None)
    chosen.ended(running, 12.0, completed=False)
    assert chosen.decide(12.0) == TriggerNow("stop", (1,))


def test_failed_stop_lets_the_job_go_on() -> None:
    chosen = policy(interval=10.0)
    chosen.request_stop(1)
    chosen.ended(triggered(chosen, 1.0), 2.0, completed=False)
    assert chosen.decide(2.0) == Wait(11.0)
    assert chosen.decide(11.0) == PERIODIC


@pytest.mark.parametrize("kind", ["stop", "final"])
def test_nothing_is_triggered_beside_or_after_the_last_one(kind: str) -> None:
    chosen = policy(interval=10.0, max_concurrent=3)
    if kind == "stop":
        chosen.request_stop(1)
    else:
        chosen.request_final()
    last = triggered(chosen, 1.0)
    chosen.request(2)
    assert chosen.decide(50.0) == Wait(None)
    chosen.ended(last, 60.0, completed=True)
    assert chosen.decide(100.0) == Wait(None)
    assert chosen.close() == (2,)


def test_final_is_triggered_at_once_and_answers_waiting_requests() -> None:
    chosen = policy(min_pause=5.0)
    chosen.ended(triggered(chosen, 10.0), 12.0, completed=True)
    chosen.request(1)
    chosen.request_final()
    chosen.request_final()
    assert chosen.decide(12.0) == TriggerNow("final", (1,))


def test_failed_final_is_tried_again_after_a_pause() -> None:
    chosen = policy(interval=0.1)
    chosen.request_final()
    chosen.ended(triggered(chosen, 5.0), 6.0, completed=False)
    assert chosen.decide(6.0) == Wait(6.0 + FINAL_RETRY_PAUSE)
    assert chosen.decide(6.0 + FINAL_RETRY_PAUSE) == TriggerNow("final")


def test_more_than_one_may_run_if_allowed() -> None:
    chosen = policy(interval=1.0, max_concurrent=2)
    first = triggered(chosen, 1.0)
    triggered(chosen, 2.0)
    assert chosen.decide(3.0) == Wait(None)
    chosen.ended(first, 3.0, completed=True)
    assert chosen.decide(3.0) == PERIODIC


def test_lower_limit_holds_from_the_next_trigger_on_and_those_that_run_go_on() -> None:
    chosen = policy(interval=None, max_concurrent=2)
    chosen.request(1)
    first = chosen.decide(0.0)
    chosen.request(2)
    second = chosen.decide(0.0)
    assert isinstance(first, TriggerNow)
    assert isinstance(second, TriggerNow)
    chosen.set_max_concurrent(1)
    chosen.request(3)
    chosen.ended(first, 1.0, completed=True)
    assert chosen.decide(1.0) == Wait(None)
    chosen.ended(second, 2.0, completed=True)
    assert chosen.decide(2.0) == TriggerNow("requested", (3,))


def test_close_gives_back_what_waits() -> None:
    chosen = policy()
    chosen.request(1)
    chosen.request_stop(2)
    assert chosen.close() == (2, 1)
    assert chosen.close() == ()
    assert chosen.decide(1e9) == Wait(None)


def test_end_of_what_does_not_run_is_an_error() -> None:
    with pytest.raises(ValueError, match="not in list"):
        policy().ended(PERIODIC, 1.0, completed=True)


def test_repr_tells_what_runs_and_waits() -> None:
    chosen = policy()
    triggered(chosen, 10.0)
    chosen.request(1)
    assert repr(chosen) == (
        "TriggerPolicy(interval=10.0, running=1, requests=1, stops=0, final=False)"
    )


@given(
    interval=st.floats(0.5, 20),
    min_pause=st.floats(0, 20),
    durations=st.lists(st.floats(0, 100), max_size=30),
)
def test_next_due_is_when_decide_triggers(
    interval: float, min_pause: float, durations: list[float]
) -> None:
    """Sleeping until the told time, and no longer, is enough."""
    chosen = policy(interval, min_pause)
    now = 0.0
    for duration in durations:
        due = chosen.next_due(now)
        assert due is not None
        assert due >= now
        now = due
        trigger = triggered(chosen, now)
        now += duration
        chosen.ended(trigger, now, completed=True)


class TriggerMachine(RuleBasedStateMachine):
    """Any schedule of time, requests and ends keeps the promises of rule P5."""

    @initialize(
        interval=st.none() | st.integers(1, 10),
        min_pause=st.integers(0, 10),
        max_concurrent=st.integers(1, 3),
    )
    def begin(self, interval: int | None, min_pause: int, max_concurrent: int) -> None:
        self.policy = TriggerPolicy(interval, min_pause, max_concurrent, now=0.0)
        self.min_pause = min_pause
        self.max_concurrent = max_concurrent
        self.now = 0.0
        self.last_end = -100.0
        self.running: list[TriggerNow] = []
        self.asked: list[int] = []
        self.answered: list[int] = []

    @rule(seconds=st.integers(0, 8))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule()
    def ask(self) -> None:
        self.asked.append(len(self.asked))
        self.policy.request(self.asked[-1])

    @rule()
    def ask_to_stop(self) -> None:
        self.asked.append(len(self.asked))
        self.policy.request_stop(self.asked[-1])

    @rule()
    def come_to_the_end(self) -> None:
        self.policy.request_final()

    @rule(interval=st.none() | st.integers(1, 10))
    def change_interval(self, interval: int | None) -> None:
        self.policy.set_interval(interval)

    @rule()
    def decide(self) -> None:
        due = self.policy.next_due(self.now)
        decision = self.policy.decide(self.now)
        if isinstance(decision, Wait):
            assert decision.until == due
            assert due is None or due > self.now
            return
        assert due == self.now
        if decision.kind in ("periodic", "requested"):
            assert self.now >= self.last_end + self.min_pause
        assert (decision.kind == "requested") <= bool(decision.requests)
        assert (decision.kind == "periodic") <= (not decision.requests)
        self.running.append(decision)
        self.answered.extend(decision.requests)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), completed=st.booleans())
    def end(self, data: st.DataObject, completed: bool) -> None:
        trigger = data.draw(st.sampled_from(self.running))
        self.running.remove(trigger)
        self.policy.ended(trigger, self.now, completed=completed)
        self.last_end = self.now

    @invariant()
    def never_too_many(self) -> None:
        assert len(self.running) <= self.max_concurrent
        assert self.policy.running == len(self.running)

    @invariant()
    def never_answered_twice(self) -> None:
        assert len(set(self.answered)) == len(self.answered)

    def teardown(self) -> None:
        """Every request is answered: by a checkpoint that is still to come, or by `close`."""
        if not hasattr(self, "policy"):
            return
        for trigger in self.running:
            self.policy.ended(trigger, self.now, completed=False)
        self.now += self.min_pause + FINAL_RETRY_PAUSE
        last = self.policy.decide(self.now)
        if isinstance(last, TriggerNow):
            self.answered.extend(last.requests)
        self.answered.extend(self.policy.close())
        assert sorted(self.answered) == self.asked


TestTriggerMachine = TriggerMachine.TestCase
