"""The options of `run`, and those that a job function adds to them.

Commands with options that are known only when a job has been loaded are made from signatures:
`command` gives a function whose signature is a list of parameters, which typer reads.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

import typer

from streamcp.api.parameters import JobOption
from streamcp.config import MODES

# Parameters of job functions may be called like those of the command itself, `job` for example.
_OF_JOB = "of_job_"
# Without it the help shows `--json <bool>`, as if a value were to follow.
NO_VALUE = ""
_CHECKPOINTS, _RUNNING, _SHOWING = "Checkpoints", "Running", "What is shown"
_DURATION, _NUMBER = "DURATION", "N"

# (name, type, metavar, panel, help); all default to "not set": other origins may set them.
_RUN: tuple[tuple[str, Any, str | None, str, str], ...] = (
    ("checkpoints", str, "DIR", _CHECKPOINTS, "Directory that checkpoints go to."),
    ("every", str, _DURATION, _CHECKPOINTS, 'Interval between checkpoints, such as "10s".'),
    ("mode", str, "MODE", _CHECKPOINTS, f"{', '.join(MODES[:-1])} or {MODES[-1]}."),
    (
        "alignment_timeout",
        str,
        _DURATION,
        _CHECKPOINTS,
        "After it an adaptive checkpoint goes on unaligned.",
    ),
    (
        "predict",
        bool,
        None,
        _CHECKPOINTS,
        "Start an adaptive checkpoint unaligned if its alignment would be slow.",
    ),
    ("timeout", str, _DURATION, _CHECKPOINTS, "A checkpoint that takes longer is given up."),
    ("min_pause", str, _DURATION, _CHECKPOINTS, "From the end of a checkpoint to the next."),
    (
        "incremental",
        bool,
        None,
        _CHECKPOINTS,
        "Write only what changed of a large keyed state.",
    ),
    (
        "max_concurrent",
        int,
        _NUMBER,
        _CHECKPOINTS,
        "How many aligned checkpoints may run at a time.",
    ),
    ("retain", int, _NUMBER, _CHECKPOINTS, "How many complete checkpoints are kept."),
    (
        "tolerable_failures",
        int,
        _NUMBER,
        _CHECKPOINTS,
        "How many checkpoints in a row may fail before the job does.",
    ),
    ("max_age", str, _DURATION, _CHECKPOINTS, "An older last checkpoint raises an alarm."),
    ("fail_on_max_age", bool, None, _CHECKPOINTS, "That alarm also fails the job."),
    (
        "max_in_flight_bytes",
        int,
        _NUMBER,
        _CHECKPOINTS,
        "Above this estimate a checkpoint stays aligned.",
    ),
    ("fresh", bool, None, _RUNNING, "Start anew instead of continuing from a checkpoint."),
    (
        "accept_duplicates",
        bool,
        None,
        _RUNNING,
        "Continue from an older checkpoint although later output was committed.",
    ),
    (
        "allow_unmatched_state",
        bool,
        None,
        _RUNNING,
        "Leave behind what a checkpoint holds of steps that are gone.",
    ),
    ("restore", str, "PATH", _RUNNING, "Begin from the savepoint in this directory."),
    ("take_over", bool, None, _RUNNING, "Start although another copy shows life; it is fenced."),
    (
        "restart",
        str,
        "HOW",
        _RUNNING,
        "After a failure: none, fixed_delay, exponential_backoff or failure_rate.",
    ),
    ("channel_capacity", int, _NUMBER, _RUNNING, "Records per channel."),
    (
        "strict",
        bool,
        None,
        _RUNNING,
        "Find records that are changed in place though others have them, and undeclared types.",
    ),
)
# Settings that lie directly in the settings of a run; the others are fields of `checkpoints`.
_OUTSIDE = frozenset(
    {
        "fresh",
        "accept_duplicates",
        "allow_unmatched_state",
        "restore",
        "take_over",
        "restart",
        "channel_capacity",
        "strict",
    }
)
# Called otherwise than their settings: `from` is no name in Python.
_FLAGS = {"restore": "from"}
_JSON = ("json", "Print events and the result as JSON lines to stdout, and nothing else there.")
_QUIET = ("quiet", "Print warnings and errors only.")
_TRACEBACK = ("traceback", "Show errors with the framework's own traceback.")


def run_parameters() -> list[inspect.Parameter]:
    """The options that every job has in `run`."""
    settings = [
        _parameter(name, kind, _option(name, kind, metavar, panel, text))
        for name, kind, metavar, panel, text in _RUN
    ]
    return settings + [switch(*one, panel=_SHOWING) for one in (_JSON, _QUIET, _TRACEBACK)]


def graph_parameters() -> list[inspect.Parameter]:
    """The options of `graph`."""
    switches = (
        ("text", "Print a list, task by task (this is the default)."),
        ("mermaid", "Print a Mermaid flowchart."),
        ("json", "Print steps, tasks and channels as one JSON document."),
        _TRACEBACK,
    )
    return [switch(*one, panel=_SHOWING) for one in switches]


def switch(name: str, text: str, *, panel: str | None = None) -> inspect.Parameter:
    """An option without a value; None if it is not given."""
    flag = f"--{name.replace('_', '-')}"
    option = typer.Option(flag, metavar=NO_VALUE, rich_help_panel=panel, help=text)
    return _parameter(name, bool, option)


def merged(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a command's options; those behind JOB win, but repeatable ones add up."""
    given = {name: value for name, value in after.items() if value is not None}
    both = {
        name: [*before[name], *value]
        for name, value in given.items()
        if isinstance(value, list) and before.get(name)
    }
    return {**before, **given, **both}


