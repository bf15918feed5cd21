"""`streamcp compare`: one job under one load in every checkpoint mode, and a kill in each."""

from __future__ import annotations

import asyncio
import importlib
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
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
from streamcp.cli.compare_report import PICTURE, REPORT, RESULTS, as_json, print_results, title
from streamcp.cli.compare_sweep import print_sweep, sweep_json
from streamcp.cli.job_command import first_parameters
from streamcp.clock import SystemClock
from streamcp.compare.child import checkpoint_settings
from streamcp.compare.experiment import Experiment, Observer, Plan, run_experiment
from streamcp.compare.figures import Comparison, compare
from streamcp.compare.messages import RunOrder
from streamcp.compare.outputs import remove_folder
from streamcp.compare.runs import measured_order
from streamcp.compare.sweep import Point, Sweep, run_sweep
from streamcp.config import JobSettings

_DOC = "\n\n".join(
    (
        "Compare the checkpoint modes on one job: each mode twice (A B C C B A), then a kill -9 "
        "and a restore in each.",
        "All runs read the same records: as many as the first one gets from its sources in "
        "--seconds. Every sink is replaced by one that writes JSON lines to a directory of its "
        "own, exactly once, so nothing reaches the real targets; the functions of all steps, "
        "for_each included, are called for real.",
        "With --sweep one setting is varied instead; with --load the sources keep a pace, and "
        "latency is measured.",
        "Prints a table, and writes report.html, results.json and compare.png to --out. Exits with "
        "1 if an output after a kill is not that of an undisturbed run, record for record, or if "
        "a run does not end.",
        f"JOB is {' '.join(compare_options.DEFAULT_JOB)} if it is left out. Its own options stand "
        "behind it.",
    )
)


def compare_command() -> Any:
    """The command as it is before the job is known."""
    parameters = [*first_parameters(optional=True), *compare_options.parameters()]
    return options.command(_compare, parameters, _DOC)


def _compare(context: typer.Context, job: str | None, **before: Any) -> None:
    words = [job, *context.args] if job else compare_options.default_job(before)
    stdout = sys.stdout
    whole = before["traceback"] or "--traceback" in words
    with redirect_stdout(sys.stderr if before["json"] or "--json" in words else stdout):
        with errors.shown(whole=whole, code=errors.WRONG_USE):
            # All that can be found missing is found before anything is run.
            _with_figures("streamcp.compare.picture")
        made, given = _load(words, whole=whole)
        with errors.shown(whole=whole):
            asked = compare_options.options_of(options.merged(before, given))
            made.validate(_settings_of(made, asked))
            command = compare_options.as_typed(before, [job, *context.args] if job else [])
            code = _run(made, words, asked, command, stdout)
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
    """The settings of a run, but for its mode and folder, and for what is swept."""
    order = RunOrder(folder=str(asked.out), mode=asked.modes[0], every=asked.every)
    checkpoints = checkpoint_settings(job, order)
    return job.settings(checkpoints=checkpoints, channel_capacity=asked.channel_capacity)


def _run(job: Job, words: Sequence[str], asked: Options, command: str, stdout: TextIO) -> int:
    """Run the comparison or the sweep, write what came out, and print it."""
    clock = SystemClock()
    began = clock.monotonic()
    asked.out.mkdir(parents=True, exist_ok=True)
    runs = Path(tempfile.mkdtemp(prefix="runs-", dir=asked.out))
    settings = _settings(job, words, asked, command)
    try:
        found = asyncio.run(_observed(_plan_of(words, asked, runs), asked.sweep, errors.console()))
    except BaseException:
        remove_folder(runs)
        raise
    settings["took_seconds"] = round(clock.monotonic() - began, 1)
    outcome = _outcome(found, asked, settings, runs)
    if outcome.is_right:
        remove_folder(runs)
    _write(outcome, asked)
    if asked.json:
        words_module.print_json(outcome.results, stdout)
    else:
        outcome.show(_told_of_files(asked))
    return errors.DONE if outcome.is_right else errors.FAILED


def _plan_of(words: Sequence[str], asked: Options, runs: Path) -> Plan:
    return Plan(
        command=(sys.executable, "-m", "streamcp.cli.compare_child", *words),
        folder=runs,
        modes=asked.modes,
        every=asked.every,
        seconds=asked.seconds,
        records=asked.records,
        channel_capacity=asked.channel_capacity,
        sink_delay=asked.sink_delay,
        load=asked.load,
    )


