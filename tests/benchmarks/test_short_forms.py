"""Every benchmark runs, in a form so short that its times say nothing; what is right or wrong
whatever the time (which calls are made again, what is restored, what is written) is judged."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from benchmarks import (
    incremental,
    joins,
    journal,
    outstanding,
    timers,
    windows,
)
from benchmarks.endurance import suite as endurance
from benchmarks.endurance.sizes import Sizes as Endurance
from benchmarks.harness import Suite
from benchmarks.harness.command import main
from benchmarks.micro import suite as micro
from benchmarks.micro.sizes import Sizes as MicroSizes
from benchmarks.nexmark import measuring as nexmark

MICRO = MicroSizes(records=2000, calls=200, rounds=1)
OUTSTANDING = outstanding.Sizes(calls=20, seconds=0.2, records=100, checkpoints=2)
ENDURANCE = Endurance(
    kills=1,
    flight_kills=1,
    records=6000,
    flights=0,
    latency=0.02,
    stuck_seconds=1.0,
    stop_within=20.0,
    commit_time=0.1,
    failing_records=300,
    modes=("unaligned",),
)


def run(suite: Suite[Any], sizes: Any, name: str, folder: Path) -> list[dict[str, Any]]:
    """Run one benchmark through its command line, and return its rows."""
    file = folder / "figures.json"
    arguments = ["run", f"{suite.name}.{name}", "--here", "--json", str(file)]
    main([dataclasses.replace(suite, full=sizes)], arguments)
    (result,) = json.loads(file.read_text(encoding="utf-8"))["benchmarks"]
    assert result["rows"]
    return list(result["rows"])


def wrong(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """What was right or wrong, and is wrong."""
    return [
        (row["name"], row["detail"])
        for row in rows
        if row["verdict"] == "missed" and row["interval"] is None and row["unit"] == ""
    ]


@pytest.mark.parametrize("name", micro.SUITE.benchmarks)
def test_micro_measures(name: str, tmp_path: Path) -> None:
    rows = run(micro.SUITE, MICRO, name, tmp_path)

    assert wrong(rows) == []
    assert all(math.isfinite(row["value"]) for row in rows)


@pytest.mark.parametrize("name", windows.SUITE.benchmarks)
def test_windows_measures(name: str, tmp_path: Path) -> None:
    rows = run(windows.SUITE, windows.Sizes(records=2000, rounds=1), name, tmp_path)

    assert all(math.isfinite(row["value"]) for row in rows)


@pytest.mark.parametrize("name", timers.SUITE.benchmarks)
def test_timers_measures(name: str, tmp_path: Path) -> None:
    rows = run(timers.SUITE, windows.Sizes(records=2000, rounds=1), name, tmp_path)

    assert all(math.isfinite(row["value"]) for row in rows)


@pytest.mark.parametrize("name", joins.SUITE.benchmarks)
def test_joins_measures(name: str, tmp_path: Path) -> None:
    rows = run(joins.SUITE, windows.Sizes(records=2000, rounds=1), name, tmp_path)

    assert all(math.isfinite(row["value"]) for row in rows)


@pytest.mark.parametrize(
    ("bare", "join"),
    [(joins.bare_interval, joins.interval_join), (joins.bare_asof, joins.asof_join)],
)
async def test_loops_find_as_many_rows_as_the_joins(bare: Any, join: Any) -> None:
    """Else they would not be measured at the same thing."""
    met: list[tuple[int, int]] = []

    def counted(left: joins.Keyed, right: joins.Keyed) -> sc.Stream[tuple[int, int]]:
        rows: sc.Stream[tuple[int, int]] = join(left, right)
        return rows.inspect(met.append)

    await joins.described(8000, counted).run_async()
    assert await bare(8000) == len(met) > 4000 - 50


@pytest.mark.parametrize(
    ("name", "checkpoints"),
    [*((name, None) for name in nexmark.SUITE.benchmarks), ("q5", "1s"), ("q12-running", "1s")],
)
def test_nexmark_measures_and_answers_what_sql_answers(
    name: str, checkpoints: str | None, tmp_path: Path
) -> None:
    sizes = nexmark.Sizes(events=2000, rounds=1, parallelism=2, checkpoints=checkpoints)
    rows = run(nexmark.SUITE, sizes, name, tmp_path)

    assert wrong(rows) == []
    assert all(math.isfinite(row["value"]) for row in rows)


@pytest.mark.parametrize("name", journal.SUITE.benchmarks)
def test_journal_runs(name: str, tmp_path: Path) -> None:
    rows = run(journal.SUITE, journal.Sizes(calls=200, rounds=1, answers=100), name, tmp_path)
    assert all(row["value"] > 0 for row in rows)


@pytest.mark.parametrize("name", incremental.SUITE.benchmarks)
def test_incremental_writes_less(name: str, tmp_path: Path) -> None:
    rows = run(incremental.SUITE, incremental.Sizes(keys=1000, checkpoints=3), name, tmp_path)

    bytes_, *_ = (row for row in rows if row["name"].startswith("bytes of"))
    assert bytes_["verdict"] == "met"


def test_outstanding_calls_are_made_again_once_each(tmp_path: Path) -> None:
    assert wrong(run(outstanding.SUITE, OUTSTANDING, "calls", tmp_path)) == []


@pytest.mark.skipif(os.name != "posix", reason="kill -9 and permissions are of POSIX systems")
@pytest.mark.parametrize("name", endurance.SUITE.benchmarks)
def test_endurance_holds(name: str, tmp_path: Path) -> None:
    rows = run(endurance.SUITE, ENDURANCE, name, tmp_path)

    # On a machine that is slow only now and then, a short job may end before it is killed.
    assert [one for one in wrong(rows) if "killed as often" not in one[0]] == []
