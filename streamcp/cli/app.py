"""The commands of `streamcp`."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from streamcp.cli import control
from streamcp.cli.checkpoints import app as checkpoints_app
from streamcp.cli.compare import compare_command
from streamcp.cli.graph import graph_command
from streamcp.cli.options import NO_VALUE
from streamcp.cli.run import run_command
from streamcp.cli.savepoints import app as savepoints_app
from streamcp.cli.simulate import simulate_command

app = typer.Typer(
    name="streamcp",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"streamcp {version('streamcp')}")
        raise typer.Exit


@app.callback()
def _group(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            metavar=NO_VALUE,
            is_eager=True,
            callback=_print_version,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Async streaming pipelines whose checkpoints take milliseconds."""


# What stands behind JOB is read when the job, and with it its options, are known.
_BEHIND_JOB = {"allow_interspersed_args": False, "allow_extra_args": True}
app.command("run", context_settings=_BEHIND_JOB)(run_command())
app.command("compare", context_settings=_BEHIND_JOB)(compare_command())
app.command("simulate", context_settings=_BEHIND_JOB)(simulate_command())
app.command("graph", context_settings=_BEHIND_JOB)(graph_command())
app.add_typer(checkpoints_app, name="checkpoints")
app.add_typer(savepoints_app, name="savepoints")
for ask in (control.checkpoint, control.savepoint, control.stop, control.mode):
    app.command(ask.__name__)(ask)
