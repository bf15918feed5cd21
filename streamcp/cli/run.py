"""`streamcp run`: load a job, merge its settings, run it to its end, and show it meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TextIO

from rich.console import Console

from streamcp.api.jobs import Job
from streamcp.cli import errors, options
from streamcp.cli.job_command import job_command
from streamcp.cli.live import Live
from streamcp.cli.logs import show_warnings
from streamcp.cli.main import ignore_signals
from streamcp.cli.reports import JsonLines, Lines, Quiet, Report
from streamcp.config import JobSettings
from streamcp.runners import local
from streamcp.runners.signals import run_to_end

# Seconds from the second signal to the end of the process, whatever still runs.
GRACE = 1.0
_DOC = """Run a job until its sources end.

It continues from its newest complete checkpoint. Ctrl-C, or SIGTERM, stops it with a last
checkpoint; the second one ends it at once.

Options may stand before or behind JOB; those of the job itself behind it: see
streamcp run JOB --help."""


def run_command() -> Callable[..., Any]:
    """Make the command."""
    return job_command("run", _DOC, options.run_parameters(), _run)


def _run(job: Job, values: Mapping[str, Any], stdout: TextIO) -> int:
    settings = job.settings(options.settings_of(values))
    job.validate(settings)
    return _run_job(job, settings, _report(values, settings, stdout), bool(values["traceback"]))


def _report(values: Mapping[str, Any], settings: JobSettings, stdout: TextIO) -> Report:
    out = errors.console()
    if values["json"]:
        report: Report = JsonLines(out, stdout)
        show_warnings(out, told=False)
    elif values["quiet"]:
        report = Quiet(out)
        show_warnings(out, told=False)
    else:
        shows = Live if out.is_terminal else Lines
        report = shows(out, settings, _now)
        show_warnings(out, told=True)
    return report


class _EndSoon:
    """User code that blocks, or closes slowly, must not keep the process after a second signal."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._waits = False

    def __call__(self) -> None:
        """End the process in a moment; when called again, now."""
        if self._waits:
            self._exit()
        self._waits = True
        watchdog = threading.Timer(GRACE, self._exit)
        watchdog.daemon = True
        watchdog.start()

    def _exit(self) -> None:
        self._out.show_cursor(True)  # the live view hides it
        os._exit(errors.INTERRUPTED)


def _now() -> str:
    return datetime.now().astimezone().strftime("%H:%M:%S")


def _run_job(job: Job, settings: JobSettings, report: Report, whole: bool) -> int:
    failure: Exception | None = None
    try:
        result = run_to_end(
            lambda: local.start(job.name, job.graph, settings, job.types),
            watch=report.watch,
            on_stop=report.on_stop,
            on_interrupt=_EndSoon(errors.console()),
        )
    except KeyboardInterrupt:
        ignore_signals()
        report.interrupted()
        return errors.INTERRUPTED
    # Whatever ends a job is shown in the same way.
    except Exception as error:
        failure = error
    ignore_signals()
    if failure is None:
        report.ended(result)
        return errors.DONE
    code = errors.exit_code(failure)
    report.failed(failure, code)
    errors.show_error(failure, whole=whole)
    return code
