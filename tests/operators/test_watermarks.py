"""Timestamps are found for whole batches, and watermarks keep their promise and never go back."""

from __future__ import annotations

import logging
import pickle
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcp.elements import MIN_TIMESTAMP
from streamcp.errors import SettingsError, StepFailed
from streamcp.operators.watermarks import Stamper, Watermarks

NOON = 1_700_000_000_000


@dataclass
class EveryThird:
    """Tells the largest timestamp with every third record."""

    seen: int = 0
    largest: int = MIN_TIMESTAMP

    def observe(self, record: int, timestamp: int, /) -> int | None:
        self.seen += 1
        self.largest = max(self.largest, timestamp)
        return self.largest if self.seen % 3 == 0 else None


def _itself(record: Any) -> Any:
    return record


def _stamper(**settings: Any) -> Stamper[Any]:
    return Watermarks(_itself, **settings).stamper("orders")


def test_no_record_leaves_the_least_watermark() -> None:
    stamper = _stamper()
    assert stamper.stamp([], NOON) == ([], [], [])
    assert stamper.watermark == MIN_TIMESTAMP


def test_records_come_with_their_timestamps() -> None:
    stamper = Watermarks[str](lambda text: NOON + len(text)).stamper("words")
    assert stamper.stamp(["a", "bcd"], NOON) == (["a", "bcd"], [NOON + 1, NOON + 3], [])


@pytest.mark.parametrize(("out_of_orderness", "behind"), [("0s", 1), ("10s", 10_001)])
def test_watermark_is_the_largest_timestamp_less_the_bound_less_one(
    out_of_orderness: str, behind: int
) -> None:
    stamper = _stamper(out_of_orderness=out_of_orderness)
    stamper.stamp([NOON, NOON + 500, NOON + 20], NOON)
    assert stamper.watermark == NOON + 500 - behind


def test_bound_below_a_millisecond_is_not_lost() -> None:
    stamper = _stamper(out_of_orderness="100us")
    stamper.stamp([NOON], NOON)
    assert stamper.watermark == NOON - 2


@given(st.lists(st.lists(st.integers(-(10**6), 10**6))), st.integers(0, 1000))
def test_watermark_never_goes_back_and_is_that_of_all_records(
    batches: list[list[int]], bound: int
) -> None:
    """Case 9, bytewax#479: time that steps back moves nothing back."""
    stamper = _stamper(out_of_orderness=timedelta(milliseconds=bound))
    before, seen = stamper.watermark, []
    for batch in batches:
        stamper.stamp(batch, 0)
        seen += batch
        assert stamper.watermark >= before
        assert stamper.watermark == (max(seen) - bound - 1 if seen else MIN_TIMESTAMP)
        before = stamper.watermark


def test_record_far_ahead_of_the_clock_is_taken_out_and_moves_nothing() -> None:
    """Case 22, turbolytics/sql-flow#358: one clock a day ahead makes nobody else late."""
    day = 86_400_000
    stamper = _stamper(max_ahead="1h", out_of_orderness="1s")
    on_time = [NOON + n for n in range(10)]
    stamped = stamper.stamp([NOON + day, *on_time], NOON)
    assert stamped == (on_time, on_time, [NOON + day])
    assert stamper.watermark == NOON + 9 - 1_001


def test_bound_ahead_is_inclusive() -> None:
    stamped = _stamper(max_ahead="1h").stamp([NOON + 3_600_000, NOON + 3_600_001], NOON)
    assert stamped == ([NOON + 3_600_000], [NOON + 3_600_000], [NOON + 3_600_001])


def test_batch_wholly_ahead_leaves_the_watermark() -> None:
    stamper = _stamper(max_ahead="1s")
    assert stamper.stamp([NOON + 5_000], NOON) == ([], [], [NOON + 5_000])
    assert stamper.watermark == MIN_TIMESTAMP


def test_marked_records_tell_the_watermark() -> None:
    def mark(pair: tuple[int, bool], timestamp: int) -> int | None:
        return timestamp if pair[1] else None

    strategy = Watermarks.punctuated(lambda pair: pair[0], mark)
    stamper = strategy.stamper("pairs")
    stamper.stamp([(NOON, False)], NOON)
    assert stamper.watermark == MIN_TIMESTAMP
    stamper.stamp([(NOON + 5, True), (NOON + 2, True), (NOON + 9, False)], NOON)
    assert stamper.watermark == NOON + 5
    stamper.stamp([(NOON + 3, True)], NOON)
    assert stamper.watermark == NOON + 5


