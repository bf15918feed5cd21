"""`streamcp run`: load a job, merge its settings, run it to its end, and show it meanwhile."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from streamcp.api.jobs import Job
from streamcp.api.parameters import JobFactory
from streamcp.cli import errors, options
from streamcp.cli.live import Live
from streamcp.cli.loading import Loaded, load
from streamcp.cli.logs import show_warnings
from streamcp.cli.reports import JsonLines, Lines, Quiet, Report, make_stdout_clean
from streamcp.runners import local
from streamcp.runners.handle import JobResult
from streamcp.runners.signals import run_to_end

JOB_HELP = "file.py or package.module, or either with :name."
_DOC = """Run a job until its sources end.

It continues from its newest complete checkpoint. Ctrl-C, or SIGTERM, stops it with a last
checkpoint; the second one stops it at once."""


def run_command(name: str = "run") -> Any:
    """The command as it is before the job is known: what follows JOB is left to `job_command`."""
    job = inspect.Parameter(
        "job",
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[str, typer.Argument(metavar="JOB", help=JOB_HELP, show_default=False)],
    )
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    return options.command(_load_and_run, [context, job, *options.run_parameters()], _DOC)


def _load_and_run(context: typer.Context, job: str, **before: Any) -> None:
    """Load JOB, then read the rest of the command line with its options."""
    stdout = sys.stdout
    if before["json"] or "--json" in context.args:
        stdout = make_stdout_clean()
    try:
        loaded = load(job)
    # A user's module may raise anything while it is imported.
    except Exception as error:
        errors.show_error(error, whole=before["traceback"] or "--traceback" in context.args)
        raise typer.Exit(errors.WRONG_USE) from None
    code = 0

    def body(**after: Any) -> None:
        nonlocal code
        given = {name: value for name, value in after.items() if value not in (None, False, [])}
        code = _run(loaded, before | given | _refusals(after), stdout)

    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    own = options.job_parameters(loaded.options) if isinstance(loaded, JobFactory) else []
    app.command(context_settings={"help_option_names": ["--help", "-h"]})(
        options.command(body, [*own, *options.run_parameters()], _doc_of(loaded))
    )
    app(context.args, prog_name=f"streamcp run {job}", standalone_mode=False)
    raise typer.Exit(code)


def _refusals(after: Mapping[str, Any]) -> dict[str, Any]:
    """`--no-…` is a value too, except for the switches that show."""
    shown = {"json", "quiet", "traceback"}
    return {name: False for name, value in after.items() if value is False and name not in shown}


def _doc_of(loaded: Loaded) -> str:
    text = inspect.getdoc(loaded) if isinstance(loaded, JobFactory) else ""
    first = (text or "").split("\n\n")[0].strip()
    return first or "Run this job."


def _run(loaded: Loaded, values: Mapping[str, Any], stdout: Any) -> int:
    whole = bool(values["traceback"])
    try:
        job = loaded if isinstance(loaded, Job) else loaded(**options.job_arguments(values))
        settings = job.settings(options.settings_of(values))
        job.validate(settings)
    # A job function is user code and may raise anything; no job was started.
    except Exception as error:
        errors.show_error(error, whole=whole)
        return errors.WRONG_USE
    report = _report(values, stdout)
    return _run_job(job, settings, report, whole=whole)


def _report(values: Mapping[str, Any], stdout: Any) -> Report:
    out = errors.console()
    if values["json"]:
        report: Report = JsonLines(out, stdout)
        show_warnings(out, told=False)
    elif values["quiet"]:
        report = Quiet(out)
        show_warnings(out, told=False)
    else:
        report = Live(out) if out.is_terminal else Lines(out, _now)
        show_warnings(out, told=True)
    return report


def _now() -> str:
    return datetime.now().astimezone().strftime("%H:%M:%S")


def _run_job(job: Job, settings: Any, report: Report, *, whole: bool) -> int:
    try:
        result: JobResult = run_to_end(
            lambda: local.start(job.name, job.graph, settings, job.types),
            watch=report.watch,
            on_signal=report.on_signal,
        )
    except KeyboardInterrupt:
        return errors.INTERRUPTED
    # Whatever ends a job is shown in the same way.
    except Exception as error:
        code = errors.exit_code(error)
        report.failed(error, code)
        errors.show_error(error, whole=whole)
        return code
    report.ended(result)
    return errors.DONE
