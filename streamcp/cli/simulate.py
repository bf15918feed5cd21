"""`streamcp simulate`: a job, or many random ones, under drawn schedules, crashes and faults."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, redirect_stdout
from functools import lru_cache, partial
from typing import Any, TextIO

import typer

from streamcp.api.jobs import Job
from streamcp.cli import errors, options, simulate_options
from streamcp.cli.errors import WrongUse
from streamcp.cli.job_command import first_parameters, read_arguments
from streamcp.cli.loading import load
from streamcp.cli.simulate_options import Options
from streamcp.cli.simulate_report import Failure, Report, as_json, print_report
from streamcp.clock import SystemClock
from streamcp.errors import StreamcpError
from streamcp.testing.simulation.invariants import Violation
from streamcp.testing.simulation.run import Case, Outcome, draw_case, run_case, run_seed
from streamcp.testing.simulation.seeds import Run, run_seeds
from streamcp.testing.simulation.shrink import shrink
from streamcp.testing.simulation.trace import Trace
from streamcp.testing.simulation.user_jobs import UserJob, draw_user_case, learn_output

_DOC = "\n\n".join(
    (
        "Run a job many times in a simulated world: virtual time, drawn schedules, crashes at any "
        "moment, failing functions, targets and disks. Each run is a function of its seed.",
        "The sinks of JOB are replaced by ones that record, its sources and services by the fakes "
        "that Job(fakes=...) names. The output of every run is compared with that of an "
        "undisturbed one. With --random-jobs the jobs are drawn as well, and computed in plain "
        "Python.",
        "Exits with 1 if a seed fails, and prints the smallest case found that fails alike, and "
        "everything that happened in it.",
    )
)


def simulate_command() -> Any:
    """The command as it is before the job is known."""
    parameters = [*first_parameters(optional=True), *simulate_options.parameters()]
    return options.command(_simulate, parameters, _DOC)


def _simulate(context: typer.Context, job: str | None, **before: Any) -> None:
    stdout = sys.stdout
    words = (job, *context.args) if job else ()
    whole = before["traceback"] or "--traceback" in words
    with redirect_stdout(sys.stderr if before["json"] or "--json" in words else stdout):
        given = _load(words)[1] if words else {}
        with errors.shown(whole=whole):
            values = options.merged(before, given)
            _check_choice(job, values)
            code = _run(words, simulate_options.options_of(values), stdout)
    raise typer.Exit(code)


def _check_choice(job: str | None, values: dict[str, Any]) -> None:
    if (job is None) != bool(values["random_jobs"]):
        raise WrongUse(
            "write the JOB to be simulated, or --random-jobs"
            if job is None
            else f"{job} and --random-jobs are two different things; leave one out"
        )


@lru_cache(maxsize=1)
def _load(words: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """What makes the job that the words name, and the options of the command among them."""
    with errors.shown(whole="--traceback" in words, code=errors.WRONG_USE):
        loaded = load(words[0])
    given = read_arguments(
        loaded, simulate_options.parameters(), words[1:], f"streamcp simulate {words[0]}"
    )
    if isinstance(loaded, Job):
        return (lambda: loaded), given
    return partial(loaded, **options.job_arguments(given)), given


@lru_cache(maxsize=1)
def _subject(words: Sequence[str], limit: int, rescale: bool) -> UserJob:
    """The user's job, and what an undisturbed run of it puts out."""
    subject = UserJob(_load(words)[0], limit=limit, rescale=rescale)
    try:
        learn_output(subject)
    except Violation as error:  # what the job does, and no invariant of the framework
        raise StreamcpError(str(error)) from None
    return subject


def _user_case(words: Sequence[str], limit: int, rescale: bool, seed: int) -> Case:
    return draw_user_case(_subject(words, limit, rescale), seed)


def _run_user_seed(words: Sequence[str], limit: int, rescale: bool, seed: int) -> Outcome:
    """In whichever process: the job is loaded there."""
    return run_case(_user_case(words, limit, rescale, seed))


def _run(words: Sequence[str], asked: Options, stdout: TextIO) -> int:
    run: Run = run_seed
    if words:
        _subject(words, asked.limit, asked.rescale)  # what is wrong with the job shows here, once
        run = partial(_run_user_seed, words, asked.limit, asked.rescale)
    clock = SystemClock()
    started, counts, failed = clock.monotonic(), Counter[str](), dict[int, str]()
    with closing(run_seeds(run, asked.seeds, jobs=asked.jobs)) as results:
        ran = 0
        for result in results:
            ran += 1
            counts += result.outcome.counts
            if result.outcome.failure is not None:
                failed[result.seed] = result.outcome.failure
                # At once: making the case smaller may take minutes.
                print(f"seed {result.seed} failed: {result.outcome.failure}", file=sys.stderr)
                if asked.until_fail:
                    break
    report = Report(ran, clock.monotonic() - started, counts, failed)
    report.shown = _shown(words, asked, failed)
    if asked.json:
        as_json(report, stdout)
    else:
        print_report(report, stdout, words[0] if words else "--random-jobs")
    return errors.FAILED if failed else errors.DONE


def _shown(words: Sequence[str], asked: Options, failed: dict[int, str]) -> Failure | None:
    """The first failure, made smaller, or the seed that is to be replayed, as it is."""
    if not failed and not asked.replay:
        return None
    seed = min(failed, default=asked.seeds[0])
    case = draw_case(seed)
    if words:
        case = _user_case(words, asked.limit, asked.rescale, seed)
    if not asked.replay:
        case = shrink(case, lambda smaller: run_case(smaller).failure is not None)
    trace = Trace()
    outcome = run_case(case, trace)
    return Failure(seed, outcome.failure, str(case), trace.lines, is_shrunk=not asked.replay)
