from __future__ import annotations

import pytest

from streamcp.checkpoint.statistics import CheckpointStatistics
from streamcp.cli import words
from streamcp.config import Checkpoints
from streamcp.observability import events

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (0.0, "0 µs"),
        (0.00048, "480 µs"),
        (0.0123, "12.3 ms"),
        (0.0999, "100 ms"),
        (0.5, "500 ms"),
        (1.5, "1.50 s"),
        (125.0, "2 min 05 s"),
        (7260.0, "2 h 01 min"),
    ],
)
def test_duration_has_the_unit_that_fits(seconds: float | None, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_000_000, "2.0 MB"), (10**15, "1000.0 TB")],
)
def test_size_has_the_unit_that_fits(count: int, text: str) -> None:
    assert words.size(count) == text


@pytest.mark.parametrize(
    ("count", "text"), [(12, "12"), (99_999, "99,999"), (123_456, "123 k"), (1_234_567, "1.23 M")]
)
def test_large_numbers_are_shortened(count: int, text: str) -> None:
    assert words.number(count) == text


def test_completed_checkpoint_tells_mode_delays_and_what_it_holds() -> None:
    one = CheckpointStatistics(
        checkpoint_id=7,
        outcome="completed",
        mode="aligned",
        escalated_after=0.05,
        barrier_delay=0.06,
        durable_delay=0.08,
        in_flight_records=1,
        in_flight_bytes=20,
        state_bytes=3000,
    )
    assert words.checkpoint_line(one) == (
        "checkpoint 7 complete (periodic, aligned → unaligned after 50.0 ms): barrier 60.0 ms, "
        "durable 80.0 ms, state 3.0 kB, 1 in-flight record (20 B)"
    )


def test_failed_checkpoint_tells_its_reason() -> None:
    one = CheckpointStatistics(
        checkpoint_id=8, outcome="failed", failure="STORAGE_ERROR", failure_detail="disk full"
    )
    assert words.checkpoint_line(one) == (
        "checkpoint 8 failed (periodic, aligned): storage error: disk full"
    )


def test_events_that_matter_to_people_have_a_line() -> None:
    restored = events.JobRestored(0, "j", 2, 7, 0.02, 345)
    assert words.event_line(restored) == (
        "attempt 2 restored checkpoint 7 in 20.0 ms, replaying 345 in-flight records"
    )
    restarting = events.JobRestarting(0, "j", 2, 1.0, "boom")
    assert words.event_line(restarting) == "failed: boom; restarting in 1.00 s"
    assert "there is none" in (words.event_line(events.CheckpointOverdue(0, None, 5.0)) or "")
    assert words.event_line(events.JobFinished(0, "j", 2)) is None


def test_settings_are_told_in_a_line() -> None:
    assert words.checkpointing(None) == "no checkpoints"
    assert words.checkpointing(Checkpoints(to="cp", every="5s", mode="unaligned")) == (
        "unaligned checkpoints every 5s in cp"
    )
    assert "only on request" in words.checkpointing(Checkpoints(to="cp"))


@pytest.mark.parametrize(
    ("watermark", "text"),
    [
        (None, ""),
        (NOW, "0 µs behind"),
        (NOW - 1_500, "1.50 s behind"),
        (NOW + 125_000, "2 min 05 s ahead"),
        (1_357_387_200_000, "2013-01-05 12:00:00"),
        (-(10**16), str(-(10**16))),
    ],
)
def test_event_time_is_told_by_the_clock_or_as_a_time(watermark: int | None, text: str) -> None:
    assert words.event_time(watermark, NOW) == text
