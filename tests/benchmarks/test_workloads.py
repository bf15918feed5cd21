"""The closed-loop workloads run, so short that their times say nothing; what must hold whatever the
time is judged: every checkpoint completes, and only unaligned barriers leave records behind."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest

from benchmarks.harness import Row, Run, Suite
from benchmarks.harness.cells import Cell
from benchmarks.workloads import (
    capacity,
    depth,
    long_records,
    overhead,
    position,
    saturation,
    service_time,
    skew,
    state_size,
    taking,
    timeout,
    unequal_inputs,
)
from benchmarks.workloads.judging import sanity_rows
from benchmarks.workloads.taking import ALIGNED, UNALIGNED, Visit, in_turns
from benchmarks.workloads.topology import Chain, filling


@pytest.fixture(autouse=True)
def _cells_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process per cell would take longer than the cell; that they work is a test of the harness.
    What goes to a process and comes back is made JSON all the same."""

    async def here(cell: Cell, spec: Any, **options: Any) -> Any:
        return json.loads(json.dumps(await cell(json.loads(json.dumps(spec)))))

    monkeypatch.setattr(saturation, "WINDOW", 0.02)
    monkeypatch.setattr(saturation, "LONGEST_PAUSE", 0.0)
    monkeypatch.setattr(taking, "in_fresh_process", here)
    monkeypatch.setattr(overhead, "in_fresh_process", here)


async def rows_of(suite: Suite[Any], sizes: Any, name: str) -> tuple[list[Row], dict[str, Any]]:
    run = Run(sizes)
    rows = list(await suite.benchmarks[name](run))
    assert [row.name for row in rows if not math.isfinite(row.value)] == []
    assert [row for row in rows if row.interval is None and row.verdict == "missed"] == []
    json.dumps(run.raw)
    return rows, run.raw


async def test_service_time_compares_all_modes() -> None:
    sizes = service_time.Sizes(
        services=(0.0005,),
        capacity=20,
        processes=1,
        unaligned=2,
        adaptive=1,
        aligned={0.0005: 2},
        aligned_bytes={0.0005: 0},
        small={0.0005: 1},
    )
    _, raw = await rows_of(service_time.SUITE, sizes, "kibibyte")

    entries = raw["checkpoints"]
    assert {entry["mode"] for entry in entries} == {
        taking.UNALIGNED,
        taking.ALIGNED,
        taking.ADAPTIVE,
        taking.PREDICTING,
        taking.SMALL,
    }
    assert all(entry["channel_records"] > 0 for entry in entries if entry["mode"] == UNALIGNED)
    told = [entry["mode"] for entry in entries if entry["tasks"]]
    assert sorted(told) == sorted({entry["mode"] for entry in entries})


async def test_capacity_tells_the_slope() -> None:
    sizes = capacity.Sizes(capacities=(5, 40), processes=1, unaligned=2, adaptive=1, aligned={5: 1})
    rows, _ = await rows_of(capacity.SUITE, sizes, "capacity")

    assert [row.name for row in rows if row.name.startswith("slope")] != []
    assert [row.value for row in rows if "by the law, capacity 40" in row.name] == [
        pytest.approx(2 * 4 * 40 * 0.001)
    ]


async def test_overhead_measures_windows_of_each_mode() -> None:
    sizes = overhead.Sizes(processes=1, warm_up=0.05, pairs=1, beats=1)
    run = Run(sizes)
    rows = await overhead.overhead(run)

    assert all(math.isfinite(row.value) for row in rows)
    modes = [window["mode"] for window in run.raw["windows"]]
    assert modes == ["adaptive", "aligned", "unaligned"]


FEW = {"processes": 1, "unaligned": 1, "adaptive": 1, "aligned": 1}


