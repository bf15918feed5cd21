"""Commands about a job: two steps, since the options of a job are known when it is loaded.

Options of the command may stand before or behind JOB; those of the job only behind.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from typing import Annotated, Any, TextIO, TypeAlias

import typer

from streamcp.api.jobs import Job
from streamcp.api.parameters import JobFactory
from streamcp.cli import errors, options
from streamcp.cli.loading import Loaded, load

JOB_HELP = "file.py or package.module, or either with :name."
Body: TypeAlias = Callable[[Job, dict[str, Any], TextIO], int]


def job_command(
    name: str, doc: str, parameters: Sequence[inspect.Parameter], body: Body
) -> Callable[..., Any]:
    """Make the command `name` with `parameters` and JOB.

    `body` gets the job, the values of the command's options (None where not given), and the real
    stdout (with `--json` everything else that is printed goes to stderr); it returns the exit
    code. What it raises is shown."""

    def load_and_run(context: typer.Context, job: str, **before: Any) -> None:
        stdout = sys.stdout
        is_json = before["json"] or "--json" in context.args
        whole = before["traceback"] or "--traceback" in context.args
        with redirect_stdout(sys.stderr if is_json else stdout):
            with errors.shown(whole=whole, code=errors.WRONG_USE):
                loaded = load(job)
            given = read_arguments(loaded, parameters, context.args, f"streamcp {name} {job}")
            with errors.shown(whole=whole, code=errors.WRONG_USE):
                made = loaded if isinstance(loaded, Job) else loaded(**options.job_arguments(given))
            with errors.shown(whole=whole):
                code = body(made, options.merged(before, given), stdout)
        raise typer.Exit(code)

    return options.command(load_and_run, [*first_parameters(), *parameters], doc)


def first_parameters(*, optional: bool = False) -> list[inspect.Parameter]:
    """The context, and JOB; None where it is `optional` and left out."""
    job = typer.Argument(metavar="JOB", help=JOB_HELP, show_default=False)
    default, kind = (None, str | None) if optional else (inspect.Parameter.empty, str)
    return [
        inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
        inspect.Parameter(
            "job",
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[kind, job],
        ),
    ]


def read_arguments(
    loaded: Loaded,
    parameters: Sequence[inspect.Parameter],
    arguments: Sequence[str],
    prog_name: str,
) -> dict[str, Any]:
    """Read what stands behind JOB: the options of the job, and those of the command that the job
    does not call its own.

    Raises typer's own errors, and typer.Exit after `--help`."""
    own = loaded.options if isinstance(loaded, JobFactory) else ()
    taken = {option.name for option in own}
    both = [*options.job_parameters(own), *(one for one in parameters if one.name not in taken)]
    given: list[dict[str, Any]] = []
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    read = options.command(lambda **values: given.append(values), both, _doc_of(loaded))
    app.command()(read)
    app(list(arguments), prog_name=prog_name, standalone_mode=False)
    if not given:
        raise typer.Exit
    return given[0]


def _doc_of(loaded: Loaded) -> str:
    text = inspect.getdoc(loaded) if isinstance(loaded, JobFactory) else ""
    first = (text or "").split("\n\n")[0].strip()
    return first or "This job has no options of its own."
