"""`streamcp compare` as a whole, on a small job, and what is refused before anything runs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamcp.cli.compare_options import DEFAULT_JOB, as_typed, default_job

Cli = Callable[..., Any]
Write = Callable[..., Path]

# Slow enough to be killed in the middle; `wrong` writes what no second run writes.
JOB = """
import os

async def wait(n: int) -> int:
    await asyncio.sleep(0.02)
    return n

def mark(n: int) -> tuple[int, int]:
    return n, os.getpid()

@sc.job
def numbers(upto: int, wrong: bool = False, out: str = "target") -> sc.Job:
    print("loading")
    job = sc.Job("numbers", checkpoints=sc.Checkpoints(to="real", every="200ms"))
    stream = job.source(sc.items(range(upto)), name="in").map(wait, name="wait", concurrency=4)
    (stream.map(mark) if wrong else stream).sink(sc.files.json_lines(out), name="out")
    return job
"""


CAPACITY = ("--channel-capacity", "30")


@pytest.fixture
def job(write: Write) -> None:
    write(JOB)


def compare(cli: Cli, *arguments: str) -> Any:
    return cli("compare", "--modes", "unaligned", *arguments)


def test_small_job_is_compared_without_touching_its_targets(
    cli: Cli, job: None, folder: Path
) -> None:
    ran = compare(
        cli, "--json", "--out", "results", "my_job.py", "--upto", "250", "--seconds", "9", *CAPACITY
    )

    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document == json.loads((folder / "results/results.json").read_bytes())
    (mode,) = document["modes"].values()
    assert document["right"] is True
    assert document["settings"]["records_per_run"] == 250
    assert document["settings"]["channel_capacity"] == 30
    assert 20 <= mode["queued"]["maximum"] <= 60
    assert mode["completed"] > 0
    assert mode["verdict"] == mode["verdict"] | {"answer": "equal", "lines": 250}
    assert mode["recovery"]["checkpoint"] >= 1
    assert (folder / "results/compare.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in (folder / "results").iterdir()) == [
        "compare.png",
        "report.html",
        "results.json",
    ]
    assert document == data_in(folder / "results/report.html")
    assert not (folder / "target").exists()
    assert not (folder / "real").exists()


def data_in(report: Path) -> Any:
    page = report.read_text(encoding="utf-8")
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    return json.loads(data)


def test_latency_is_measured_under_a_part_of_what_the_job_sustains(
    cli: Cli, job: None, folder: Path
) -> None:
    ran = compare(
        cli, "--load", "0.5", "--html", "r.html", "my_job.py", "--upto", "240", "--seconds", "5"
    )

    assert ran.code == 0, ran.err
    document = data_in(folder / "r.html")
    assert document == json.loads((folder / "compare-results/results.json").read_bytes())
    assert document["settings"]["records_per_run"] == 120
    assert document["reference"]["checkpoints"][-1]["kind"] == "final"
    assert len(document["reference"]["checkpoints"]) == 1
    (rate,) = document["rates"].values()
    assert rate == pytest.approx(0.5 * document["settings"]["sustainable"])
    first, second = document["runs"]
    for run in (first, second):
        # The last record is due when all before it were given out at their rate.
        assert run["seconds"] > 119 / rate
        assert sum(run["latencies"]["due"].values()) == 120
        # Each waits for 20 ms in the job; stamps are whole milliseconds.
        assert min(map(int, run["latencies"]["due"])) >= 19_000
        assert sum(run["latencies"]["waited"].values()) == 120
    assert "latency" in ran.out
    assert document["modes"]["unaligned"]["latency"]["due"]["count"] == 240


def test_sweep_compares_at_every_value(cli: Cli, job: None, folder: Path) -> None:
    ran = cli(
        *("compare", "--modes", "aligned,unaligned", "--sweep", "capacity=8,32"),
        *("my_job.py", "--upto", "60", "--html", "sweep.html"),
    )

    assert ran.code == 0, ran.err
    document = data_in(folder / "sweep.html")
    assert document == json.loads((folder / "compare-results/results.json").read_bytes())
    assert [point["number"] for point in document["points"]] == [8, 32]
    for point in document["points"]:
        assert {run["mode"] for run in point["runs"]} == {"aligned", "unaligned"}
        assert {sum(run["read"].values()) for run in point["runs"]} == {60}
        assert max(s["queued"] for run in point["runs"] for s in run["samples"]) <= (
            2 * point["number"]
        )
    assert "every mode wrote the same output" in ran.out
    assert not (folder / "compare-results/compare.png").exists()


def test_output_that_differs_at_a_value_is_said_loudly(cli: Cli, job: None, folder: Path) -> None:
    ran = cli(
        *("compare", "--modes", "aligned,unaligned", "--sweep", "service=1ms,2ms"),
        *("my_job.py", "--upto", "20", "--wrong"),
    )

    assert ran.code == 1
    assert "1ms: the undisturbed runs differ from each other" in ran.out
    assert "2ms: the undisturbed runs differ from each other" in ran.out
    assert 'class="wrong"' in (folder / "compare-results/report.html").read_text()
    assert len(list((folder / "compare-results").glob("runs-*"))) == 1


def test_output_that_differs_is_said_loudly_and_its_files_are_kept(
    cli: Cli, job: None, folder: Path
) -> None:
    ran = compare(cli, "my_job.py", "--upto", "50", "--wrong")

    assert ran.code == 1
    assert "IS NOT EQUAL" in ran.out
    assert "UNEQUAL" in ran.out
    (kept,) = (folder / "compare-results").glob("runs-*")
    assert str(kept.relative_to(folder)) in ran.out
    assert len(list(kept.iterdir())) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no_such.py"], "no file"),
        (["my_job.py"], "upto"),
        (["my_job.py", "--upto", "1", "--downto", "2"], "downto"),
        (["--seconds", "1", "--records", "2", "my_job.py", "--upto", "1"], "give one of them"),
        (["--seconds", "0", "my_job.py", "--upto", "1"], "more than zero"),
        (["--records", "0", "my_job.py", "--upto", "1"], "more than zero"),
        (["--every", "0s", "my_job.py", "--upto", "1"], "more than zero"),
        (["--every", "5", "my_job.py", "--upto", "1"], "is not a duration"),
        (["--channel-capacity", "0", "my_job.py", "--upto", "1"], "channel_capacity=0"),
        (["--modes", "quick", "my_job.py", "--upto", "1"], "aligned,unaligned,adaptive"),
        (["--modes", "aligned,aligned", "my_job.py", "--upto", "1"], "each once"),
        (["--html", ".", "my_job.py", "--upto", "1"], "--html .: name a file"),
        (["--html", "no/r.html", "my_job.py", "--upto", "1"], "a directory that exists"),
        (["--load", "0", "my_job.py", "--upto", "1"], "--load 0: write the part"),
        (["--load", "3", "my_job.py", "--upto", "1"], "at most 2"),
        (["--sweep", "speed=1,2", "my_job.py", "--upto", "1"], "'speed' cannot be swept"),
        (["--sweep", "load=1,3", "my_job.py", "--upto", "1"], "a load is at most 2"),
        (
            ["--sweep", "load=0.5,1", "my_job.py", "--upto", "1", "--sweep", "capacity=1,2"],
            "one sweep at a time",
        ),
        (
            ["--sweep", "capacity=1,2", "my_job.py", "--upto", "1", "--load", "0.5"],
            "leave one of them out",
        ),
        (
            ["--sweep", "capacity=1,2", "my_job.py", "--upto", "1", "--channel-capacity", "5"],
            "leave --channel-capacity out",
        ),
        (
            ["--modes", "aligned", "--sweep", "timeout=1ms,2ms", "my_job.py", "--upto", "1"],
            "only adaptive mode has an alignment timeout",
        ),
    ],
)
def test_wrong_use_is_told_before_anything_is_run(
    cli: Cli, job: None, folder: Path, arguments: list[str], said: str
) -> None:
    ran = cli("compare", *arguments)

    assert ran.code == 2
    assert said in ran.err
    assert not (folder / "compare-results").exists()


def test_missing_extra_is_told_before_anything_is_run(
    cli: Cli, job: None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("streamcp.compare.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in [name for name in sys.modules if name.startswith("matplotlib.")]:
        monkeypatch.delitem(sys.modules, name)

    ran = cli("compare", "my_job.py", "--upto", "1")

    assert ran.code != 0
    assert 'pip install "streamcp[compare]"' in ran.err
    assert not (folder / "compare-results").exists()


def test_channels_asked_for_replace_those_of_the_shipped_job() -> None:
    """Words behind a job count more than those before it; here nobody wrote any."""
    assert default_job({}) == list(DEFAULT_JOB)
    for before in ({"channel_capacity": 50}, {"sweep": ["capacity=1,2"]}):
        words = default_job(before)
        assert "--channel-capacity" not in words
        assert words == list(DEFAULT_JOB)[: len(words)]
    assert default_job({"sweep": ["load=0.5,1"]}) == list(DEFAULT_JOB)


def test_command_is_told_as_it_was_typed() -> None:
    before = {"seconds": 2.0, "json": True, "sweep": ["load=1,2"], "load": None, "out": []}

    assert as_typed(before, ["a job.py"]) == "--seconds 2.0 --json --sweep load=1,2 'a job.py'"


def test_help_behind_job_shows_the_options_of_both(cli: Cli, job: None) -> None:
    ran = cli("compare", "my_job.py", "--help")

    assert ran.code == 0
    assert "--upto" in ran.out
    assert "--sink-delay" in ran.out
