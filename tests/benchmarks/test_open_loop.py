"""Open loop: when records are due and what becomes of them, and what is made of their latencies."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import random
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness import Suite
from benchmarks.harness.command import main
from benchmarks.harness.histogram import Histogram, merged, quantile
from benchmarks.harness.open_loop import SECOND, Intake, Schedule, bound_by, is_rejected
from benchmarks.harness.recorder import backlog
from benchmarks.harness.sustainable import highest_sustained, is_sustained
from benchmarks.workloads import failure, latency, load, running, transient
from benchmarks.workloads.counting import key
from benchmarks.workloads.killing import Life
from benchmarks.workloads.surviving import AppendingSink, Written, read_written

SPLITS = 4


def run(suite: Suite[Any], sizes: Any, name: str, folder: Path) -> list[dict[str, Any]]:
    """Run one benchmark through its command line, and return its rows."""
    file = folder / "figures.json"
    arguments = ["run", f"{suite.name}.{name}", "--here", "--json", str(file)]
    main([dataclasses.replace(suite, full=sizes)], arguments)
    rows: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))["benchmarks"][0]["rows"]
    wrong = [row for row in rows if row["target"] == [1.0, 1.0] and row["verdict"] == "missed"]
    assert not wrong
    return rows


# ---- the schedule

SCHEDULES = st.builds(
    Schedule,
    st.integers(1, 2_000_000),
    st.integers(0, 300),
    st.none() | st.integers(0, 1000),
)


@given(SCHEDULES, st.integers(-SECOND, 400 * SECOND))
def test_as_many_are_due_as_have_their_intended_time_behind_them(
    schedule: Schedule, elapsed: int
) -> None:
    times = schedule.times()
    behind = sum(times.intended(index) <= elapsed for index in range(schedule.count))
    assert times.due(elapsed) == behind


def test_even_times_keep_to_the_rate_without_drift() -> None:
    times = Schedule(3, 10).times()
    assert [times.intended(index) for index in range(4)] == [
        0,
        SECOND // 3,
        2 * SECOND // 3,
        SECOND,
    ]


def test_drawn_times_are_those_of_the_seed_and_have_the_rate() -> None:
    first, again, other = (Schedule(1000, 20_000, seed).times() for seed in (1, 1, 2))
    assert [first.intended(n) for n in range(100)] == [again.intended(n) for n in range(100)]
    assert first.intended(99) != other.intended(99)
    # Twenty seconds, give or take five standard deviations of a sum of exponential pauses.
    assert first.intended(19_999) / SECOND == pytest.approx(20, abs=5 * math.sqrt(20_000) / 1000)


# ---- the intake


def told(*numbers: int) -> bytes:
    return array("q", numbers).tobytes()


async def taken(intake: Intake, split: int, start: int = 0) -> list[int]:
    return [index async for indexes in intake.batches(split, start) for index in indexes]


@given(st.integers(0, 60), st.randoms())
def test_each_record_is_given_out_once_in_order_however_the_driver_s_bytes_come(
    count: int, chance: random.Random
) -> None:
    async def scenario() -> list[list[int]]:
        intake = Intake(Schedule(1000, count).times(), SPLITS)
        splits = [asyncio.create_task(taken(intake, split)) for split in range(SPLITS)]
        rises = sorted(chance.choices(range(count + 1), k=5))
        data = told(7, *rises, count)
        while data:
            cut = chance.randrange(1, 20)
            intake.data_received(data[:cut])
            data = data[cut:]
            await asyncio.sleep(0)
        assert intake.begun == 7
        return await asyncio.gather(*splits)

    assert asyncio.run(scenario()) == [list(range(s, count, SPLITS)) for s in range(SPLITS)]


def test_a_split_that_goes_on_in_the_middle_finds_what_became_due_meanwhile() -> None:
    async def scenario() -> list[int]:
        intake = Intake(Schedule(1000, 20).times(), SPLITS)
        intake.data_received(told(1, 20))
        return await taken(intake, 1, start=3)

    assert asyncio.run(scenario()) == [13, 17]


def test_what_is_not_due_is_not_given_out() -> None:
    async def scenario() -> list[int]:
        intake = Intake(Schedule(1000, 20).times(), SPLITS)
        intake.data_received(told(1, 6))
        found: list[int] = []

        async def take() -> None:
            async for indexes in intake.batches(1, 0):
                found.extend(indexes)

        task = asyncio.create_task(take())
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        return found

    assert asyncio.run(scenario()) == [1, 5]


@pytest.mark.parametrize(("late", "rejected"), [(0.9, False), (1.2, True)])
def test_a_run_is_rejected_if_its_driver_was_later_than_a_tenth_of_the_p99(
    late: float, rejected: bool
) -> None:
    lateness = Histogram([round(late * 1e6)] * 20_000)
    assert is_rejected(lateness, 10.0) is rejected


def test_a_percentile_that_nobody_judges_tells_that_its_driver_was_late() -> None:
    lateness = Histogram([1_203_000] * 20_000)  # to less than a percent
    assert bound_by(lateness, 13.0, 0.9) == ""
    assert bound_by(lateness, 10.0, 0.9) == "an upper bound: the driver was 1.21 ms late (p90)"


def test_a_run_without_percentile_is_rejected() -> None:
    assert is_rejected(Histogram([1000] * 20_000), math.nan)
    assert is_rejected(Histogram(), 10.0)


def ran(*, waited: float, late: int) -> running.Ran:
    """A run of ten seconds whose latencies are all 10 ms."""
    latencies = [Histogram([10_000_000] * 20_000)]
    lateness = Histogram([late] * 20_000)
    return running.Ran(latencies, latencies[0], [], [], 1, 1, 10.0, 5.0, waited, lateness)


def test_a_run_is_rejected_for_its_driver_or_for_what_others_took() -> None:
    assert ran(waited=0.1, late=500_000).rejected_at(0.99) == ""
    assert "driver" in ran(waited=0.1, late=1_500_000).rejected_at(0.99)
    assert "3% of the time" in ran(waited=0.3, late=500_000).rejected_at(0.99)


# ---- the histogram

VALUES = st.builds(
    lambda seed, longest: [random.Random(seed).randrange(longest) for _ in range(300)],
    st.integers(0, 1000),
    st.sampled_from([1, 5000, 3_000_000, 50_000_000, 3600 * SECOND]),
)


@given(VALUES, st.floats(0.05, 0.5))
def test_a_percentile_is_right_to_a_hundredth(values: list[int], share: float) -> None:
    exact = sorted(values)[math.ceil(share * len(values)) - 1] / 1e6
    found = Histogram(values).quantile(share)
    assert exact <= found <= exact * 1.01 + 0.001


def test_a_percentile_needs_a_hundred_values_beyond_it() -> None:
    values = range(0, 10_000_000, 1000)
    assert not math.isnan(Histogram(values).quantile(0.99))
    assert math.isnan(Histogram(values).quantile(0.999))
    assert math.isnan(Histogram(values[:-1]).quantile(0.99))


@given(VALUES, VALUES)
def test_several_histograms_answer_as_one_of_all_values(left: list[int], right: list[int]) -> None:
    both = [Histogram(left), Histogram(right)]
    together = Histogram([*left, *right])
    assert merged(both).buckets == together.buckets
    assert quantile([*both, both[0]], 0.5) == Histogram([*left, *right, *left]).quantile(0.5)


def test_published_buckets_make_the_same_histogram() -> None:
    values = [random.Random(5).randrange(10 * SECOND) for _ in range(1000)]
    one = Histogram(values)
    again = Histogram(buckets=json.loads(json.dumps(one.buckets)))
    assert again.shown() == one.shown()
    assert again.count == 1000


# ---- what is sustained


def test_backlog_is_what_is_due_and_not_done() -> None:
    slices = [[0.1, 0, 0, 0, 60], [0.2, 0, 0, 0, 120]]
    assert backlog(slices, Schedule(1000, 1000).times()) == [[0.1, 41], [0.2, 21]]


@pytest.mark.parametrize(
    ("growing", "p99s", "sustained"),
    [
        (0.0, [3.0] * 10, True),
        (0.009, [3.0] * 10, True),
        (0.011, [3.0] * 10, False),
        (0.0, [3.0] * 5 + [6.0] * 5, False),
        (0.0, [9.0] + [3.0] * 9, True),
    ],
)
def test_a_load_is_sustained_if_nothing_grows(
    growing: float, p99s: list[float], sustained: bool
) -> None:
    times = [0.1 * n for n in range(10)]
    waiting = [[at, 50 + growing * 1000 * at] for at in times]
    assert is_sustained(waiting, p99s, 1000) is sustained


@given(st.integers(1, 1_000_000), st.integers(2, 2_000_000))
def test_bisection_finds_what_a_system_takes(limit: int, high: int) -> None:
    async def passes(rate: int) -> bool:
        return rate <= limit

    found = asyncio.run(highest_sustained(passes, max(high // 3, 1), high))
    expected = min(limit, high)
    assert found <= limit
    assert found >= expected / 1.05 - 1


def test_bisection_goes_lower_if_a_rate_does_not_pass_again() -> None:
    tried: list[int] = []

    async def passes(rate: int) -> bool:
        tried.append(rate)
        return rate <= 100 and tried.count(rate) < 2

    assert asyncio.run(highest_sustained(passes, 50, 160, confirmations=1)) < 100


# ---- what a workload makes of what it saw


def test_a_slow_time_ends_when_the_backlog_is_what_it_was() -> None:
    waiting = [[1.0, 5], [2.0, 8], [3.0, 500], [4.0, 900], [5.0, 9], [6.0, 8], [7.0, 3]]
    assert transient.slow_window(waiting, (2.0, 3.0)) == (2.0, 6.0)
    assert transient.slow_window(waiting[:5], (2.0, 3.0)) == (2.0, math.inf)


def test_caught_up_means_three_calm_slices_in_a_row() -> None:
    before = [[1 + n / 10, 1.0, 3.0, 4.0, 100] for n in range(10)]
    p99s = [900, 500, 3, 90, 3, 3, 3, 3]
    after = [[round(2.5 + n / 10, 1), 1.0, p99, p99, 100] for n, p99 in enumerate(p99s)]
    waiting = [[one[0], 7.0] for one in [*before, *after]]
    assert failure.caught_up([*before, *after], waiting, 2.0) == pytest.approx(2.9)
    waiting[-3][1] = 8.0
    assert failure.caught_up([*before, *after], waiting, 2.0) is None


def test_a_write_that_a_kill_has_cut_off_does_not_count(tmp_path: Path) -> None:
    file = tmp_path / "out"
    with file.open("wb", buffering=0) as out:
        AppendingSink(out.fileno()).write([(30, 2), (50, 4)])
        AppendingSink(out.fileno()).write([(70, 3)])
    whole = file.read_bytes()
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        found = [*read_written(file)]
        assert len(found) == (1 if size >= 6 * 8 else 0)
    assert [*found[0].intended] == [30, 50]
    assert [*found[0].numbers] == [2, 4]


def accounted(pairs: list[tuple[int, int]], count: int) -> list[float]:
    """Write (index, count of its key), and account for it: not lost, counted once, again."""
    schedule = Schedule(1000, count)
    life = Life(schedule, begun=7)
    times = schedule.times()
    stamps = [7 + times.intended(index) for index, _ in pairs]
    life.written = [Written(10, stamps, [number for _, number in pairs])]
    return [row.value for row in failure.account_rows("", life)]


def test_every_record_is_accounted_for() -> None:
    assert len({key(index) for index in range(4)}) == 4
    right = [(index, 1) for index in range(4)]
    assert accounted(right, 4) == [1, 1, 0]
    assert accounted([*right, (2, 1), (3, 1)], 4) == [1, 1, 2]  # written again
    assert accounted(right[:3], 4) == [0, 0, 0]  # lost
    assert accounted([*right, (2, 2)], 4) == [1, 0, 1]  # counted twice


# ---- short forms

LATENCY = latency.Sizes(1, 0.1, 1000, 1, 0.2, 1, shares=(0.5,), modes=("adaptive",), rate=2000)


def test_latency(tmp_path: Path) -> None:
    rows = run(latency.SUITE, LATENCY, "latency", tmp_path)
    assert sum(row["name"].startswith("every record has come") for row in rows) == 1


def test_load(tmp_path: Path) -> None:
    sizes = load.Sizes(1, 0.2, shares=(1.2,), modes=("unaligned",))
    rows = run(load.SUITE, sizes, "load", tmp_path)
    assert any(row["name"] == "backlog grows by, unaligned, load 1.2" for row in rows)


def test_transient(tmp_path: Path) -> None:
    sizes = transient.Sizes(2, (0.4, 1.6), (transient.UNALIGNED,))
    rows = run(transient.SUITE, sizes, "transient", tmp_path)
    assert rows[0]["name"] == "barrier delay, slow, longest, timeout 0"


def test_failure(tmp_path: Path) -> None:
    sizes = failure.Sizes(1, 1, 0.3, 1.2, (0.1,), ("adaptive",), rate=2000)
    rows = run(failure.SUITE, sizes, "failure", tmp_path)
    assert sum(row["target"] is not None for row in rows) == 2
