from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamcp.api.settings import RUN_OPTIONS
from streamcp.cli import options
from streamcp.config import Checkpoints, JobSettings

Cli = Callable[..., Any]
Write = Callable[..., Path]

JOB = '''
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Literal
class Colour(Enum):
    RED = "red"
    BLUE = "blue"
@sc.job
def job(topic: str, *, limit: int = 7, share: float = 0.5, loud: bool = False, to: Path = Path("x"),
        day: date = date(2024, 1, 2), colour: Colour = Colour.RED, kind: Literal["a", 2] = "a",
        numbers: list[int] = [1, 2], days: list[date] = [], switches: list[bool] = [],
        job: str | None = None) -> sc.Job:
    """Do something.

    topic: what it is about
    """
    print(repr((topic, limit, share, loud, str(to), day.isoformat(), colour.name, kind, numbers,
                [str(d) for d in days], switches, job)))
    made = sc.Job("typed")
    made.source(sc.items([1])).sink(sc.discard())
    return made
'''


def _names(parameters: list[inspect.Parameter]) -> set[str]:
    return {parameter.name for parameter in parameters}


def test_every_option_of_run_is_reserved() -> None:
    taken = {
        declared.strip("-").replace("-", "_")
        for parameter in options.run_parameters()
        for declaration in parameter.annotation.__metadata__[0].param_decls or ()
        for declared in [*declaration.split("/"), parameter.annotation.__metadata__[0].default]
        if isinstance(declared, str)
    }
    taken |= _names(options.run_parameters())
    assert taken <= RUN_OPTIONS
    assert RUN_OPTIONS - taken <= {"workers", "ui", "help", "no_predict"}


def test_every_setting_is_an_option() -> None:
    fields = {field.name for field in dataclasses.fields(Checkpoints)} - {"to"}
    settings = {field.name for field in dataclasses.fields(JobSettings)}
    assert fields | settings <= _names(options.run_parameters())


def test_every_option_of_run_is_in_the_reference() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text("utf-8")
    # typer keeps the first flag where a default is expected
    flags = {
        parameter.annotation.__metadata__[0].default.split("/")[0]
        for parameter in options.run_parameters()
    }
    assert "--from" in flags
    assert {flag for flag in flags if f"`{flag}" not in text} == set()


def test_settings_go_where_the_job_looks_for_them() -> None:
    values = {"every": "5s", "checkpoints": "here", "fresh": True, "mode": None, "json": True}
    assert options.settings_of(values) == {
        "fresh": True,
        "checkpoints": {"every": "5s", "to": "here"},
    }
    assert options.settings_of({"predict": False}) == {"checkpoints": {"predict": False}}
    assert options.settings_of({}) == {}


def test_later_options_win_unless_not_given() -> None:
    assert options.merged({"a": 1, "b": 2}, {"a": None, "b": False}) == {"a": 1, "b": False}


def test_defaults_are_those_of_the_function(cli: Cli, write: Write) -> None:
    write(JOB)
    ran = cli("run", "my_job.py", "--quiet", "--topic", "t")
    assert ran.code == 0, ran.err
    assert ran.out == (
        "('t', 7, 0.5, False, 'x', '2024-01-02', 'RED', 'a', [1, 2], [], [], None)\n"
    )


def test_help_shows_defaults_behind_the_text_and_no_values_of_switches(
    cli: Cli, write: Write
) -> None:
    write(JOB)
    ran = cli("run", "my_job.py", "--help")
    assert ran.code == 0
    rows = {row[1]: row[2:-1] for row in map(str.split, ran.out.splitlines()) if len(row) > 2}
    assert rows["--limit"] == ["<int>", "(7)"]
    assert rows["--numbers"][1:] == ["(1,", "2)"]
    assert rows["--job"] == ["<str>"]
    assert rows["--loud"] == ["--no-loud", "(False)"]
    assert rows["--json"][0] == "Print"


def test_values_have_the_types_of_the_parameters(cli: Cli, write: Write) -> None:
    write(JOB)
    words = (
        "--topic t --limit 9 --share 2 --loud --to y --day 2025-12-31 --colour blue --kind 2 "
        "--numbers 3 --numbers 4 --days 2025-01-01 --switches true --switches false --job j"
    )
    ran = cli("run", "my_job.py", "--quiet", *words.split())
    assert ran.code == 0, ran.err
    assert ran.out == (
        "('t', 9, 2.0, True, 'y', '2025-12-31', 'BLUE', 2, [3, 4], ['2025-01-01'], "
        "[True, False], 'j')\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "Missing option '--topic'"),
        ("--topic t --limit many", "--limit"),
        ("--topic t --day tomorrow", "'tomorrow' is not a date like 2024-12-31"),
        ("--topic t --colour green", "'green' is not one of red, blue"),
        ("--topic t --kind b", "'b' is not one of a, 2"),
        ("--topic t --unknown", "--unknown"),
    ],
)
def test_wrong_values_are_wrong_use(cli: Cli, write: Write, words: str, message: str) -> None:
    write(JOB)
    ran = cli("run", "my_job.py", *words.split())
    assert ran.code == 2
    assert message in ran.err


def test_help_shows_the_options_of_the_job_in_a_group_of_their_own(cli: Cli, write: Write) -> None:
    write(JOB)
    ran = cli("run", "my_job.py", "--help")
    assert ran.code == 0
    group = ran.out.partition("Options of the job")[2].partition("╰")[0]
    assert "--topic" in group
    assert "what it is about" in group
    assert "required" in group
    assert "2024-01-02" in group
    assert "--every" not in group
    assert "Do something." in ran.out
