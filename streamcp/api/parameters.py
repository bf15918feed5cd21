"""`@job`: a function that makes a job, whose parameters are options of `streamcp run` (rule 14)."""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any, Generic, Literal, ParamSpec

from streamcp.api.functions import kind_of, name_of
from streamcp.api.jobs import Job
from streamcp.api.places import calling_place
from streamcp.api.settings import RUN_OPTIONS
from streamcp.errors import BuildError, DefinitionError

A = ParamSpec("A")

_SIMPLE = (str, int, float, bool, Path, date)
_ALLOWED = "str, int, float, bool, Path, an Enum, a Literal, date, or a list of one of them"
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class JobOption:
    """A parameter of a job function.

    `type` is its annotation (without `| None`); `default` is None if `required`. `help` is the
    line that the docstring has for it (`name: text`), or empty."""

    name: str
    type: Any
    default: Any
    required: bool
    help: str


class JobFactory(Generic[A]):
    """A job function: call it with its arguments to get the job. Made by `@streamcp.job`.

    `options` are its parameters, in their order."""

    def __init__(self, build: Callable[A, Job], options: tuple[JobOption, ...]) -> None:
        self._build = build
        self.options = options
        functools.update_wrapper(self, build)

    def __call__(self, *args: A.args, **kwargs: A.kwargs) -> Job:
        """Make the job; the function runs anew in every call.

        Raises DefinitionError if it returns something else."""
        made = self._build(*args, **kwargs)
        if not isinstance(made, Job):
            raise DefinitionError(
                f"@job {name_of(self._build)} returned {made!r}; end it with: return job"
            )
        return made


def job(build: Callable[A, Job], /) -> JobFactory[A]:
    """Mark a function that returns a `Job`: its parameters become options of `streamcp run`.

    Parameters have a default or are required; their types are str, int, float, bool, Path, Enum,
    Literal, date, lists of these, or one of these `| None`.
    Raises BuildError with every parameter that cannot be an option."""
    if not callable(build) or kind_of(build) != "plain":
        raise DefinitionError(
            f"@job on {name_of(build)}: write it above a plain function that returns a Job"
        )
    problems: list[str] = []
    hints = _hints(build)
    helps = _helps(build.__doc__ or "")
    options = [
        _option(parameter, hints, helps, problems)
        for parameter in inspect.signature(build).parameters.values()
    ]
    if problems:
        place = calling_place()
        raise BuildError(name_of(build), [f"{place}: {problem}" for problem in problems])
    return JobFactory(build, tuple(options))


def _option(
    parameter: inspect.Parameter,
    hints: dict[str, Any],
    helps: dict[str, str],
    problems: list[str],
) -> JobOption:
    name, required = parameter.name, parameter.default is inspect.Parameter.empty
    default = None if required else parameter.default
    hint = _without_none(hints.get(name, Any if default is None else type(default)))
    problems += _problems(parameter, hint)
    return JobOption(name, hint, default, required, helps.get(name, ""))


def _problems(parameter: inspect.Parameter, hint: Any) -> Iterator[str]:
    if parameter.kind not in _NAMED:
        yield f"the parameter {parameter} has no name of its own, so it cannot be an option"
    elif parameter.name in RUN_OPTIONS:
        yield (
            f"the parameter {parameter.name!r} is called like an option of streamcp run; "
            "give it another name"
        )
    elif not _is_supported(hint):
        yield (
            f"the parameter {parameter.name!r} of type {hint} cannot be an option; "
            f"its type must be {_ALLOWED}"
        )


def _is_supported(hint: Any) -> bool:
    if typing.get_origin(hint) is list:
        return all(_is_single(item) for item in typing.get_args(hint))
    return _is_single(hint)


def _is_single(hint: Any) -> bool:
    is_enum = isinstance(hint, type) and issubclass(hint, Enum)
    return hint in _SIMPLE or is_enum or typing.get_origin(hint) is Literal


def _without_none(hint: Any) -> Any:
    """`int | None` to `int`: an option that is not given is None anyway."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        rest = [item for item in typing.get_args(hint) if item is not type(None)]
        return rest[0] if len(rest) == 1 else hint
    return hint


def _hints(build: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(build)
    except NameError as error:
        raise DefinitionError(
            f"@job {name_of(build)}: a type of its parameters is not known at run time ({error}); "
            "import it outside of TYPE_CHECKING, at the top of the module"
        ) from error


def _helps(docstring: str) -> dict[str, str]:
    """The lines `name: text` of a docstring, with or without a dash before them."""
    found = re.findall(r"^\s*(?:- )?`?(\w+)`?:[ \t]+(\S.*)$", docstring, flags=re.MULTILINE)
    return {name: text.strip() for name, text in found}
