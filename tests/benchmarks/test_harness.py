"""Judging figures: exact intervals, verdicts, and what the options do."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.harness import (
    Row,
    Run,
    Suite,
    Target,
    at_least,
    at_most,
    check,
    main,
    median_interval,
    median_row,
    paired,
    skipped,
)


@pytest.mark.parametrize(("n", "low", "high"), [(6, 0, 5), (8, 0, 7), (9, 1, 7), (15, 3, 11)])
def test_interval_of_the_median_is_that_of_order_statistics(n: int, low: int, high: int) -> None:
    # The ranks of the sign test's 95 % interval, from tables of the binomial distribution.
    assert median_interval([*range(n)][::-1]) == (low, high)


@pytest.mark.parametrize("n", range(1, 6))
def test_fewer_than_six_samples_have_no_interval(n: int) -> None:
    assert median_interval([1.0] * n) == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("interval", "target", "verdict"),
    [
        ((0.8, 0.9), at_least(0.75), "met"),
        ((0.75, 0.9), at_least(0.75), "met"),
        ((0.6, 0.9), at_least(0.75), "undecided"),
        ((0.6, 0.7), at_least(0.75), "missed"),
        ((1.0, 1.5), at_most(2.0), "met"),
        ((2.1, 2.5), at_most(2.0), "missed"),
        ((0.7, 1.0), Target(0.8, 1.2), "undecided"),
        ((0.5, 0.7), Target(0.8, 1.2), "missed"),
        ((0.5, 1.5), None, ""),
    ],
)
def test_figure_is_judged_by_its_interval(
    interval: tuple[float, float], target: Target | None, verdict: str
) -> None:
    assert Row("figure", 0.85, interval=interval, target=target).verdict == verdict


def test_figure_without_interval_is_judged_by_its_value() -> None:
    assert Row("maximum", 24.0, target=at_most(25.0)).verdict == "met"
    assert Row("maximum", 26.0, target=at_most(25.0)).verdict == "missed"
    assert check("something", False).verdict == "missed"
    assert skipped("something", "not here").verdict == "skipped"


async def test_paired_windows_take_turns_and_change_their_order() -> None:
    order: list[str] = []

    async def floor() -> float:
        order.append("floor")
        return 1.0

    async def subject() -> float:
        order.append("subject")
        return 2.0

    assert await paired(floor, subject, 2) == [(1.0, 2.0), (1.0, 2.0)]
    assert order[2:] == ["floor", "subject", "subject", "floor"]


def make_suite(*rows: Row) -> Suite[int]:
    async def benchmark(run: Run[int]) -> Sequence[Row]:
        return rows

    async def broken(run: Run[int]) -> Sequence[Row]:
        raise ValueError("no measuring today")

    return Suite("suite", {"one": benchmark, "broken": broken}, full=2, quick=1, needs_loop=False)


MISSED = median_row("too slow", [1.0] * 6, target=at_least(2.0))
UNDECIDED = median_row("noisy", [1.0] * 3, target=at_least(2.0))


def test_only_check_makes_a_missed_target_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([make_suite(MISSED)], ["--only", "one"]) == 0
    assert main([make_suite(MISSED)], ["--only", "one", "--check"]) == 1
    assert "too slow" in capsys.readouterr().out.rpartition("missed\n")[2]


def test_suite_whose_checks_always_count_is_an_error_when_one_is_wrong() -> None:
    rows = {"slow": MISSED, "right": check("right", True), "wrong": check("wrong", False)}
    suites = {
        name: dataclasses.replace(make_suite(row), checks_always=True) for name, row in rows.items()
    }
    assert {name: main([suite], ["--only", "one"]) for name, suite in suites.items()} == {
        "slow": 0,
        "right": 0,
        "wrong": 1,
    }
    assert main([suites["slow"]], ["--only", "broken"]) == 1


def test_undecided_target_is_no_error() -> None:
    assert main([make_suite(UNDECIDED)], ["--only", "one", "--check"]) == 0


def test_broken_benchmark_is_a_missed_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([make_suite()], ["--only", "broken", "--check"]) == 1
    assert "no measuring today" in capsys.readouterr().out


def test_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([make_suite()], ["--only", "two"])
    assert "no such benchmark" in capsys.readouterr().err


def test_json_holds_every_sample_and_the_seed(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    main([make_suite(MISSED)], ["--only", "one", "--seed", "7", "--json", str(file)])

    content = json.loads(file.read_text(encoding="utf-8"))
    assert content["options"]["seed"] == "7"
    (row,) = content["suites"][0]["rows"]
    assert (row["samples"], row["target"], row["verdict"]) == ([1.0] * 6, [2.0, None], "missed")