def test_generator_finds_the_watermarks_of_its_own_split() -> None:
    strategy = Watermarks.custom(_itself, EveryThird)
    first, second = strategy.stamper("a"), strategy.stamper("a")
    first.stamp([NOON, NOON + 9], NOON)
    second.stamp([NOON + 50], NOON)
    assert (first.watermark, second.watermark) == (MIN_TIMESTAMP, MIN_TIMESTAMP)
    first.stamp([NOON + 1], NOON)
    assert (first.watermark, second.watermark) == (NOON + 9, MIN_TIMESTAMP)


STRATEGIES = [
    Watermarks[int](_itself, out_of_orderness="3ms", max_ahead="1d"),
    Watermarks.punctuated(_itself, lambda record, timestamp: timestamp if record % 3 else None),
    Watermarks.custom(_itself, EveryThird),
]


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(batches=st.lists(st.lists(st.integers(NOON - 100, NOON + 100))))
def test_restored_stamper_goes_on_as_if_nothing_had_happened(
    strategy: Watermarks[int], batches: list[list[int]]
) -> None:
    reference, stamper = strategy.stamper("a"), strategy.stamper("a")
    for batch in batches:
        snapshot = stamper.snapshot()
        stamper.stamp([NOON + 500] * 4, NOON)  # what comes behind the cut is not in it
        stamper = strategy.stamper("a")
        stamper.restore(pickle.loads(pickle.dumps(snapshot)))
        assert stamper.stamp(batch, NOON) == reference.stamp(batch, NOON)
        assert stamper.watermark == reference.watermark


def test_changed_strategy_keeps_the_watermark() -> None:
    old = _stamper()
    old.stamp([NOON], NOON)
    new = Watermarks.custom(_itself, EveryThird).stamper("a")
    new.restore(old.snapshot())
    new.stamp([NOON + 1, NOON + 2], NOON)
    assert new.watermark == NOON - 1
    new.stamp([NOON + 3], NOON)
    assert new.watermark == NOON + 3


# ---- timestamps that are none


@pytest.mark.parametrize(
    ("timestamp", "remedy"),
    [
        (1_700_000_000.25, r"in seconds\? return round\(ts \* 1000\)"),
        (datetime(2024, 1, 1), "naive: of which time zone"),  # noqa: DTZ001
        ("2024-01-01", "an int .* or an aware datetime"),
        (None, "an int .* or an aware datetime"),
    ],
)
def test_unusable_timestamp_fails_at_its_record_naming_source_and_remedy(
    timestamp: Any, remedy: str
) -> None:
    strategy = Watermarks[str](lambda text: timestamp if text == "bad" else NOON)
    stamper = strategy.stamper("orders")
    with pytest.raises(StepFailed, match=rf"source 'orders': timestamp= .*'bad'.*{remedy}"):
        stamper.stamp(["good", "bad", "other"], NOON)
    assert stamper.watermark == MIN_TIMESTAMP


def test_function_that_raises_fails_at_its_record_with_the_cause() -> None:
    stamper = Watermarks[dict[str, int]](lambda record: record["ts"]).stamper("orders")
    with pytest.raises(StepFailed, match=r"record \{'id': 7\}: KeyError: 'ts'") as failed:
        stamper.stamp([{"ts": NOON}, {"id": 7}], NOON)
    assert isinstance(failed.value.__cause__, KeyError)


def test_watermark_in_seconds_fails_at_its_record() -> None:
    strategy = Watermarks.punctuated(_itself, lambda record, timestamp: 1.5)  # type: ignore[arg-type, return-value]
    with pytest.raises(StepFailed, match=r"watermark= .*in seconds\?"):
        strategy.stamper("a").stamp([NOON], NOON)


def test_long_record_is_shortened_in_the_error() -> None:
    stamper = Watermarks[str](lambda text: 0.5).stamper("orders")  # type: ignore[arg-type, return-value]
    with pytest.raises(StepFailed) as failed:
        stamper.stamp(["x" * 100_000], NOON)
    assert len(str(failed.value)) < 1_000