@pytest.mark.parametrize(
    ("suite", "sizes"),
    [
        (depth.SUITE, depth.Sizes(depths=(1, 2), processes=1, unaligned=1, aligned=1)),
        (position.SUITE, position.Sizes(positions=(1,), **FEW)),
        (skew.SUITE, skew.Sizes(hot=(0.3,), zipf=(), **FEW)),
        (unequal_inputs.SUITE, unequal_inputs.Sizes(ratios=(10,), **FEW)),
        (state_size.SUITE, state_size.Sizes(keys=(100,), **FEW)),
        (long_records.SUITE, long_records.Sizes(("await", "fan-out"), **{**FEW, "aligned": 0})),
        (timeout.SUITE, timeout.Sizes(capacities=(20,), timeouts=(0.01,), **FEW)),
    ],
    ids=lambda value: value.name if isinstance(value, Suite) else "",
)
async def test_checkpoints_are_taken_and_kept(suite: Suite[Any], sizes: Any) -> None:
    _, raw = await rows_of(suite, sizes, suite.name)

    assert all(entry["barrier_delay"] > 0 for entry in raw["checkpoints"])
    assert {entry["process"] for entry in raw["checkpoints"]} == {0}


def test_one_record_in_a_thousand_is_long() -> None:
    service = long_records.NowAndThen(0.001)
    taken = []
    for service.served in range(2000):
        taken.append(service.seconds_for(None))
    assert (taken.count(0.5), taken.count(0.001)) == (2, 1998)


def test_hot_bidder_moves_on_and_has_its_share() -> None:
    draw = skew.moving(0.3)
    early = draw(random.Random(1), range(4600))
    later = draw(random.Random(1), range(4600, 9200))

    assert 0.28 < early.count(1) / 4600 < 0.32
    assert 0.28 < later.count(101) / 4600 < 0.32


def test_first_of_zipf_is_as_frequent_as_its_weight() -> None:
    drawn = skew.by_zipf(1.0)(random.Random(1), range(10_000))
    expected = 1 / sum(1 / rank for rank in range(1, skew.BIDDERS + 1))

    assert drawn.count(0) / 10_000 == pytest.approx(expected, rel=0.1)


def subtask(name: str, start_delay: float, alignment: float) -> dict[str, Any]:
    barrier_delay = start_delay + alignment
    return {
        "subtask": name,
        "start_delay": start_delay,
        "alignment": alignment,
        "barrier_delay": barrier_delay,
    }


def test_timer_from_the_first_barrier_fires_only_in_a_long_alignment() -> None:
    """Stuck in output queues, barriers come late and together: then it never fires."""
    stuck = [subtask("map[0]", 1.0, 0.01), subtask("sink[0]", 2.0, 0.02)]
    uneven = [subtask("map[0]", 0.1, 1.0), subtask("map[1]", 0.3, 0.0), subtask("sink[0]", 2.0, 0)]

    assert timeout.from_first_barrier(stuck, 0.1) == 2.02
    assert timeout.from_first_barrier(uneven, 0.1) == pytest.approx(0.3)


def test_modes_take_turns_and_none_is_lost() -> None:
    visits = [Visit(UNALIGNED, 5), Visit(ALIGNED, 1)]

    assert in_turns(visits) == [Visit(UNALIGNED, 3), Visit(ALIGNED, 1), Visit(UNALIGNED, 2)]


def test_law_of_a_chain_counts_the_exchanges_before_the_slow_stage() -> None:
    assert Chain(0.01, 100).aligned_delay(100.0) == 8.0
    assert Chain(0.01, 100, stages=4, slow=1).aligned_delay(100.0) == 4.0


@pytest.mark.parametrize("size", [1, 100])
def test_payloads_have_their_size_and_differ(size: int) -> None:
    assert {len(filling(number, size)) for number in (0, 1, 300)} == {size}
    assert filling(1, size) != filling(2, size)


def entry(**values: Any) -> taking.Entry:
    return {
        "outcome": "completed",
        "started": "aligned",
        "escalated_after": None,
        "channel_records": 0,
    } | values


def test_failed_checkpoint_and_captured_records_of_aligned_ones_are_told() -> None:
    entries = [
        entry(),
        entry(outcome="failed"),
        entry(channel_records=3),
        entry(channel_records=5, escalated_after=0.1),
        entry(channel_records=7, started="unaligned"),
    ]

    assert [row.value for row in sanity_rows(entries)] == [1, 3]
    assert {row.verdict for row in sanity_rows(entries)} == {"missed"}
