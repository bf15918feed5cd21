"""Savepoints on the command line: begin from one, list, show, verify, delete."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]
Write = Callable[..., Path]

# Takes a savepoint of itself, with records in flight, when asked to by its parameter.
JOB = """
@sc.source
async def numbers(position: int = 0):
    for n in range(position, 6):
        yield n, n + 1
@sc.job
def job(name: str = "first") -> sc.Job:
    job = sc.Job("orders", checkpoints=sc.Checkpoints(to=name))
    (job.source(numbers(), name="in").map(lambda n: [n], name="row")
        .sink(sc.files.json_lines("out"), name="out"))
    return job
"""
TAKE = """
async def take():
    import my_job
    made = sc.Job("orders", checkpoints=sc.Checkpoints(to="first", mode="unaligned"))
    async def wait(n):
        await asyncio.Event().wait()
    (made.source(my_job.numbers(), name="in").map(lambda n: [n], name="row")
        .sink(sc.files.json_lines("out"), name="out"))
    async with made.start() as running:
        await running.stop(savepoint="saved")
asyncio.run(take())
"""


@pytest.fixture
def saved(cli: Cli, write: Write, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(folder))
    write(JOB)
    exec(compile(write(TAKE, "take.py").read_text(encoding="utf-8"), "take.py", "exec"), {})
    return Path("saved/orders-1")


def test_run_begins_from_a_savepoint_and_refuses_once_it_has_checkpoints(
    cli: Cli, saved: Path, folder: Path
) -> None:
    ran = cli("run", "my_job.py", "--from", str(saved), "--name", "second")
    assert ran.code == 0
    assert f"restored savepoint {saved} (checkpoint 1)" in ran.err
    lines = [line for file in folder.glob("out/[!.]*") for line in file.read_text().splitlines()]
    assert sorted(lines) == [f"[{n}]" for n in range(6)]
    again = cli("run", "my_job.py", "--from", str(saved), "--name", "second")
    assert again.code == 1
    assert "has checkpoints of its own in second/orders" in again.err


def test_run_from_what_is_no_savepoint_is_an_error(cli: Cli, saved: Path) -> None:
    ran = cli("run", "my_job.py", "--from", "saved", "--name", "second")
    assert ran.code == 1
    assert "nothing of it ran: its checkpoints are as they were" in ran.err
    assert "saved is no savepoint: name a directory that a savepoint made" in ran.err


def test_list_has_a_line_per_savepoint(cli: Cli, saved: Path) -> None:
    ran = cli("savepoints", "list", "saved")
    assert ran.code == 0
    heading, row = ran.out.splitlines()
    assert heading.split()[:3] == ["path", "job", "checkpoint"]
    assert row.split()[:3] == [str(saved), "orders", "1"]


def test_list_in_json_is_one_document_and_names_what_is_wrong(cli: Cli, saved: Path) -> None:
    Path("saved/orders-7").mkdir()
    first, second = json.loads(cli("savepoints", "list", "saved", "--json").out)
    assert (first["path"], first["job"], first["damage"]) == (str(saved), "orders", None)
    assert first["statistics"]["mode"] == "unaligned"
    assert first["statistics"]["outcome"] == "completed", "its manifest was written before that"
    assert first["bytes"] > 0
    assert "never finished" in second["damage"]
    assert "never finished" in cli("savepoints", "list", "saved").out


def test_list_of_a_directory_without_savepoints_says_so(cli: Cli, folder: Path) -> None:
    (folder / "empty").mkdir()
    ran = cli("savepoints", "list", "empty")
    assert (ran.code, ran.out) == (0, "no savepoints in empty\n")
    assert cli("savepoints", "list", "empty", "--json").out == "[]\n"


def test_list_of_no_directory_is_wrong_use(cli: Cli) -> None:
    assert cli("savepoints", "list", "nowhere").code == 2


def test_show_and_verify_read_a_savepoint(cli: Cli, saved: Path) -> None:
    shown = cli("checkpoints", "show", str(saved), "--in-flight")
    assert shown.code == 0
    assert "checkpoint 1 of job orders" in shown.out
    document = json.loads(cli("checkpoints", "show", str(saved), "--json").out)
    assert set(document["files"]) == {"_metadata", "data"}
    verified = cli("checkpoints", "verify", str(saved))
    assert (verified.code, verified.out) == (0, "job orders: checkpoints 1\neverything is whole\n")


def test_verify_names_the_damaged_file_of_a_savepoint(cli: Cli, saved: Path) -> None:
    (saved / "data").write_bytes(b"?")
    ran = cli("checkpoints", "verify", str(saved))
    assert ran.code == 1
    assert str(saved / "data") in ran.out
    (saved / "_metadata").unlink()
    (found,) = json.loads(cli("checkpoints", "verify", str(saved), "--json").out)
    assert "never finished" in found["damaged"][0]


def test_delete_removes_a_savepoint_and_nothing_else(cli: Cli, saved: Path) -> None:
    refused = cli("savepoints", "delete", "first")
    assert refused.code == 1
    assert "first is no savepoint and was left alone" in refused.err
    assert cli("checkpoints", "verify", "first").code == 0
    assert json.loads(cli("savepoints", "delete", str(saved), "--json").out) == {
        "deleted": str(saved)
    }
    assert not saved.exists()
    assert cli("savepoints", "list", "saved", "--json").out == "[]\n"
