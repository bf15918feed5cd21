"""`streamcp checkpoint|savepoint|stop|mode JOBDIR`: ask a running job for something."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from streamcp.checkpoint.statistics import CheckpointStatistics
from streamcp.cli import errors, words
from streamcp.cli.checkpoints import Json, Whole, one_job_in
from streamcp.config import MODES
from streamcp.runners import control

JobDirectory = Annotated[
    Path,
    typer.Argument(
        metavar="JOBDIR", help="Where the job's checkpoints go, or its own directory in there."
    ),
]
Mode = Annotated[
    str | None,
    typer.Option("--mode", metavar="MODE", help=f"One of {', '.join(MODES)} (the job's own)."),
]


def checkpoint(job: JobDirectory, json: Json = False, traceback: Whole = False) -> None:
    """Let a running job take a checkpoint now, and wait until it is complete."""
    with errors.shown(whole=traceback):
        figures = _asked(job, "checkpoint")
        _tell(figures, json, words.checkpoint_line(CheckpointStatistics.from_dict(figures)))


def savepoint(
    job: JobDirectory,
    target: Annotated[
        Path, typer.Argument(metavar="DIR", help="The savepoint is a new directory in it.")
    ],
    mode: Mode = None,
    json: Json = False,
    traceback: Whole = False,
) -> None:
    """Let a running job take a savepoint now, and print its path."""
    with errors.shown(whole=traceback):
        _check_mode(mode)
        saved = _asked(job, "savepoint", target=str(target.absolute()), mode=mode)
        _tell(saved, json, str(saved["path"]))


def stop(
    job: JobDirectory,
    savepoint: Annotated[
        Path | None,
        typer.Option("--savepoint", metavar="DIR", help="Stop with a savepoint in this directory."),
    ] = None,
    mode: Mode = None,
    drain: Annotated[
        bool,
        typer.Option(
            "--drain", help="Finish for good: read no more, and work off what has been read."
        ),
    ] = False,
    json: Json = False,
    traceback: Whole = False,
) -> None:
    """Stop a running job with a last checkpoint, and wait for its end."""
    with errors.shown(whole=traceback):
        _check_mode(mode)
        target = None if savepoint is None else str(savepoint.absolute())
        result = _asked(job, "stop", savepoint=target, mode=mode, drain=drain)
        line = f"job {result['job']} {result['outcome']}: checkpoint {result['last_checkpoint']}"
        if result["savepoint"] is not None:
            line = f"{line}, savepoint {result['savepoint']}"
        _tell(result, json, line)


def mode(
    job: JobDirectory,
    mode: Annotated[str, typer.Argument(metavar="MODE", help=f"One of {', '.join(MODES)}.")],
    json: Json = False,
    traceback: Whole = False,
) -> None:
    """Let a running job use another checkpoint mode from the next checkpoint on."""
    with errors.shown(whole=traceback):
        _check_mode(mode)
        _tell(_asked(job, "mode", mode=mode), json, f"mode {mode} from the next checkpoint on")


def _check_mode(mode: str | None) -> None:
    """Before the job is asked: its answer would name its methods, and it may not run."""
    if mode is not None and mode not in MODES:
        raise errors.WrongUse(f"there is no mode {mode!r}: choose one of {', '.join(MODES)}")


def _asked(job: Path, command: str, **arguments: Any) -> dict[str, Any]:
    return control.ask(one_job_in(job, None).directory, command, **arguments)


def _tell(result: dict[str, Any], json: bool, line: str) -> None:
    if json:
        words.print_json(result, sys.stdout)
    else:
        print(line)
