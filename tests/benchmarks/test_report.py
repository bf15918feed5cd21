"""The page of results: nothing of the template is left over, and every figure can be drawn."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.harness.command import main
from benchmarks.harness.results import Result, read_results, write_results
from benchmarks.harness.rows import Row, at_least, check, median_row
from benchmarks.report.figures import FIGURES
from benchmarks.report.page import machine_lines, published, write_page
from benchmarks.suites import SUITES

MACHINE = {
    "cores": 2,
    "processor": "a processor",
    "system": "a system",
    "file system": "ext4",
    "implementation": "CPython",
    "python": "3.11",
    "optimised": False,
    "commit": "abc",
    "changed": False,
}
TEMPLATE = (Path(__file__).parents[2] / "benchmarks/report/template.md").read_text("utf-8")


def make_result(name: str, *rows: Row, raw: Mapping[str, Any] | None = None) -> Result:
    return Result(name, "How fast is it?", rows, raw or {}, machine=MACHINE)


def checkpoint(mode: str, setting: str, delay: float) -> dict[str, Any]:
    task = {
        "subtask": "slow[0]",
        "start_delay": delay / 2,
        "alignment": delay / 4,
        "sync": delay / 8,
        "barrier_delay": delay,
        "end_to_end": 2 * delay,
    }
    return {
        "mode": mode,
        "setting": setting,
        "timeout": 0.1,
        "law": 2.0,
        "predicted": 0.003,
        "barrier_delay": delay,
        "durable_delay": 3 * delay,
        "in_flight_bytes": 1000,
        "outcome": "completed",
        "tasks": [task],
    }


def closed_loop(setting: str) -> dict[str, Any]:
    kinds = {"aligned": 1.5, "unaligned": 0.002, "adaptive, no prediction": 0.1}
    return {"checkpoints": [checkpoint(kind, setting, delay) for kind, delay in kinds.items()]}


def open_loop() -> dict[str, Any]:
    taken = {
        "at": 1.0,
        "barrier_ms": 2.0,
        "durable_ms": 20.0,
        "outcome": "completed",
        "in_flight_bytes": 10,
    }
    one = {
        "share": 0.8,
        "timeout": "100ms",
        "interval": 1.0,
        "window": [1.0, 2.0],
        "killed": 1.0,
        "caught_up": None,
        "seconds": [[[1000, 900], [5000, 200]]],
        "naive": [[900, 1100]],
        "slices": [[0.1, 1.0, 2.0, 3.0, 10], [0.2, 1.0, 4.0, 5.0, 10]],
        "checkpoints": [taken],
    }
    return {"runs": [one | {"mode": mode} for mode in ("aligned", "unaligned", "adaptive")]}


SETTINGS = {
    "capacity.capacity": "capacity 100",
    "timeout.timeout": "capacity 100",
    "service_time.kibibyte": "0.2 ms per record",
    "depth.depth": "1 exchange",
    "position.position": "stage 2 of 4 slow",
    "skew.skew": "hot ratio 0.1",
}
ROWS = (
    median_row("map–filter–map / bare loop", [0.8] * 6, "×", target=at_least(0.85)),
    median_row("exchange and keyed count / bare loop", [0.6] * 6, "×"),
    median_row("streamcp / csp", [2.0, 3.0] * 4, "×", target=at_least(2.0)),
    median_row("throughput lost to a checkpoint every 1s, aligned", [1.0] * 6, "%"),
)


TRAPPED = {"setting": "capacity 100", "timeout": 0.1, "barrier_delay": 0.7}


def result_for(benchmark: str) -> Result:
    if benchmark in SETTINGS:
        trapped = {"timer from the first barrier": [TRAPPED]}
        return make_result(benchmark, raw=closed_loop(SETTINGS[benchmark]) | trapped)
    if benchmark.split(".")[0] in ("latency", "load", "transient", "failure"):
        return make_result(benchmark, raw=open_loop())
    return make_result(benchmark, *ROWS)


@pytest.mark.parametrize("name", FIGURES)
def test_figure_is_drawn_from_what_it_needs(name: str) -> None:
    figure = FIGURES[name]
    drawn = figure.draw({needed: result_for(needed) for needed in figure.needs})

    svg = ElementTree.fromstring(drawn)
    assert figure.title
    assert len(list(svg.iter())) > 20


def test_template_names_figures_and_suites_that_exist() -> None:
    figures = re.findall(r"<!-- figure (.+?) -->", TEMPLATE)
    tables = re.findall(r"<!-- table (.+?) -->", TEMPLATE)
    known = {suite.name for suite in SUITES}
    known |= {f"{suite.name}.{name}" for suite in SUITES for name in suite.benchmarks}

    assert sorted(figures) == sorted(FIGURES)
    assert [name for name in tables if name not in known] == []


def test_every_benchmark_that_a_figure_needs_exists() -> None:
    known = {f"{suite.name}.{name}" for suite in SUITES for name in suite.benchmarks}
    assert [name for figure in FIGURES.values() for name in figure.needs if name not in known] == []


def write(folder: Path, *results: Result) -> str:
    page = folder / "results.md"
    write_page({result.name: result for result in results}, page)
    return page.read_text(encoding="utf-8")


def test_page_leaves_no_directive_and_tells_what_was_not_measured(tmp_path: Path) -> None:
    text = write(tmp_path, make_result("micro.stateless", *ROWS))

    assert "<!--" not in text
    assert "2 cores of a processor" in text
    assert "`capacity` was not measured in this run" in text
    assert "| map–filter–map / bare loop | 0.8 × | 0.8 … 0.8 | ≥ 0.85 | missed |" in text


def test_summary_counts_and_names_what_is_missed(tmp_path: Path) -> None:
    text = write(tmp_path, make_result("micro.stateless", *ROWS, check("right", True)))
    summary = text.partition("## In short")[2].partition("## Checkpoints")[0]

    assert "Of 3 figures with a target 2 meet it, 1 miss it, and 0 are undecided" in summary
    assert "map–filter–map / bare loop" in summary
    assert "streamcp / csp" not in summary


def test_page_can_be_made_again_of_the_file_that_it_keeps(tmp_path: Path) -> None:
    text = write(tmp_path, result_for("capacity.capacity"), make_result("micro.stateless", *ROWS))
    kept = read_results(tmp_path / "results/results.json.gz")

    (tmp_path / "again").mkdir()
    assert write(tmp_path / "again", *kept.values()) == text


def test_page_of_the_documentation_is_made_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the page says is what was measured, and what the template says now."""
    # It is large, and would be written as it is.
    monkeypatch.setattr("benchmarks.report.page.write_results", lambda file, results: None)
    page = Path(__file__).parents[2] / "docs/explanation/results.md"
    kept = read_results(page.with_suffix("") / "results.json.gz")

    assert write(tmp_path, *kept.values()) == page.read_text(encoding="utf-8")


