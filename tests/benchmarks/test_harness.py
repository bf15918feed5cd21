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
    in_fresh_process,
    median_interval,
    median_row,
    paired,
    ratio_of_medians,
    skipped,
)
from benchmarks.harness.command import main
from benchmarks.harness.open_loop import UPPER_BOUND
from benchmarks.harness.results import read_results
from benchmarks.suites import SUITES


def run_one(suite: Suite[int], *options: str, name: str = "one") -> int:
    return main([suite], ["run", f"suite.{name}", "--here", *options])


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
        """How fast is it?"""
        run.keep("dots", [1, 2])
        return rows

    async def broken(run: Run[int]) -> Sequence[Row]:
        raise ValueError("no measuring today")

    return Suite("suite", {"one": benchmark, "broken": broken}, full=2, quick=1, needs_loop=False)


MISSED = median_row("too slow", [1.0] * 6, target=at_least(2.0))
UNDECIDED = median_row("noisy", [1.0] * 3, target=at_least(2.0))


def test_only_check_makes_a_missed_target_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_one(make_suite(MISSED)) == 0
    assert run_one(make_suite(MISSED), "--check") == 1
    assert "too slow" in capsys.readouterr().out.rpartition("missed\n")[2]


def test_suite_whose_checks_always_count_is_an_error_when_one_is_wrong() -> None:
    rows = {"slow": MISSED, "right": check("right", True), "wrong": check("wrong", False)}
    suites = {
        name: dataclasses.replace(make_suite(row), checks_always=True) for name, row in rows.items()
    }
    assert {name: run_one(suite) for name, suite in suites.items()} == {
        "slow": 0,
        "right": 0,
        "wrong": 1,
    }
    assert run_one(suites["slow"], name="broken") == 1


def test_undecided_target_is_no_error() -> None:
    assert run_one(make_suite(UNDECIDED), "--check") == 0


def test_broken_benchmark_is_a_missed_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_one(make_suite(), "--check", name="broken") == 1
    assert "no measuring today" in capsys.readouterr().out


def test_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_one(make_suite(), name="two")
    assert "no such benchmark" in capsys.readouterr().err


def test_json_holds_every_sample_the_raw_data_and_the_seed(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    run_one(make_suite(MISSED), "--seed", "7", "--json", str(file))

    result = read_results(file)["suite.one"]
    assert result.rows == [MISSED]
    assert (result.raw, result.configuration) == ({"dots": [1, 2]}, {"sizes": 2})
    assert (result.options["seed"], result.question) == ("7", "How fast is it?")
    assert result.machine["cores"] >= 1


@pytest.mark.parametrize(
    "row", [MISSED, UNDECIDED, check("right", True), Row("plain", 2.0, "s", detail="why")]
)
def test_row_survives_its_file(row: Row) -> None:
    assert Row.from_dict(json.loads(json.dumps(row.as_dict()))) == row


def test_skipped_row_survives_its_file() -> None:
    row = Row.from_dict(json.loads(json.dumps(skipped("it", "not here").as_dict())))
    assert (row.verdict, row.detail) == ("skipped", "not here")


def test_second_run_into_a_file_keeps_its_other_benchmarks(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    run_one(make_suite(MISSED), "--json", str(file))
    run_one(make_suite(), "--json", str(file), name="broken")
    run_one(make_suite(UNDECIDED), "--json", str(file))

    results = read_results(file)
    assert list(results) == ["suite.one", "suite.broken"]
    assert results["suite.one"].rows == [UNDECIDED]


def test_every_benchmark_asks_a_question(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(SUITES, ["list", "--json"]) == 0
    questions = json.loads(capsys.readouterr().out)
    assert [name for name, question in questions.items() if not question] == []


def test_benchmark_runs_in_a_fresh_process(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    assert main(SUITES, ["run", "nexmark.generator", "--quick", "--json", str(file)]) == 0
    assert read_results(file)["nexmark.generator"].rows


def test_two_runs_are_compared_figure_by_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    run_one(make_suite(median_row("delay", [2.0] * 6), check("right", True)), "--json", str(before))
    run_one(make_suite(median_row("delay", [1.0] * 6)), "--json", str(after))
    rows = tmp_path / "rows.json"

    assert main([], ["compare", str(before), str(after), "--json", str(rows)]) == 0
    (row,) = json.loads(rows.read_text(encoding="utf-8"))
    assert (row["name"], row["value"], row["interval"]) == ("suite.one: delay", 0.5, [0.5, 0.5])


def test_comparing_tells_that_a_figure_is_an_upper_bound(tmp_path: Path) -> None:
    files = [tmp_path / "before.json", tmp_path / "after.json"]
    bound = dataclasses.replace(median_row("latency", [9.0]), detail=f"{UPPER_BOUND}: late")
    for file, row in zip(files, [median_row("latency", [3.0]), bound], strict=True):
        run_one(make_suite(row), "--json", str(file))
    rows = tmp_path / "rows.json"

    main([], ["compare", *map(str, files), "--json", str(rows)])
    (row,) = json.loads(rows.read_text(encoding="utf-8"))
    assert row["detail"] == f"3 → 9; {UPPER_BOUND} of what is compared"


def test_comparing_judges_the_second_run_only_with_check(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    run_one(make_suite(MISSED), "--json", str(file))

    assert main([], ["compare", str(file), str(file)]) == 0
    assert main([], ["compare", str(file), str(file), "--check"]) == 1


@pytest.mark.parametrize("content", ["", "[]", '{"benchmarks": [{"name": "a"}]}'])
def test_file_that_holds_no_results_is_refused(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(SystemExit):
        main([], ["compare", str(file), str(file)])
    assert "run --json" in capsys.readouterr().err


def test_ratio_of_medians_has_an_interval_that_holds_it() -> None:
    row = ratio_of_medians("ratio", [4.0, 5.0, 6.0] * 4, [2.0, 2.5, 3.0] * 4, seed=1)
    assert row.interval is not None
    assert row.interval[0] < row.value == 2.0 < row.interval[1]


async def double(spec: int) -> dict[str, int]:
    if spec < 0:
        raise ValueError("too small")
    return {"doubled": 2 * spec}


async def test_cell_runs_in_a_process_of_its_own() -> None:
    assert await in_fresh_process(double, 21) == {"doubled": 42}
    with pytest.raises(RuntimeError, match="too small"):
        await in_fresh_process(double, -1)
