"""Which mode a checkpoint starts in (rules P25 to P28), and the prediction behind it."""

from __future__ import annotations

import heapq
from graphlib import CycleError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.checkpoint.mode_policy import (
    DISTRUST_FIRST,
    DISTRUST_LIMIT,
    ChosenMode,
    ModePolicy,
    TaskFacts,
    predict_alignment,
    refused_switch,
    strictest,
)
from streamcp.elements import CheckpointMode

FAST, SLOW = 0.001, 10.0
TIMEOUT = 0.1


def adaptive(*, predict: bool = True, bound: int | None = None) -> ModePolicy:
    return ModePolicy("adaptive", TIMEOUT, predict, max_in_flight_bytes=bound)


def test_aligned_mode_never_escalates() -> None:
    choice = ModePolicy("aligned", TIMEOUT, True).choose(SLOW)
    assert (choice.mode, choice.escalate_after) == ("aligned", None)
    assert choice.reason == "the mode is aligned"


def test_unaligned_mode_starts_unaligned() -> None:
    choice = ModePolicy("unaligned", TIMEOUT, True).choose(FAST)
    assert (choice.mode, choice.escalate_after) == ("unaligned", None)


def test_at_least_once_mode_never_escalates_whatever_the_prediction() -> None:
    choice = ModePolicy("at_least_once", 0.0, True, max_in_flight_bytes=0).choose(SLOW, 10)
    assert (choice.mode, choice.escalate_after) == ("at_least_once", None)
    assert choice.reason == "the mode is at_least_once"


@pytest.mark.parametrize(
    ("now", "wanted"), [("at_least_once", "aligned"), ("adaptive", "at_least_once")]
)
def test_switch_from_or_to_at_least_once_is_refused_naming_both_and_the_remedy(
    now: ChosenMode, wanted: ChosenMode
) -> None:
    refused = refused_switch(now, wanted)
    assert refused is not None
    assert f"runs in mode {now!r}" in refused
    assert f"Checkpoints(mode={wanted!r})" in refused


@pytest.mark.parametrize(
    ("now", "wanted"), [("at_least_once", "at_least_once"), ("adaptive", "unaligned")]
)
def test_switch_within_one_promise_is_allowed(now: ChosenMode, wanted: ChosenMode) -> None:
    assert refused_switch(now, wanted) is None


@pytest.mark.parametrize(
    ("mode", "running", "most"),
    [
        ("aligned", [], 3),
        ("aligned", ["aligned", "aligned"], 3),
        ("aligned", ["unaligned"], 1),
        ("unaligned", ["aligned"], 1),
        ("adaptive", [], 1),
        ("at_least_once", [], 1),
    ],
)
def test_checkpoints_overlap_only_where_all_are_aligned(
    mode: ChosenMode, running: list[CheckpointMode], most: int
) -> None:
    assert ModePolicy(mode, TIMEOUT, True).max_concurrent(3, running) == most


def test_fast_prediction_starts_aligned_and_keeps_the_timeout() -> None:
    choice = adaptive().choose(FAST)
    assert (choice.mode, choice.escalate_after, choice.prediction) == ("aligned", TIMEOUT, FAST)
    assert choice.reason == "predicted alignment 0.001 s is within 0.100 s"


def test_slow_prediction_starts_unaligned_and_pays_no_timeout() -> None:
    choice = adaptive().choose(SLOW)
    assert (choice.mode, choice.escalate_after, choice.prediction) == ("unaligned", None, SLOW)
    assert choice.reason == "predicted alignment 10.000 s is above 0.100 s"


def test_unknown_prediction_starts_aligned() -> None:
    choice = adaptive().choose(None)
    assert (choice.mode, choice.escalate_after, choice.prediction) == ("aligned", TIMEOUT, None)


def test_switched_off_prediction_is_recorded_but_not_used() -> None:
    choice = adaptive(predict=False).choose(SLOW)
    assert (choice.mode, choice.escalate_after, choice.prediction) == ("aligned", TIMEOUT, SLOW)


def test_timeout_of_zero_means_unaligned_from_the_start() -> None:
    choice = ModePolicy("adaptive", 0.0, False).choose(None)
    assert (choice.mode, choice.escalate_after) == ("unaligned", None)


def test_prediction_at_the_budget_does_not_exceed_it() -> None:
    assert adaptive().choose(TIMEOUT).mode == "aligned"


