"""The options of `compare`, and those of its job: they are read alike in the parent and in every
child, from the same words."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from streamcp.api.jobs import Job
from streamcp.cli import options
from streamcp.cli.errors import WrongUse
from streamcp.cli.job_command import read_arguments
from streamcp.cli.loading import load
from streamcp.compare.sweep import Sweep
from streamcp.config import EXACTLY_ONCE_MODES, Mode, seconds

# All flights, since the runs are limited by their time; and a service that holds the job up by its
# latency rather than by the processor it needs: modes are compared, not how busy the machine is.
# Channels that are drained in a second: an aligned checkpoint waits for that, and so does each run.
DEFAULT_JOB = (
    "streamcp.examples.flights",
    *("--limit", "336776", "--latency", "50ms", "--channel-capacity", "1000"),
)
DEFAULT_SECONDS = 6.0
# Beyond that a run only measures how long it takes to work off what has piled up.
_MOST_LOAD = 2.0
# Which option sets what a sweep sets.
_FIXED = {"capacity": "channel_capacity", "service": "sink_delay", "load": "load"}

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
    ("modes", str, "MODE,...", f"Which modes, in which order ({','.join(EXACTLY_ONCE_MODES)})."),
    ("channel_capacity", int, "N", "Records per channel (the job's own)."),
    ("sink_delay", str, "DURATION", "How long the stand-in of each sink takes per record (0s)."),
    (
        "sweep",
        list[str],
        "NAME=VALUE,...",
        "Compare at each of several values: capacity=10,100,1000 (records per channel), "
        "load=0.5,0.8,1.0, timeout=10ms,100ms,1s (alignment timeout of adaptive mode) or "
        "service=1ms,10ms (--sink-delay). No kills.",
    ),
    (
        "load",
        float,
        "SHARE",
        "Measure latency in an open loop: the sources give out that part of what the job sustains "
        "without checkpoints, whether or not it takes it.",
    ),
    ("html", Path, "FILE", "Write the report there, too (it is in --out)."),
    ("out", Path, "DIR", "Where the results go (./compare-results)."),
)
_SWITCHES = (
    ("json", "Print the results as JSON to stdout, and nothing else there."),
    ("traceback", "Show errors with the framework's own traceback."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line asks for."""

    seconds: float
    records: int | None
    every: str | None
    modes: tuple[Mode, ...]
    channel_capacity: int | None
    sink_delay: float
    sweep: Sweep | None
    load: float | None
    html: Path | None
    out: Path
    json: bool


def default_job(before: Mapping[str, Any]) -> list[str]:
    """The words of the job that is compared where none is named. What was asked of its channels
    replaces what it would have there: words behind a job count more than those before it."""
    sweeps: Sequence[str] = before.get("sweep") or ()
    swept = any(text.partition("=")[0].strip() == "capacity" for text in sweeps)
    if before.get("channel_capacity") is None and not swept:
        return list(DEFAULT_JOB)
    place = DEFAULT_JOB.index("--channel-capacity")
    return [*DEFAULT_JOB[:place], *DEFAULT_JOB[place + 2 :]]


def parameters() -> list[inspect.Parameter]:
    """The options of the command."""
    made = [_option(name, kind | None, metavar, text) for name, kind, metavar, text in _OPTIONS]
    return [*made, *(options.switch(name, text) for name, text in _SWITCHES)]


def _option(name: str, kind: Any, metavar: str, text: str) -> inspect.Parameter:
    flag = f"--{name.replace('_', '-')}"
    option = typer.Option(flag, metavar=metavar, help=text)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
    )


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
    load = _load_of(values.get("load"))
    modes = _modes(_or_default(values.get("modes"), ",".join(EXACTLY_ONCE_MODES)))
    sweep = _sweep_of(values, modes)
    return Options(
        seconds=run_seconds,
        records=records,
        every=every,
        modes=modes,
        channel_capacity=values.get("channel_capacity"),
        sink_delay=seconds(_or_default(values.get("sink_delay"), "0s"), setting="--sink-delay"),
        sweep=sweep,
        load=load,
        html=_file_of(values.get("html")),
        out=_or_default(values.get("out"), Path("compare-results")),
        json=bool(values.get("json")),
    )


def as_typed(before: Mapping[str, Any], words: Sequence[str]) -> str:
    """The words behind `streamcp compare`: options that stood before JOB, JOB, and all behind."""
    typed: list[str] = []
    for name, value in before.items():
        if value is None or value == []:
            continue
        flag = f"--{name.replace('_', '-')}"
        values = value if isinstance(value, list) else [value]
        typed += [flag] if value is True else [part for one in values for part in (flag, str(one))]
    return shlex.join([*typed, *words])


def _or_default(value: Any, default: Any) -> Any:
    return default if value is None else value


def _modes(text: str) -> tuple[Mode, ...]:
    words = [word.strip() for word in text.split(",")]
    modes = [mode for word in words for mode in EXACTLY_ONCE_MODES if mode == word]
    if len(modes) != len(words) or len(set(modes)) != len(modes):
        raise WrongUse(f"--modes {text}: write some of {','.join(EXACTLY_ONCE_MODES)}, each once")
    return tuple(modes)


def _load_of(load: float | None) -> float | None:
    if load is not None and not 0 < load <= _MOST_LOAD:
        raise WrongUse(
            f"--load {load:g}: write the part of what the job sustains that its sources give out, "
            f"such as 0.8; more than 0, at most {_MOST_LOAD:g}"
        )
    return load


def _file_of(html: Path | None) -> Path | None:
    """Known to be writable before minutes are spent on what is to be written."""
    if html is not None and (html.is_dir() or not html.parent.is_dir()):
        raise WrongUse(f"--html {html}: name a file in a directory that exists")
    return html


def _sweep_of(values: Mapping[str, Any], modes: Sequence[Mode]) -> Sweep | None:
    texts: Sequence[str] = values.get("sweep") or ()
    if not texts:
        return None
    if len(texts) > 1:
        raise WrongUse(
            f"--sweep {' --sweep '.join(texts)}: one sweep at a time; run the command once for each"
        )
    sweep = Sweep.from_text(texts[0])
    fixed = _FIXED.get(sweep.setting.name)
    if fixed is not None and values.get(fixed) is not None:
        option = f"--{fixed.replace('_', '-')}"
        raise WrongUse(f"--sweep {texts[0]} and {option} both set it; leave {option} out")
    if values.get("load") is not None and sweep.setting.name != "load":
        raise WrongUse(
            f"--sweep {texts[0]} and --load {values['load']:g}: a sweep of anything but the load "
            "runs as fast as the job can; leave one of them out"
        )
    if sweep.setting.name == "timeout" and "adaptive" not in modes:
        raise WrongUse(
            f"--sweep {texts[0]}: only adaptive mode has an alignment timeout; add it to --modes"
        )
    if sweep.setting.name == "load" and max(one.number for one in sweep.values) > _MOST_LOAD:
        raise WrongUse(f"--sweep {texts[0]}: a load is at most {_MOST_LOAD:g}")
    return sweep


def load_job(target: str, arguments: Sequence[str]) -> tuple[Job, dict[str, Any]]:
    """Load the job and make it with its options among `arguments`; give it, and the options of the
    command among them.

    Raises what the user's module raises, and typer's own errors (typer.Exit after `--help`)."""
    loaded = load(target)
    given = read_arguments(loaded, parameters(), arguments, f"streamcp compare {target}")
    made = loaded if isinstance(loaded, Job) else loaded(**options.job_arguments(given))
    return made, given
