"""The options of `simulate`, and what they ask for."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from streamcp.cli import options
from streamcp.cli.errors import WrongUse
from streamcp.testing.simulation.user_jobs import DEFAULT_LIMIT

DEFAULT_SEEDS = 100

_NUMBERS = (
    ("seeds", f"How many seeds to run ({DEFAULT_SEEDS})."),
    ("from_seed", "The first seed (0)."),
    ("replay", "Run this one seed only, and print everything that happens."),
    ("jobs", "How many processes run seeds side by side (one per processor)."),
    ("limit", f"How many records a source without a fake gives out ({DEFAULT_LIMIT})."),
)
_SWITCHES = (
    ("random_jobs", "Simulate jobs that are drawn at random, instead of JOB."),
    ("keep_parallelism", "Never change the parallelism of the steps of JOB at a restart."),
    ("until_fail", "Stop at the first seed that fails."),
    ("json", "Print one JSON document to stdout, and nothing else there."),
    ("traceback", "Show errors with the framework's own traceback."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line asks for."""

    seeds: range
    replay: bool
    until_fail: bool
    jobs: int
    limit: int
    rescale: bool
    json: bool


def parameters() -> list[inspect.Parameter]:
    """The options of the command."""
    return [
        *(_number(name, text) for name, text in _NUMBERS),
        *(options.switch(name, text) for name, text in _SWITCHES),
    ]


def _number(name: str, text: str) -> inspect.Parameter:
    flag = f"--{name.replace('_', '-')}"
    option = typer.Option(flag, metavar="N", help=text)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[int | None, option]
    )


def options_of(values: Mapping[str, Any]) -> Options:
    """Check the values of the options. Raises WrongUse for one that cannot be."""
    seeds, replay = values.get("seeds"), values.get("replay")
    if replay is not None and (seeds is not None or values.get("from_seed") is not None):
        raise WrongUse("--replay runs one seed; leave out --seeds and --from-seed")
    for name in ("seeds", "jobs", "limit"):
        if (value := values.get(name)) is not None and value < 1:
            raise WrongUse(f"--{name} {value}: write 1 or more")
    first = values.get("from_seed") or 0
    count = DEFAULT_SEEDS if seeds is None else seeds
    return Options(
        seeds=range(first, first + count) if replay is None else range(replay, replay + 1),
        replay=replay is not None,
        until_fail=bool(values.get("until_fail")),
        jobs=min(values.get("jobs") or os.cpu_count() or 1, count) if replay is None else 1,
        limit=values.get("limit") or DEFAULT_LIMIT,
        rescale=not values.get("keep_parallelism"),
        json=bool(values.get("json")),
    )