def test_hysteresis_returns_only_below_half_the_budget() -> None:
    policy = adaptive()
    modes = [policy.choose(predicted).mode for predicted in (0.09, 0.11, 0.09, 0.06, 0.05, 0.09)]
    assert modes == ["aligned", "unaligned", "unaligned", "unaligned", "aligned", "aligned"]


def test_disproved_prediction_is_distrusted_for_a_while() -> None:
    policy = adaptive()
    policy.observe(policy.choose(FAST), TIMEOUT, escalated=True)
    modes = [policy.choose(FAST).mode for _ in range(DISTRUST_FIRST + 1)]
    assert modes == ["unaligned"] * DISTRUST_FIRST + ["aligned"]


def test_distrust_doubles_up_to_its_limit() -> None:
    policy = adaptive()
    lengths = []
    for _ in range(6):
        policy.observe(policy.choose(FAST), TIMEOUT, escalated=True)
        length = 0
        while policy.choose(FAST).mode == "unaligned":
            length += 1
        lengths.append(length)
    assert lengths == [4, 8, 16, 32, 64, DISTRUST_LIMIT]


def test_fast_alignment_wins_the_trust_back() -> None:
    policy = adaptive()
    for _ in range(2):
        policy.observe(policy.choose(FAST), TIMEOUT, escalated=True)
        while policy.choose(FAST).mode == "unaligned":
            pass
    policy.observe(policy.choose(FAST), FAST, escalated=False)
    policy.observe(policy.choose(FAST), TIMEOUT, escalated=True)
    modes = [policy.choose(FAST).mode for _ in range(DISTRUST_FIRST + 1)]
    assert modes.count("unaligned") == DISTRUST_FIRST


@pytest.mark.parametrize(("predict", "predicted"), [(False, FAST), (True, None)])
def test_escalation_without_a_prediction_disproves_nothing(
    predict: bool, predicted: float | None
) -> None:
    policy = adaptive(predict=predict)
    policy.observe(policy.choose(predicted), TIMEOUT, escalated=True)
    assert policy.choose(predicted).mode == "aligned"


def test_unaligned_outcome_teaches_nothing_about_alignment() -> None:
    policy = adaptive()
    policy.observe(policy.choose(SLOW), 0.0, escalated=False)
    assert policy.choose(FAST).mode == "aligned"


def test_new_mode_is_used_from_the_next_choice_on() -> None:
    policy = adaptive()
    policy.set_mode("unaligned")
    assert (policy.mode, policy.choose(FAST).mode) == ("unaligned", "unaligned")
    policy.set_mode("aligned")
    assert policy.choose(SLOW).mode == "aligned"


def test_new_timeout_is_also_the_new_budget() -> None:
    policy = adaptive()
    policy.set_alignment_timeout(20.0)
    assert policy.alignment_timeout == 20.0
    choice = policy.choose(SLOW)
    assert (choice.mode, choice.escalate_after) == ("aligned", 20.0)


def test_too_many_bytes_stay_aligned_until_they_fit() -> None:
    policy = adaptive(bound=1000)
    choice = policy.choose(SLOW, in_flight_bytes=1001)
    assert (choice.mode, choice.escalate_after) == ("aligned", 0.0)
    assert choice.reason.endswith("but 1001 bytes in flight are more than max_in_flight_bytes=1000")
    assert not policy.fits(1001)
    assert policy.fits(1000)
    assert policy.choose(SLOW, in_flight_bytes=1000).mode == "unaligned"


def test_held_back_checkpoint_says_nothing_about_the_prediction() -> None:
    policy = adaptive(bound=0)
    policy.observe(policy.choose(SLOW, in_flight_bytes=1), SLOW, escalated=True)
    assert policy.choose(FAST).mode == "aligned"


def test_without_a_bound_everything_fits() -> None:
    assert adaptive().fits(10**15)


def test_repr_tells_settings_and_distrust() -> None:
    assert repr(adaptive()) == (
        "ModePolicy('adaptive', alignment_timeout=0.1, predict=True, distrusted=0)"
    )


@given(st.lists(st.floats(0.051, 0.1), min_size=1))
def test_prediction_between_the_thresholds_never_changes_the_mode(noise: list[float]) -> None:
    """Without hysteresis a queue that breathes around the budget would flap."""
    for first in (FAST, SLOW):
        policy = adaptive()
        mode = policy.choose(first).mode
        assert {policy.choose(predicted).mode for predicted in noise} == {mode}


# --- the prediction -----------------------------------------------------------------------------


