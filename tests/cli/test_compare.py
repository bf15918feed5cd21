"""`streamcp compare` as a whole, on a small job, and what is refused before anything runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
        "results.json",
    ]
    assert not (folder / "target").exists()
    assert not (folder / "real").exists()


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
    monkeypatch.delitem(sys.modules, "streamcp.compare.picture", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in [name for name in sys.modules if name.startswith("matplotlib.")]:
        monkeypatch.delitem(sys.modules, name)

    ran = cli("compare", "my_job.py", "--upto", "1")

    assert ran.code != 0
    assert 'pip install "streamcp[compare]"' in ran.err
    assert not (folder / "compare-results").exists()


def test_help_behind_job_shows_the_options_of_both(cli: Cli, job: None) -> None:
    ran = cli("compare", "my_job.py", "--help")

    assert ran.code == 0
    assert "--upto" in ran.out
    assert "--sink-delay" in ran.out
