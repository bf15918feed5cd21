from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]
Write = Callable[..., Path]

JOB = """
from contextlib import asynccontextmanager
@asynccontextmanager
async def network():
    raise RuntimeError("there is no network here")
    yield
@asynccontextmanager
async def no_network():
    yield 2
async def ask(x: int, factor: int) -> int:
    await asyncio.sleep(0.01)
    return x * factor
seen = []
def once(x: int) -> bool:
    seen.append(x)
    return seen.count(x) == 1
@sc.job
def shop(forgets: bool = False) -> sc.Job:
    job = sc.Job("shop", fakes={network: no_network, "orders": sc.items(list(range(20)))})
    asked = job.source(sc.items([]), name="orders").map(ask, name="ask", uses=network)
    if forgets:
        asked = asked.filter(once, name="once")
    asked.sink(sc.files.json_lines("out"), name="out")
    return job
"""


def test_random_jobs_that_hold_exit_with_0_and_say_what_happened(cli: Cli) -> None:
    ran = cli("simulate", "--random-jobs", "--seeds", "6", "--jobs", "1")
    assert ran.code == 0, ran.err
    assert "6 seeds in " in ran.out
    assert "6 held, 0 failed" in ran.out
    assert "what happened: " in ran.out


def test_replay_prints_the_job_the_plan_and_everything_that_happens(cli: Cli) -> None:
    ran = cli("simulate", "--random-jobs", "--replay", "3")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0] == "seed 3:"
    assert lines[1].startswith("source1: source")
    again = cli("simulate", "--random-jobs", "--replay", "3").out.splitlines()
    assert again[:-2] == lines[:-2]


def test_json_is_one_document(cli: Cli) -> None:
    asked = ("--seeds", "2", "--from-seed", "5", "--jobs", "1", "--json")
    document = json.loads(cli("simulate", "--random-jobs", *asked).out)
    assert (document["seeds"], document["failed"], document["shown"]) == (2, {}, None)
    assert sum(document["counts"].values()) > 0


def test_own_job_runs_with_its_fakes_and_touches_no_target(
    cli: Cli, write: Write, folder: Path
) -> None:
    write(JOB)
    ran = cli("simulate", "my_job.py", "--seeds", "8", "--jobs", "1")
    assert ran.code == 0, ran.out
    assert "8 held, 0 failed" in ran.out
    assert not (folder / "out").exists()


@pytest.mark.parametrize("keeps", [False, True])
def test_parallelism_changes_at_restarts_unless_it_is_kept(
    cli: Cli, write: Write, keeps: bool
) -> None:
    write(JOB)
    asked = ("--seeds", "8", "--jobs", "1", "--json", *(["--keep-parallelism"] * keeps))
    document = json.loads(cli("simulate", "my_job.py", *asked).out)
    assert document["failed"] == {}
    assert (document["counts"].get("rescaled", 0) == 0) == keeps


def test_job_that_loses_records_after_a_crash_exits_with_1_and_names_the_seed(
    cli: Cli, write: Write
) -> None:
    """It keeps in a global what belongs into state."""
    write(JOB)
    ran = cli("simulate", "my_job.py", "--forgets", "--until-fail", "--jobs", "1")
    assert ran.code == 1
    assert "too few" in ran.out
    assert "see it again: streamcp simulate my_job.py --replay 0" in ran.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "write the JOB to be simulated, or --random-jobs"),
        (("my_job.py", "--random-jobs"), "leave one out"),
        (("--random-jobs", "--replay", "1", "--seeds", "3"), "--replay runs one seed"),
        (("--random-jobs", "--seeds", "0"), "--seeds 0: write 1 or more"),
    ],
)
def test_wrong_use_is_named(
    cli: Cli, write: Write, arguments: tuple[str, ...], message: str
) -> None:
    write(JOB)
    ran = cli("simulate", *arguments)
    assert ran.code == 2
    assert message in ran.err


def test_fake_of_nothing_is_refused_with_the_names_of_the_sources(cli: Cli, write: Write) -> None:
    write(JOB.replace('"orders": sc.items', '"order": sc.items'))
    ran = cli("simulate", "my_job.py", "--seeds", "1")
    assert ran.code == 2
    assert "Job(fakes={'order': ...}) replaces nothing of job 'shop'" in ran.err
    assert "(orders)" in ran.err


def test_service_without_a_fake_is_told_with_the_remedy(cli: Cli, write: Write) -> None:
    write(JOB.replace("network: no_network, ", ""))
    ran = cli("simulate", "my_job.py", "--seeds", "1", "--jobs", "1")
    assert ran.code == 1
    assert ran.err.startswith("error: the job fails when nothing disturbs it: it is broken, or ")
    assert "needs a fake of what is outside, Job(fakes={...})" in ran.err
    assert ran.err.endswith("there is no network here\n")