def chain(*stages: tuple[tuple[int, ...], float | None, float]) -> list[TaskFacts]:
    names = [f"t{index}" for index in range(len(stages))]
    return [
        TaskFacts(name, tuple(names[index - 1 : index]) if index else (), *stage)
        for index, (name, stage) in enumerate(zip(names, stages, strict=True))
    ]


@pytest.mark.parametrize("exchanges", [1, 2, 3])
@pytest.mark.parametrize("parallelism", [1, 4])
def test_full_exchanges_before_a_slow_sink_follow_the_law(exchanges: int, parallelism: int) -> None:
    """k exchanges of p channels with C records each before a task of rate μ: k·p·C/μ."""
    capacity, rate = 100, 50.0
    full = (parallelism * capacity,) * parallelism
    stages: list[tuple[tuple[int, ...], float | None, float]] = [((0,) * parallelism, None, 1.0)]
    stages += [(full, 1e6, 1.0)] * (exchanges - 1)
    stages += [(full, rate, 1.0)]
    assert predict_alignment(chain(*stages)) == pytest.approx(
        exchanges * parallelism * capacity / rate
    )


def test_bottleneck_in_the_middle_hides_the_fast_tail() -> None:
    facts = chain(((0,), None, 1.0), ((400,), 100.0, 1.0), ((10,), 1e5, 1.0))
    assert predict_alignment(facts) == pytest.approx(4.0)


def test_selectivity_scales_what_is_still_to_come() -> None:
    filtered = chain(((0,), None, 1.0), ((1000,), 1e6, 0.1), ((50,), 10.0, 1.0))
    assert predict_alignment(filtered) == pytest.approx((50 + 100) / 10)
    flat_mapped = chain(((0,), None, 1.0), ((1000,), 1e6, 5.0), ((50,), 10.0, 1.0))
    assert predict_alignment(flat_mapped) == pytest.approx((50 + 5000) / 10)


def test_fullest_subtask_decides_under_skew() -> None:
    facts = chain(((0, 0), None, 1.0), ((10, 990), 100.0, 1.0))
    assert predict_alignment(facts) == pytest.approx(9.9)


def test_other_parallelism_divides_what_arrives() -> None:
    facts = chain(((100, 100), 1e6, 1.0), ((0, 0, 0, 0), 10.0, 1.0))
    assert predict_alignment(facts) == pytest.approx(200 / 4 / 10)


def test_broadcast_reaches_every_subtask_whole() -> None:
    facts = [
        TaskFacts("records", (), (100,), 1e6),
        TaskFacts("rules", (), (40,), 1e6),
        TaskFacts("both", ("records", "rules"), (10, 0), 10.0, 1.0, frozenset({"rules"})),
    ]
    assert predict_alignment(facts) == pytest.approx((10 + 100 / 2 + 40) / 10)


def test_broadcast_copies_count_for_what_comes_behind() -> None:
    facts = [
        TaskFacts("rules", (), (40,), 1e6),
        TaskFacts("both", ("rules",), (0, 0), 1e6, 1.0, frozenset({"rules"})),
        TaskFacts("out", ("both",), (0,), 10.0),
    ]
    assert predict_alignment(facts) == pytest.approx(2 * 40 / 10)


def test_union_adds_what_arrives_from_all_sides() -> None:
    facts = [
        TaskFacts("left", (), (100,), 1e6),
        TaskFacts("right", (), (300,), 1e6),
        TaskFacts("both", ("left", "right"), (0,), 100.0),
    ]
    assert predict_alignment(facts) == pytest.approx(4.0)


def test_longest_path_decides() -> None:
    facts = [
        TaskFacts("source", (), (0,), None),
        TaskFacts("short", ("source",), (10,), 100.0),
        TaskFacts("long", ("source",), (500,), 100.0),
    ]
    assert predict_alignment(facts) == pytest.approx(5.0)


def test_unknown_rate_with_records_to_serve_makes_the_time_unknown() -> None:
    assert predict_alignment(chain(((0,), None, 1.0), ((1,), None, 1.0))) is None
    assert predict_alignment(chain(((0,), None, 1.0), ((1,), 0.0, 1.0))) is None
    assert predict_alignment(chain(((5,), 1.0, 1.0), ((0,), None, 1.0))) is None


def test_idle_graph_aligns_at_once_whatever_the_rates() -> None:
    assert predict_alignment(chain(((0,), None, 1.0), ((0,), None, 1.0))) == 0.0
    assert predict_alignment([]) == 0.0


