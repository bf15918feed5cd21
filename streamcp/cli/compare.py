"""`streamcp compare`: one job under one load in every checkpoint mode, and a kill in each."""

from __future__ import annotations

import asyncio
import importlib
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, TextIO

import orjson
import typer
from rich.console import Console

from streamcp.api.jobs import Job
from streamcp.cli import compare_options, errors, options
from streamcp.cli import words as words_module
from streamcp.cli.compare_options import Options
from streamcp.cli.compare_progress import Bars, Lines, bars
from streamcp.cli.compare_report import PICTURE, RESULTS, as_json, print_results, title
from streamcp.cli.job_command import first_parameters
from streamcp.clock import SystemClock
from streamcp.compare.child import checkpoint_settings
from streamcp.compare.experiment import Experiment, Plan, run_experiment
from streamcp.compare.figures import compare
from streamcp.compare.messages import RunOrder
from streamcp.compare.outputs import remove_folder
from streamcp.config import JobSettings

_DOC = "\n\n".join(
    (
        "Compare the checkpoint modes on one job: each mode twice (A B C C B A), then a kill -9 "
        "and a restore in each.",
        "All runs read the same records: as many as the first one gets from its sources in "
        "--seconds. Every sink is replaced by one that writes JSON lines to a directory of its "
        "own, exactly once, so nothing reaches the real targets; the functions of all steps, "
        "for_each included, are called for real.",
        "Prints a table, and writes results.json and compare.png to --out. Exits with 1 if an "
        "output after a kill is not that of an undisturbed run, record for record, or if a run "
        "does not end.",
        f"JOB is {' '.join(compare_options.DEFAULT_JOB)} if it is left out. Its own options stand "
        "behind it.",
    )
)


def compare_command() -> Any:
    """The command as it is before the job is known."""
    parameters = [*first_parameters(optional=True), *compare_options.parameters()]
    return options.command(_compare, parameters, _DOC)


def _compare(context: typer.Context, job: str | None, **before: Any) -> None:
    words = [job, *context.args] if job else list(compare_options.DEFAULT_JOB)
    stdout = sys.stdout
    whole = before["traceback"] or "--traceback" in words
    with redirect_stdout(sys.stderr if before["json"] or "--json" in words else stdout):
        with errors.shown(whole=whole, code=errors.WRONG_USE):
            # All that can be found missing is found before anything is run.
            importlib.import_module("streamcp.compare.picture")
        made, given = _load(words, whole=whole)
        with errors.shown(whole=whole):
            asked = compare_options.options_of(options.merged(before, given))
            made.validate(_settings_of(made, asked))
            code = _run(made, words, asked, stdout)
    raise typer.Exit(code)


def _load(words: Sequence[str], *, whole: bool) -> tuple[Job, dict[str, Any]]:
    try:
        return compare_options.load_job(words[0], words[1:])
    except (typer.Exit, typer.TyperException):
        raise
    # The job's module and its functions are user code, and may raise anything.
    except Exception as error:
        errors.show_error(error, whole=whole)
        raise typer.Exit(errors.WRONG_USE) from None


def _settings_of(job: Job, asked: Options) -> JobSettings:
    """The settings of a run, but for its mode and folder."""
    order = RunOrder(folder=str(asked.out), mode=asked.modes[0], every=asked.every)
    checkpoints = checkpoint_settings(job, order)
    return job.settings(checkpoints=checkpoints, channel_capacity=asked.channel_capacity)


def _run(job: Job, words: Sequence[str], asked: Options, stdout: TextIO) -> int:
    clock = SystemClock()
    began = clock.monotonic()
    asked.out.mkdir(parents=True, exist_ok=True)
    runs = Path(tempfile.mkdtemp(prefix="runs-", dir=asked.out))
    plan = Plan(
        command=(sys.executable, "-m", "streamcp.cli.compare_child", *words),
        folder=runs,
        modes=asked.modes,
        every=asked.every,
        seconds=asked.seconds,
        records=asked.records,
        channel_capacity=asked.channel_capacity,
        sink_delay=asked.sink_delay,
    )
    try:
        experiment = asyncio.run(_observed(plan, errors.console()))
    except BaseException:
        remove_folder(runs)
        raise
    comparison = compare(experiment, asked.modes)
    settings = _settings(job, words, asked, experiment)
    picture = importlib.import_module("streamcp.compare.picture")
    picture.draw(asked.out / PICTURE, experiment, asked.modes, title(settings))
    if comparison.is_right:
        remove_folder(runs)
    settings["took_seconds"] = round(clock.monotonic() - began, 1)
    results = as_json(experiment, comparison, settings)
    (asked.out / RESULTS).write_bytes(orjson.dumps(results, option=orjson.OPT_INDENT_2))
    if asked.json:
        words_module.print_json(results, stdout)
    else:
        print_results(comparison, settings, asked.out, runs)
    return errors.DONE if comparison.is_right else errors.FAILED


async def _observed(plan: Plan, out: Console) -> Experiment:
    if not out.is_terminal:
        return await run_experiment(plan, Lines(out))
    with bars(out) as progress:
        return await run_experiment(plan, Bars(progress))


def _settings(
    job: Job, words: Sequence[str], asked: Options, experiment: Experiment
) -> dict[str, Any]:
    """How it was measured, for the results."""
    settings = _settings_of(job, asked)
    used = settings.checkpoints
    assert used is not None
    return {
        "job": job.name,
        "words": list(words),
        "order": [*asked.modes, *reversed(asked.modes)],
        "limited_by": f"{asked.records} records" if asked.records else f"{asked.seconds:g} s",
        "records_per_run": sum(experiment.limits.values()),
        "every": str(used.every),
        "alignment_timeout": str(used.alignment_timeout),
        "predict": used.predict,
        "channel_capacity": settings.channel_capacity,
        "sink_delay_seconds": asked.sink_delay,
    }