@given(
    st.datetimes(min_value=datetime(1990, 1, 2), max_value=datetime(2200, 1, 1)),  # noqa: DTZ001
    st.integers(-12, 12),
)
def test_aware_datetime_is_the_millisecond_it_lies_in(naive: datetime, hours: int) -> None:
    moment = naive.replace(tzinfo=UTC)
    elsewhere = moment.astimezone(timezone(timedelta(hours=hours)))
    stamped = _stamper().stamp([moment, NOON, elsewhere], NOON)
    whole_seconds = round(moment.replace(microsecond=0).timestamp())
    expected = whole_seconds * 1000 + moment.microsecond // 1000
    assert stamped.timestamps == [expected, NOON, expected]


def test_integers_of_numpy_become_plain_ones() -> None:
    stamped = _stamper().stamp([numpy.int64(NOON), NOON + 1], NOON)
    assert [type(timestamp) for timestamp in stamped.timestamps] == [int, int]


def test_first_timestamp_before_1990_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    strategy = Watermarks[int](_itself)
    with caplog.at_level(logging.WARNING):
        for stamper in (strategy.stamper("orders"), strategy.stamper("orders")):
            stamper.stamp([1_700_000_000], NOON)
            stamper.stamp([1_700_000_001], NOON)
    (message,) = caplog.messages
    assert "source 'orders'" in message
    assert "round(ts * 1000)" in message


def test_later_timestamp_before_1990_is_taken_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    stamper = _stamper()
    with caplog.at_level(logging.WARNING):
        stamper.stamp([NOON, 5], NOON)
        stamper.stamp([7], NOON)
    assert caplog.messages == []


# ---- settings


def test_group_and_drift_are_kept_together() -> None:
    made = [
        Watermarks(_itself, align="clicks", max_drift="2s"),
        Watermarks.punctuated(_itself, lambda _, at: at, align="clicks", max_drift="2s"),
        Watermarks.custom(_itself, EveryThird, align="clicks", max_drift="2s"),
    ]
    assert [(one.align, one.max_drift) for one in made] == [("clicks", 2_000)] * 3


@pytest.mark.parametrize(
    "settings",
    [
        {"align": "clicks"},
        {"max_drift": "1m"},
        {"align": "", "max_drift": "1m"},
        {"align": 5, "max_drift": "1m"},
        {"align": "clicks", "max_drift": 60},
    ],
)
def test_half_a_group_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="max_drift"):
        Watermarks(_itself, **settings)


@pytest.mark.parametrize("setting", ["out_of_orderness", "idle_after", "max_ahead"])
@pytest.mark.parametrize("value", [5, "5", "-1s", timedelta(seconds=-1)])
def test_duration_that_is_none_is_refused_by_name(setting: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=rf"Watermarks\({setting}\)"):
        _stamper(**{setting: value})


@pytest.mark.parametrize("make", [Watermarks.punctuated, Watermarks.custom])
def test_durations_of_the_other_makers_are_checked_too(make: Any) -> None:
    second = EveryThird if make == Watermarks.custom else (lambda record, timestamp: None)
    with pytest.raises(SettingsError, match=r"Watermarks\(idle_after\)"):
        make(_itself, second, idle_after=3)
    made = make(_itself, second, idle_after="3s", max_ahead="2s")
    assert (made.idle_after, made.max_ahead) == (3.0, 2_000)


def test_timestamp_that_is_no_function_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"Watermarks\(timestamp='ts'\): write a function"):
        Watermarks("ts")  # type: ignore[arg-type]


def test_mark_that_is_no_function_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"Watermarks\(watermark=None\): write a function"):
        Watermarks.punctuated(_itself, None)  # type: ignore[arg-type]


def test_generator_without_observe_is_refused() -> None:
    with pytest.raises(SettingsError, match="made a dict without observe"):
        Watermarks.custom(_itself, dict)  # type: ignore[arg-type]


def test_generator_that_needs_arguments_is_refused() -> None:
    @dataclass
    class Bounded:
        bound: int

        def observe(self, record: int, timestamp: int, /) -> int:
            return timestamp - self.bound

    with pytest.raises(SettingsError, match="give every field a default"):
        Watermarks.custom(_itself, Bounded)  # type: ignore[arg-type]