def test_finished_upstream_sends_nothing() -> None:
    assert predict_alignment([TaskFacts("sink", ("gone",), (10,), 10.0)]) == pytest.approx(1.0)


def test_cycle_is_an_error() -> None:
    with pytest.raises(CycleError):
        predict_alignment([TaskFacts("a", ("b",), (1,), 1.0), TaskFacts("b", ("a",), (1,), 1.0)])


@given(
    st.lists(
        st.tuples(st.integers(0, 1000), st.floats(0.1, 1e4), st.floats(0, 3)),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 5),
)
def test_more_queued_records_never_shorten_the_alignment(
    stages: list[tuple[int, float, float]], which: int
) -> None:
    def predict(numbers: list[tuple[int, float, float]]) -> float:
        predicted = predict_alignment(
            chain(*(((queued,), rate, selectivity) for queued, rate, selectivity in numbers))
        )
        assert predicted is not None
        return predicted

    more = list(stages)
    index = which % len(stages)
    queued, rate, selectivity = more[index]
    more[index] = (queued + 100, rate, selectivity)
    assert predict(more) >= predict(stages)
    assert predict(stages) >= max(queued / rate for queued, rate, _ in stages)


def drain_time(queues: list[int], capacities: list[int], rates: list[float]) -> float:
    """Simulate bounded queues, one behind the other, until everything in them is served."""
    now, blocked = 0.0, [False] * len(queues)
    ends: list[tuple[float, int]] = []

    def begin(stage: int) -> None:
        if queues[stage] and not blocked[stage] and all(stage != busy for _, busy in ends):
            heapq.heappush(ends, (now + 1 / rates[stage], stage))

    def hand_on(stage: int) -> None:
        following = stage + 1
        blocked[stage] = following < len(queues) and queues[following] >= capacities[following]
        if blocked[stage]:
            return
        queues[stage] -= 1
        if following < len(queues):
            queues[following] += 1
            begin(following)
        begin(stage)
        if stage > 0 and blocked[stage - 1]:
            hand_on(stage - 1)

    for stage in range(len(queues)):
        begin(stage)
    while ends:
        now, stage = heapq.heappop(ends)
        hand_on(stage)
    return now


@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(1, 20), st.floats(1, 1000)),
        min_size=1,
        max_size=4,
    )
)
def test_prediction_agrees_with_simulated_backpressure(
    stages: list[tuple[int, int, float]],
) -> None:
    """It is a lower bound, and exact where one task is the bottleneck throughout; in the worst
    case the tasks are busy one after another, not at once."""
    queues = [min(queued, capacity) for queued, capacity, _ in stages]
    rates = [rate for _, _, rate in stages]
    numbers = zip(queues, rates, strict=True)
    predicted = predict_alignment(chain(*(((queued,), rate, 1.0) for queued, rate in numbers)))
    simulated = drain_time(queues, [capacity for _, capacity, _ in stages], rates)
    assert predicted is not None
    assert predicted <= simulated * (1 + 1e-9)
    assert predicted * len(stages) >= simulated * (1 - 1e-9)


def test_prediction_of_a_full_pipeline_before_a_slow_sink_is_exact() -> None:
    queues, rates = [50, 50, 50], [1000.0, 900.0, 10.0]
    numbers = zip(queues, rates, strict=True)
    predicted = predict_alignment(chain(*(((queued,), rate, 1.0) for queued, rate in numbers)))
    assert predicted == pytest.approx(drain_time(list(queues), [50, 50, 50], rates))


# ---- asked for


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ([], None),
        ([None, None], None),
        ([None, "unaligned"], "unaligned"),
        (["unaligned", "adaptive"], "adaptive"),
        (["unaligned", "adaptive", "aligned"], "aligned"),
    ],
)
def test_checkpoint_for_several_takes_the_most_strictly_aligned_mode(
    asked: list[ChosenMode | None], chosen: ChosenMode | None
) -> None:
    assert strictest(asked) == chosen


def test_mode_that_is_asked_for_holds_for_one_checkpoint_and_teaches_nothing() -> None:
    policy = ModePolicy("adaptive", 0.1, predict=False)
    asked = policy.choose(asked="aligned")
    assert (asked.mode, asked.escalate_after) == ("aligned", None)
    assert policy.choose(asked="unaligned").mode == "unaligned"
    assert policy.choose().escalate_after == 0.1
    other = ModePolicy("unaligned", 0.1, predict=False).choose(asked="adaptive")
    assert (other.mode, other.escalate_after) == ("aligned", 0.1)
