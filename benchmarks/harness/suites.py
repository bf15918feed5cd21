"""What a benchmark is: a question with sizes, answered by rows and raw data."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from benchmarks.harness.rows import Row

S = TypeVar("S")


@dataclass
class Run(Generic[S]):
    """One run of a benchmark: its sizes, and places to say what is going on and to keep what
    figures are drawn from."""

    sizes: S
    say: Callable[[str], None] = lambda text: None
    seed: int = 0
    raw: dict[str, Any] = field(default_factory=dict)

    def keep(self, name: str, value: Any) -> None:
        """Store raw data (JSON values) under `name`, beside the rows."""
        self.raw[name] = value


# Answers one question, which is the first line of its docstring.
Benchmark = Callable[[Run[S]], Awaitable[Sequence[Row]]]


def _no_options(parser: argparse.ArgumentParser) -> None:
    pass


@dataclass
class Suite(Generic[S]):
    """Benchmarks that share their sizes. `add_options` and `resize` add options of its own; with
    `checks_always` what is wrong (`check`) is an error without --check too."""

    name: str
    benchmarks: Mapping[str, Benchmark[S]]
    full: S
    quick: S
    add_options: Callable[[argparse.ArgumentParser], None] = _no_options
    resize: Callable[[S, argparse.Namespace], S] = lambda sizes, options: sizes
    needs_loop: bool = True
    checks_always: bool = False

    def question(self, name: str) -> str:
        """What the benchmark of that name asks."""
        text = (self.benchmarks[name].__doc__ or "").strip()
        return " ".join(text.partition("\n\n")[0].split())
