"""`streamcp compare`: one job under one load in every checkpoint mode, and a kill in each."""

from __future__ import annotations

import asyncio
import inspect
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console

from streamcp.api.jobs import Job
from streamcp.cli import compare_options, compare_report, errors, options
from streamcp.cli.compare_options import Options
from streamcp.clock import SystemClock
from streamcp.compare.experiment import Experiment, Plan, run_experiment
from streamcp.compare.figures import compare
from streamcp.compare.outputs import remove_folder

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
        f"JOB is {compare_options.DEFAULT_JOB} {' '.join(compare_options.DEFAULT_ARGUMENTS)} if it "
        "is left out. Its own options stand behind it.",
    )
)


def compare_command() -> Any:
    """The command as it is before the job is known."""
    help_text = "file.py or package.module, or either with :name."
    job = inspect.Parameter(
        "job",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            str | None, typer.Argument(metavar="[JOB]", help=help_text, show_default=False)
        ],
    )
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    return options.command(_compare, [context, job, *compare_options.parameters()], _DOC)


def _compare(context: typer.Context, job: str | None, **before: Any) -> None:
    target = job or compare_options.DEFAULT_JOB
    arguments = context.args if job else compare_options.DEFAULT_ARGUMENTS
    try:
        # Found missing now rather than after all runs.
        from streamcp.compare import picture  # noqa: F401

        loaded, values = compare_options.read_arguments(target, arguments, before)
        made = compare_options.make_job(loaded, values)
        asked = compare_options.options_of(values)
        _check(made)
    except (typer.Exit, typer.BadParameter):
        raise
    # The job's module and function are user code and may raise anything; nothing was started.
    except Exception as error:
        if type(error).__module__.startswith("click"):
            raise
        errors.show_error(error)
        raise typer.Exit(errors.WRONG_USE) from None
    raise typer.Exit(_run(made, [target, *arguments], asked))


def _check(job: Job) -> None:
    """Raise now what would be raised in every child."""
    from streamcp.compare.child import checkpoint_settings
    from streamcp.compare.messages import RunOrder

    settings = checkpoint_settings(job, RunOrder(folder="compare", mode="aligned"))
    job.validate(job.settings(checkpoints=settings))


def _run(job: Job, words: Sequence[str], asked: Options) -> int:
    out = errors.console()
    asked.out.mkdir(parents=True, exist_ok=True)
    runs = Path(tempfile.mkdtemp(prefix="runs-", dir=asked.out))
    plan = Plan(
        command=(sys.executable, "-m", "streamcp.cli.compare_child", *words),
        folder=runs,
        modes=asked.modes,
        every=asked.every,
        seconds=asked.seconds,
        records=asked.records,
        sink_delay=asked.sink_delay,
    )
    clock = SystemClock()
    began = clock.monotonic()
    try:
        experiment = asyncio.run(_observed(plan, out))
    # Whatever ends the comparison is shown in the same way.
    except Exception as error:
        errors.show_error(error)
        return errors.exit_code(error)
    settings = _settings(job, words, asked, experiment)
    settings["took_seconds"] = round(clock.monotonic() - began, 1)
    return _report(experiment, asked, settings, runs)


async def _observed(plan: Plan, out: Console) -> Experiment:
    if not out.is_terminal:
        return await run_experiment(plan, compare_report.Lines(out))
    with compare_report.bars(out) as progress:
        return await run_experiment(plan, compare_report.Bars(progress))


def _settings(
    job: Job, words: Sequence[str], asked: Options, experiment: Experiment
) -> dict[str, Any]:
    from streamcp.compare.child import checkpoint_settings
    from streamcp.compare.messages import RunOrder

    used = checkpoint_settings(job, RunOrder(folder="", mode="aligned", every=asked.every))
    return {
        "job": job.name,
        "words": list(words),
        "order": compare_report.order_in_words(asked.modes),
        "limited_by": f"{asked.records} records" if asked.records else f"{asked.seconds:g} s",
        "records_per_run": sum(experiment.limits.values()),
        "every": str(used.every),
        "alignment_timeout": str(used.alignment_timeout),
        "sink_delay_seconds": asked.sink_delay,
    }


def _report(experiment: Experiment, asked: Options, settings: Mapping[str, Any], runs: Path) -> int:
    from streamcp.compare import picture

    comparison = compare(experiment, asked.modes)
    results = orjson.dumps(
        compare_report.as_json(experiment, comparison, dict(settings)),
        option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS,
    )
    (asked.out / "results.json").write_bytes(results)
    title = (
        f"{settings['job']}: {settings['records_per_run']:,} records per run, "
        f"a checkpoint every {settings['every']}"
    )
    picture.draw(asked.out / "compare.png", experiment, asked.modes, title)
    if comparison.is_right:
        remove_folder(runs)
    if asked.json:
        sys.stdout.buffer.write(results + b"\n")
    else:
        _print(comparison, asked, settings, title, runs)
    return errors.DONE if comparison.is_right else errors.FAILED


def _print(
    comparison: Any, asked: Options, settings: Mapping[str, Any], title: str, runs: Path
) -> None:
    out = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 110)
    out.print(compare_report.table(comparison, title))
    out.print(f"order of the undisturbed runs: {settings['order']}")
    style = "green" if comparison.is_right else "bold red"
    for line in compare_report.conclusion(comparison, str(runs)):
        out.print(line, style=style, soft_wrap=True)
    out.print(
        f"{asked.out / 'results.json'} and {asked.out / 'compare.png'} written; "
        f"all of it took {settings['took_seconds']:.0f} s",
        soft_wrap=True,
    )