async def _observed(plan: Plan, sweep: Sweep | None, out: Console) -> Experiment | list[Point]:
    if not out.is_terminal:
        return await _runs(plan, sweep, Lines(out))
    with bars(out) as progress:
        return await _runs(plan, sweep, Bars(progress))


async def _runs(plan: Plan, sweep: Sweep | None, observer: Observer) -> Experiment | list[Point]:
    if sweep is None:
        return await run_experiment(plan, observer)
    return await run_sweep(plan, sweep, observer)


@dataclass(frozen=True)
class _Outcome:
    """What is written and printed of a comparison or a sweep; `experiment` is drawn as a picture
    if there is one. `show` prints it, with what it is told was written."""

    is_right: bool
    results: dict[str, Any]
    page: str
    show: Callable[[str], None]
    experiment: Experiment | None = None


def _with_figures(module: str) -> Any:
    """Import what needs the extra: only here, since every command imports this file.

    Raises MissingExtra."""
    return importlib.import_module(module)


def _pages() -> Any:
    return _with_figures("streamcp.cli.compare_html")


def _outcome(
    found: Experiment | list[Point], asked: Options, settings: dict[str, Any], runs: Path
) -> _Outcome:
    if isinstance(found, Experiment):
        settings |= _load_of(found)
        comparison = compare(found, asked.modes)
        results = as_json(found, comparison, settings)
        return _Outcome(
            comparison.is_right,
            results,
            _pages().page_of(found, comparison, settings, results, str(runs)).as_html(),
            partial(_show, comparison, settings, runs),
            found,
        )
    sweep, points = asked.sweep, found
    assert sweep is not None
    settings |= _load_of(points[0].experiment)
    results = sweep_json(sweep, points, settings)
    return _Outcome(
        results["right"],
        results,
        _pages().sweep_page(sweep, points, asked.modes, settings, results, str(runs)).as_html(),
        partial(_show_sweep, sweep, points, settings, runs),
    )


def _show(comparison: Comparison, settings: Mapping[str, Any], runs: Path, written: str) -> None:
    print_results(comparison, settings, written, runs)


def _show_sweep(
    sweep: Sweep, points: Sequence[Point], settings: Mapping[str, Any], runs: Path, written: str
) -> None:
    print_sweep(sweep, points, settings, written, runs)


def _load_of(experiment: Experiment) -> dict[str, Any]:
    """What became known of the load."""
    opened = experiment.reference is not None
    return {
        "records_per_run": sum(experiment.limits.values()),
        "sustainable": sum(experiment.sustainable.values()) if opened else None,
    }


def _write(outcome: _Outcome, asked: Options) -> None:
    (asked.out / RESULTS).write_bytes(orjson.dumps(outcome.results, option=orjson.OPT_INDENT_2))
    for path in (asked.out / REPORT, *([asked.html] if asked.html else [])):
        path.write_text(outcome.page, encoding="utf-8")
    if outcome.experiment is not None:
        picture = _with_figures("streamcp.compare.picture")
        made = title(outcome.results["settings"])
        picture.draw(asked.out / PICTURE, outcome.experiment, asked.modes, made)


def _told_of_files(asked: Options) -> str:
    names = [RESULTS, REPORT, *([] if asked.sweep else [PICTURE])]
    paths = [str(asked.out / name) for name in names] + ([str(asked.html)] if asked.html else [])
    return f"{', '.join(paths[:-1])} and {paths[-1]} are written"


def _settings(job: Job, words: Sequence[str], asked: Options, command: str) -> dict[str, Any]:
    """How it is measured, for the results."""
    settings = _settings_of(job, asked)
    used = settings.checkpoints
    assert used is not None
    return {
        "job": job.name,
        "words": list(words),
        "command": command,
        "order": list(measured_order(asked.modes)),
        "limited_by": f"{asked.records} records" if asked.records else f"{asked.seconds:g} s",
        "every": str(used.every),
        "alignment_timeout": str(used.alignment_timeout),
        "predict": used.predict,
        "channel_capacity": settings.channel_capacity,
        "sink_delay_seconds": asked.sink_delay,
        "load": asked.load,
        "sweep": None if asked.sweep is None else asked.sweep.text,
    }