def test_page_and_its_file_tell_nothing_of_the_folders_of_whoever_measured(tmp_path: Path) -> None:
    folder = f"{tempfile.gettempdir()}/somewhere"
    detail = f"/home/one/main/streamcp/storage/lock.py:50: {folder}/job/data could not be written"
    measured = make_result("micro.stateless", replace(ROWS[0], detail=detail))
    measured = replace(measured, options={"json": "/home/one/now.json", "seed": "7"})

    one = published(replace(measured, configuration={"home": "/home/one/peers", "rounds": 2}))

    assert one.rows[0].detail == "streamcp/storage/lock.py:50: …/job/data could not be written"
    assert (one.options, one.configuration) == ({"seed": "7"}, {"rounds": 2})


def test_page_tells_what_was_measured_in_its_short_form(tmp_path: Path) -> None:
    full = make_result("micro.stateless", *ROWS)
    short = replace(make_result("windows.tumbling", *ROWS), options={"quick": "True"})

    assert write(tmp_path, full, short).count("short form") == 1


def test_page_shows_the_figures_that_it_can_draw(tmp_path: Path) -> None:
    text = write(tmp_path, result_for("capacity.capacity"))

    assert "(results/capacity.svg)" in text
    assert (tmp_path / "results/capacity.svg").exists()


def test_report_is_written_by_the_command(tmp_path: Path) -> None:
    results, page = tmp_path / "results.json", tmp_path / "page.md"
    write_results(results, [make_result("micro.stateless", *ROWS)])

    assert main([], ["report", str(results), "--to", str(page)]) == 0
    assert "map–filter–map" in page.read_text(encoding="utf-8")


def test_commits_of_a_machine_say_what_was_measured_of_them() -> None:
    names = {"a.one": "1", "a.two": "2", "b.one": "2", "b.two": "2"}
    results = {
        name: Result(name, "?", [], {}, machine=MACHINE | {"commit": commit})
        for name, commit in names.items()
    }

    _, first, second = machine_lines(results)

    assert (first, second) == ("  - commit `1`: a.one", "  - commit `2`: a.two, b")