def job_parameters(options: Sequence[JobOption]) -> list[inspect.Parameter]:
    """The options that stand for the parameters of a job function, in a group of their own."""
    return [_job_parameter(option) for option in options]


def settings_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run, as `Job.settings` takes them from the command line."""
    given = {name: values.get(name) for name, *_ in _RUN if values.get(name) is not None}
    settings = {name: given.pop(name) for name in _OUTSIDE & given.keys()}
    if "checkpoints" in given:
        given["to"] = given.pop("checkpoints")
    return settings | ({"checkpoints": given} if given else {})


def job_arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the job function: those that were given."""
    return {
        name.removeprefix(_OF_JOB): value
        for name, value in values.items()
        # typer gives an empty list for a repeatable option that is not there
        if name.startswith(_OF_JOB) and value is not None and value != []
    }


def command(
    body: Callable[..., Any], parameters: Sequence[inspect.Parameter], doc: str
) -> Callable[..., Any]:
    """Make a function for typer that has `parameters`, and calls `body` with them by name."""

    def function(**values: Any) -> Any:
        return body(**values)

    function.__doc__ = doc
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {one.name: one.annotation for one in parameters}
    return function


def _parameter(
    name: str, kind: Any, option: Any, *, required: bool = False, multiple: bool = False
) -> inspect.Parameter:
    whole = list[kind] if multiple else kind
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else None,
        annotation=Annotated[whole if required else whole | None, option],
    )


def _option(name: str, kind: Any, metavar: str | None, panel: str, text: str, **more: Any) -> Any:
    dashed = _FLAGS.get(name, name).replace("_", "-")
    both = kind is bool and panel not in (_RUNNING, _SHOWING) and name != "fail_on_max_age"
    flag = f"--{dashed}/--no-{dashed}" if both else f"--{dashed}"
    metavar = NO_VALUE if kind is bool else metavar
    return typer.Option(flag, metavar=metavar, rich_help_panel=panel, help=text, **more)


def _job_parameter(option: JobOption) -> inspect.Parameter:
    multiple = typing.get_origin(option.type) is list
    kind = typing.get_args(option.type)[0] if multiple else option.type
    more: dict[str, Any] = {}
    metavar, parser = _text_form(kind, multiple=multiple)
    if parser is not None:
        more["parser"] = parser
    made = _option(
        option.name,
        kind if parser is None else str,
        metavar,
        "Options of the job",
        _help(option),
        **more,
    )
    name = f"{_OF_JOB}{option.name}"
    return _parameter(name, kind, made, required=option.required, multiple=multiple)


def _help(option: JobOption) -> str:
    """The default stands in brackets behind the text, as in the other options."""
    default = _default(option)
    return f"{option.help} ({default})".strip() if default else option.help


def _default(option: JobOption) -> str:
    default = option.default
    if option.required or default is None:
        return ""
    if isinstance(default, list | tuple):
        return ", ".join(map(_shown, default))
    return _shown(default)


def _shown(value: Any) -> str:
    return str(value.value if isinstance(value, Enum) else value)


def _text_form(kind: Any, *, multiple: bool) -> tuple[str | None, Callable[[str], Any] | None]:
    """How a value of a type that the command line does not know is written and read."""
    if kind is date:
        return "YYYY-MM-DD", _reader("a date like 2024-12-31", date.fromisoformat)
    if kind is bool and multiple:
        return _choice({"true": True, "false": False})
    if typing.get_origin(kind) is Literal:
        return _choice({str(value): value for value in typing.get_args(kind)})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _choice({str(member.value): member for member in kind})
    return None, None


def _choice(choices: Mapping[str, Any]) -> tuple[str, Callable[[str], Any]]:
    return "|".join(choices), _reader(f"one of {', '.join(choices)}", choices.__getitem__)


def _reader(what: str, read: Callable[[str], Any]) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        if not isinstance(text, str):
            return text
        try:
            return read(text)
        except (KeyError, ValueError):
            raise typer.BadParameter(f"{text!r} is not {what}") from None

    return parse
