"""The command line of Nexmark: which queries, how many events, and what a wrong answer does."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import main
from benchmarks.nexmark import measuring
from benchmarks.nexmark.queries import QUERIES


def run(folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    file = folder / "figures.json"
    suite = dataclasses.replace(measuring.SUITE, quick=measuring.Sizes(100, rounds=1))
    code = main([suite], ["--quick", "--json", str(file), *options])
    return code, json.loads(file.read_text(encoding="utf-8"))


def test_queries_and_sizes_can_be_chosen(tmp_path: Path) -> None:
    options = ["--queries", "q1,q0", "--events", "300", "--parallelism", "2", "--checkpoints", "1s"]
    code, content = run(tmp_path, *options)

    assert code == 0
    assert [suite["benchmark"] for suite in content["suites"]] == ["q0", "q1"]
    figures = [row for suite in content["suites"] for row in suite["rows"]]
    assert {row["detail"] for row in figures if row["name"].endswith(": job")} == {"1 checkpoints"}
    assert any("300 records" in row["detail"] for row in figures)


def test_unknown_query_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([measuring.SUITE], ["--queries", "q4"])
    assert "--only q4: there is no such benchmark" in capsys.readouterr().err


def test_wrong_answer_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = dataclasses.replace(QUERIES["q0"], sql=QUERIES["q0"].sql + " WHERE price > 1000")
    benchmarks = {"q0": lambda one: measuring.measure(wrong, one)}
    suite = dataclasses.replace(measuring.SUITE, benchmarks=benchmarks)
    monkeypatch.setattr(measuring, "SUITE", suite)
    code, content = run(tmp_path, "--queries", "q0")

    assert code == 1
    (rows,) = (suite["rows"] for suite in content["suites"])
    assert {row["name"] for row in rows if row["verdict"] == "missed"} == {
        "q0: results of the job as SQL says",
        "q0: results of the loop as SQL says",
    }
    assert "rows too many, such as [(" in capsys.readouterr().out
