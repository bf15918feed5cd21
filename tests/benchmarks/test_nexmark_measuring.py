"""The command line of Nexmark: which queries, how many events, and what a wrong answer does."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.command import main
from benchmarks.nexmark import measuring
from benchmarks.nexmark.queries import QUERIES


def run(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    file = folder / "figures.json"
    suite = dataclasses.replace(measuring.SUITE, quick=measuring.Sizes(100, rounds=1))
    code = main([suite], ["run", "--here", "--quick", "--json", str(file), *words])
    return code, json.loads(file.read_text(encoding="utf-8"))


def test_queries_and_sizes_can_be_chosen(tmp_path: Path) -> None:
    names = ["nexmark.q1", "nexmark.q0"]
    options = ["--events", "300", "--parallelism", "2", "--checkpoints", "1s"]
    code, content = run(tmp_path, *names, *options)

    assert code == 0
    assert [one["name"] for one in content["benchmarks"]] == ["nexmark.q0", "nexmark.q1"]
    figures = [row for one in content["benchmarks"] for row in one["rows"]]
    assert {row["detail"] for row in figures if row["name"].endswith(": job")} == {"1 checkpoints"}
    assert any("300 records" in row["detail"] for row in figures)


def test_unknown_query_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([measuring.SUITE], ["run", "nexmark.q4"])
    assert "nexmark.q4: no such benchmark" in capsys.readouterr().err


def test_wrong_answer_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = dataclasses.replace(QUERIES["q0"], sql=QUERIES["q0"].sql + " WHERE price > 1000")
    benchmarks = {"q0": lambda one: measuring.measure(wrong, one)}
    suite = dataclasses.replace(measuring.SUITE, benchmarks=benchmarks)
    monkeypatch.setattr(measuring, "SUITE", suite)
    code, content = run(tmp_path, "nexmark.q0")

    assert code == 1
    (rows,) = (one["rows"] for one in content["benchmarks"])
    assert {row["name"] for row in rows if row["verdict"] == "missed"} == {
        "q0: results of the job as SQL says",
        "q0: results of the loop as SQL says",
    }
    assert "rows too many, such as [(" in capsys.readouterr().out
