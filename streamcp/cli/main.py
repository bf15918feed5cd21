"""The entry point `streamcp`: its commands, and what an exit code means (see `errors`)."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from streamcp.cli import errors
from streamcp.cli.checkpoints import app as checkpoints_app
from streamcp.cli.graph import graph_command
from streamcp.cli.run import run_command

app = typer.Typer(
    name="streamcp",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.callback()
def _group() -> None:
    """Async streaming pipelines whose checkpoints take milliseconds."""


# What stands behind JOB is read when the job, and with it its options, are known.
_BEHIND_JOB = {"allow_interspersed_args": False, "allow_extra_args": True}
app.command("run", context_settings=_BEHIND_JOB)(run_command())
app.command("graph", context_settings=_BEHIND_JOB)(graph_command())
app.add_typer(checkpoints_app, name="checkpoints")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; always raises SystemExit."""
    try:
        app(sys.argv[1:] if arguments is None else list(arguments), prog_name="streamcp")
    except KeyboardInterrupt:
        sys.exit(errors.INTERRUPTED)
