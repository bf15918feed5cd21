"""Running benchmarks: each in a fresh process, so that none leaves its garbage to the next."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import multiprocessing
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks.harness.machine import machine
from benchmarks.harness.results import Result
from benchmarks.harness.rows import Row, check
from benchmarks.harness.suites import Run, Suite
from benchmarks.harness.tables import make_console
from streamcp.runners.local import run_blocking

S = TypeVar("S")


def chosen(suites: Sequence[Suite[Any]], names: Sequence[str]) -> Iterator[tuple[Suite[Any], str]]:
    """All benchmarks that are named, by their suite or by `suite.benchmark`; without names, all."""
    for suite in suites:
        for benchmark in suite.benchmarks:
            if not names or suite.name in names or f"{suite.name}.{benchmark}" in names:
                yield suite, benchmark


def run_here(
    suite: Suite[S], benchmark: str, options: argparse.Namespace, console: Console
) -> Result:
    """Run one in this process."""
    sizes = suite.resize(suite.quick if options.quick else suite.full, options)
    started, found = time.perf_counter(), machine()
    raw: dict[str, Any] = {}
    rows = _rows(suite, benchmark, sizes, raw, options.seed, console)
    return Result(
        f"{suite.name}.{benchmark}",
        suite.question(benchmark),
        rows,
        raw,
        _configuration(sizes),
        {key: str(value) for key, value in vars(options).items() if key != "names"},
        found,
        time.perf_counter() - started,
    )


def _configuration(sizes: object) -> dict[str, Any]:
    if dataclasses.is_dataclass(sizes) and not isinstance(sizes, type):
        return dataclasses.asdict(sizes)
    return {"sizes": sizes}


def _rows(
    suite: Suite[S],
    benchmark: str,
    sizes: S,
    raw: dict[str, Any],
    seed: int,
    console: Console,
) -> list[Row]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    name = f"{suite.name}.{benchmark}"
    with Progress(*columns, console=console, transient=True) as progress:
        line = progress.add_task(name)

        def say(text: str) -> None:
            progress.update(line, description=f"{name}: {text}")

        async def measure() -> list[Row]:
            return list(await suite.benchmarks[benchmark](Run(sizes, say, seed, raw)))

        try:
            return run_blocking(measure) if suite.needs_loop else asyncio.run(measure())
        except Exception as error:  # one broken benchmark must not hide the figures of the others
            console.print(traceback.format_exc(), style="red", markup=False)
            return [check(f"{name} ran to its end", False, f"{type(error).__name__}: {error}")]


def run_fresh(suite: Suite[Any], benchmark: str, options: argparse.Namespace) -> Result:
    """Run one in a process of its own.

    Raises BrokenProcessPool if that process ends without a result."""
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=fresh) as process:
        return process.submit(_run_named, suite.name, benchmark, options).result()


def _run_named(suite: str, benchmark: str, options: argparse.Namespace) -> Result:
    from benchmarks.suites import SUITES  # they import this package

    (found,) = (one for one in SUITES if one.name == suite)
    return run_here(found, benchmark, options, make_console())
