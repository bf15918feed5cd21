"""The options of `compare`, and those of its job: they are read alike in the parent and in every
child, from the same words."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from streamcp.api.jobs import Job
from streamcp.api.parameters import JobFactory
from streamcp.cli import options
from streamcp.cli.errors import WrongUse
from streamcp.cli.loading import Loaded, load
from streamcp.config import MODES, Mode, seconds

DEFAULT_JOB = "streamcp.examples.flights"
# All flights: the runs are limited by their time. A service so slow that it holds the job up, not
# the processor: then the modes are compared, and not how busy the machine is.
DEFAULT_ARGUMENTS = ("--limit", "336776", "--latency", "50ms")
DEFAULT_SECONDS = 10.0

_PANEL = "Options of compare"
_OPTIONS: tuple[tuple[str, Any, str, str], ...] = (
    (
        "seconds",
        float,
        "S",
        f"How long the sources of the first run give out records ({DEFAULT_SECONDS:g}). All other "
        "runs read the same records.",
    ),
    ("records", int, "N", "How many records each source gives out, instead of --seconds."),
    ("every", str, "DURATION", "Interval between checkpoints (the job's own, or 1s)."),
    ("modes", str, "MODE,...", f"Which modes, in which order ({','.join(MODES)})."),
    ("sink_delay", str, "DURATION", "How long the stand-in of each sink takes per record (0s)."),
    ("out", Path, "DIR", "Where the results go (./compare-results)."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line asks for."""

    seconds: float
    records: int | None
    every: str | None
    modes: tuple[Mode, ...]
    sink_delay: float
    out: Path
    json: bool


def parameters(taken: Sequence[str] = ()) -> list[inspect.Parameter]:
    """The options of the command; without those whose names are `taken` by the job."""
    made = [_option(name, kind | None, metavar, text) for name, kind, metavar, text in _OPTIONS]
    made.append(_switch("json", "Print the results as JSON to stdout, and nothing else there."))
    return [one for one in made if one.name not in taken]


def _option(name: str, kind: Any, metavar: str, text: str) -> inspect.Parameter:
    flag = f"--{name.replace('_', '-')}"
    option = typer.Option(flag, metavar=metavar, help=text, rich_help_panel=_PANEL)
    return _parameter(name, Annotated[kind, option], None)


def _switch(name: str, text: str) -> inspect.Parameter:
    option = typer.Option(f"--{name}", help=text, rich_help_panel=_PANEL)
    return _parameter(name, Annotated[bool, option], False)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def options_of(values: Mapping[str, Any]) -> Options:
    """Check the values of the options. Raises WrongUse or SettingsError for one that cannot be."""
    if values.get("seconds") is not None and values.get("records") is not None:
        raise WrongUse("--seconds and --records both limit a run; give one of them")
    run_seconds = _or_default(values.get("seconds"), DEFAULT_SECONDS)
    records = values.get("records")
    if run_seconds <= 0 or (records is not None and records < 1):
        raise WrongUse("a run must read something: --seconds and --records are more than zero")
    every = values.get("every")
    if every is not None and seconds(every, setting="--every") <= 0:
        raise WrongUse("--every must be more than zero")
    return Options(
        seconds=run_seconds,
        records=records,
        every=every,
        modes=_modes(_or_default(values.get("modes"), ",".join(MODES))),
        sink_delay=seconds(_or_default(values.get("sink_delay"), "0s"), setting="--sink-delay"),
        out=_or_default(values.get("out"), Path("compare-results")),
        json=bool(values.get("json")),
    )


def _or_default(value: Any, default: Any) -> Any:
    return default if value is None else value


def _modes(text: str) -> tuple[Mode, ...]:
    words = [word.strip() for word in text.split(",")]
    modes = [mode for word in words for mode in MODES if mode == word]
    if len(modes) != len(words) or len(set(modes)) != len(modes):
        raise WrongUse(f"--modes {text}: write some of {','.join(MODES)}, each once")
    return tuple(modes)


def read_arguments(
    target: str, arguments: Sequence[str], before: Mapping[str, Any]
) -> tuple[Loaded, dict[str, Any]]:
    """Load the job, and read what is behind it: its own options, and those of the command that the
    job does not call its own. Those `before` it are the command's; the later ones win.

    Raises what the job's module raises, and typer's own errors (typer.Exit after `--help`)."""
    loaded = load(target)
    own = loaded.options if isinstance(loaded, JobFactory) else ()
    given: dict[str, Any] = {}

    def body(**after: Any) -> None:
        given.update(after)

    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    every = [*options.job_parameters(own), *parameters([option.name for option in own])]
    app.command()(options.command(body, every, f"Compare the checkpoint modes of {target}."))
    app(list(arguments), prog_name=f"streamcp compare {target}", standalone_mode=False)
    if not given:
        raise typer.Exit
    told = {
        name: value for name, value in given.items() if value is not None and value is not False
    }
    return loaded, {**before, **told}


def make_job(loaded: Loaded, values: Mapping[str, Any]) -> Job:
    """Make the job with the arguments that were given."""
    return loaded if isinstance(loaded, Job) else loaded(**options.job_arguments(values))
