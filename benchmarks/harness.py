"""What all benchmarks share: rows with targets and intervals, paired windows, options, output.

A target is judged by the 95 % interval of the median, never by the median alone: missed if the
interval lies wholly on the wrong side, met if wholly on the right side, else undecided. The
interval is the exact one of order statistics: no assumption about how the noise is distributed,
and none at all from fewer than six values.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from streamcp.runners.local import run_blocking

Verdict = Literal["met", "missed", "undecided", "skipped", ""]
Interval = tuple[float, float]
S = TypeVar("S")
M = TypeVar("M")

_STYLES = {"met": "green", "missed": "bold red", "undecided": "yellow", "skipped": "dim", "": ""}


@dataclass(frozen=True, slots=True)
class Target:
    """The values that are right: from `low` to `high`, both included."""

    low: float = -math.inf
    high: float = math.inf

    def __str__(self) -> str:
        if self.low == self.high:
            return f"= {self.low:g}"
        if math.isinf(self.low):
            return f"≤ {self.high:g}"
        if math.isinf(self.high):
            return f"≥ {self.low:g}"
        return f"{self.low:g} … {self.high:g}"


def at_least(low: float) -> Target:
    """More is better."""
    return Target(low=low)


def at_most(high: float) -> Target:
    """Less is better."""
    return Target(high=high)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. Without an `interval` the value is exact (a count, a maximum)."""

    name: str
    value: float
    unit: str = ""
    interval: Interval | None = None
    target: Target | None = None
    detail: str = ""
    samples: tuple[float, ...] = ()
    skipped: bool = False

    @property
    def verdict(self) -> Verdict:
        """How the figure stands to its target."""
        if self.skipped:
            return "skipped"
        if self.target is None:
            return ""
        low, high = self.interval or (self.value, self.value)
        if self.target.low <= low and high <= self.target.high:
            return "met"
        if high < self.target.low or low > self.target.high:
            return "missed"
        return "undecided"

    def as_dict(self) -> dict[str, Any]:
        """Give the figure as JSON values; infinite ends are left out."""
        target = self.target
        return {
            "name": self.name,
            "value": _finite(self.value),
            "unit": self.unit,
            "interval": [_finite(end) for end in self.interval] if self.interval else None,
            "target": [_finite(target.low), _finite(target.high)] if target else None,
            "verdict": self.verdict,
            "detail": self.detail,
            "samples": list(self.samples),
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def median_row(
    name: str,
    samples: Sequence[float],
    unit: str = "",
    *,
    target: Target | None = None,
    detail: str = "",
) -> Row:
    """The median of `samples`, with its interval."""
    return Row(
        name,
        statistics.median(samples),
        unit,
        median_interval(samples),
        target,
        detail,
        tuple(samples),
    )


def check(name: str, passed: bool, detail: str = "") -> Row:
    """Something that is right or wrong: 1 or 0."""
    return Row(name, float(passed), "", None, Target(1.0, 1.0), detail)


def skipped(name: str, reason: str) -> Row:
    """Something that this machine cannot show, and why."""
    return Row(name, math.nan, detail=reason, skipped=True)


def median_interval(samples: Sequence[float]) -> Interval:
    """The exact 95 % interval of the median by order statistics; unbounded below six samples."""
    ordered, n = sorted(samples), len(samples)
    outside, rank = 0.0, 0
    while True:
        outside += math.comb(n, rank) / 2**n
        if 2 * outside > 0.05:
            break
        rank += 1
    if rank == 0:
        return (-math.inf, math.inf)
    return ordered[rank - 1], ordered[n - rank]


async def paired(
    floor: Callable[[], Awaitable[M]],
    subject: Callable[[], Awaitable[M]],
    rounds: int,
) -> list[tuple[M, M]]:
    """Measure both in turn, `rounds` times, after one unmeasured turn; the order changes each
    round, so that a drift of the machine's speed hits both alike."""
    await floor()
    await subject()
    pairs = []
    for number in range(rounds):
        if number % 2:
            of_subject = await subject()
            pairs.append((await floor(), of_subject))
        else:
            of_floor = await floor()
            pairs.append((of_floor, await subject()))
    return pairs


@dataclass(frozen=True, slots=True)
class Seconds:
    """How long something took: by the clock, and of the processor's time of this process. The
    latter leaves out what other processes took, but also every moment of waiting."""

    clock: float
    processor: float


async def timed(run: Callable[[], Awaitable[object]]) -> Seconds:
    """Measure a coroutine."""
    started, used = time.perf_counter(), time.process_time()
    await run()
    return Seconds(time.perf_counter() - started, time.process_time() - used)


def fsync_time(data: bytes, folder: Path) -> float:
    """Seconds to write `data` to a new file in `folder` plainly, and fsync it."""
    file = folder / "plain-write"
    started = time.perf_counter()
    with open(file, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    seconds = time.perf_counter() - started
    file.unlink()
    return seconds


# ---- suites

Benchmark = Callable[["Run[S]"], Awaitable[Sequence[Row]]]


@dataclass
class Run(Generic[S]):
    """One run of a benchmark: its sizes, and a place to say what is going on."""

    sizes: S
    say: Callable[[str], None] = lambda text: None
    seed: int = 0


@dataclass
class Suite(Generic[S]):
    """Benchmarks that share their sizes. `add_options` and `resize` add options of its own; with
    `checks_always` what is wrong (`check`) is an error without --check too."""

    name: str
    benchmarks: Mapping[str, Benchmark[S]]
    full: S
    quick: S
    add_options: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    resize: Callable[[S, argparse.Namespace], S] = lambda sizes, options: sizes
    needs_loop: bool = True
    checks_always: bool = False


@dataclass
class Report:
    """The rows of one suite, by benchmark."""

    suite: str
    checks_always: bool = False
    rows: dict[str, list[Row]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def with_verdict(self, verdict: Verdict) -> list[Row]:
        """All rows that are judged so."""
        return [row for rows in self.rows.values() for row in rows if row.verdict == verdict]

    def is_wrong(self) -> bool:
        """Tell whether something is wrong, however fast it is."""
        return any(row.target == Target(1.0, 1.0) for row in self.with_verdict("missed"))


def parse(suites: Sequence[Suite[Any]], arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the options, which all benchmarks have in common."""
    names = [f"{suite.name}.{name}" for suite in suites for name in suite.benchmarks]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"benchmarks: {', '.join(name.partition('.')[2] for name in names)}",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every sample there")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is missed")
    parser.add_argument("--quick", action="store_true", help="small sizes; most is undecided")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="only benchmarks of that name, repeatable"
    )
    parser.add_argument("--seed", type=int, help="replay the random choices of a run")
    for suite in suites:
        suite.add_options(parser)
    options = parser.parse_args(arguments)
    known = {name.partition(".")[2] for name in names}
    for name in options.only or ():
        if name not in known:
            parser.error(f"--only {name}: there is no such benchmark; choose of {sorted(known)}")
    if options.seed is None:
        options.seed = int.from_bytes(os.urandom(4), "big")
    return options


def main(suites: Sequence[Suite[Any]], arguments: Sequence[str] | None = None) -> int:
    """Run suites as the command line says; return the exit code."""
    options = parse(suites, arguments)
    console = Console() if sys.stdout.isatty() else Console(width=160)
    reports = [report for suite in suites if (report := _run(suite, options, console)) is not None]
    if options.json is not None:
        _write_json(options.json, reports, options)
    missed = [row for report in reports for row in report.with_verdict("missed")]
    undecided = [row for report in reports for row in report.with_verdict("undecided")]
    console.print(f"seed {options.seed}", style="dim")
    if undecided:
        console.print(_table("undecided: the interval is too wide to tell", undecided))
    if missed:
        console.print(_table("missed", missed))
    wrong = any(report.checks_always and report.is_wrong() for report in reports)
    return 1 if wrong or (missed and options.check) else 0


def _run(suite: Suite[S], options: argparse.Namespace, console: Console) -> Report | None:
    """Run one suite and print its tables."""
    chosen = {
        name: benchmark
        for name, benchmark in suite.benchmarks.items()
        if not options.only or name in options.only
    }
    if not chosen:
        return None
    sizes = suite.resize(suite.quick if options.quick else suite.full, options)
    report = Report(suite.name, suite.checks_always)
    for name, benchmark in chosen.items():
        started = time.perf_counter()
        report.rows[name] = _run_one(name, benchmark, sizes, options.seed, console, suite)
        report.seconds[name] = time.perf_counter() - started
        console.print(_table(f"{suite.name}: {name}", report.rows[name]))
        sys.stdout.flush()
    return report


def _run_one(
    name: str,
    benchmark: Benchmark[S],
    sizes: S,
    seed: int,
    console: Console,
    suite: Suite[S],
) -> list[Row]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        line = progress.add_task(name)
        run = Run(sizes, lambda text: progress.update(line, description=f"{name}: {text}"), seed)

        async def measure() -> list[Row]:
            return list(await benchmark(run))

        try:
            return run_blocking(measure) if suite.needs_loop else asyncio.run(measure())
        except Exception as error:  # one broken benchmark must not hide the figures of the others
            console.print(traceback.format_exc(), style="red")
            return [check(f"{name} ran to its end", False, f"{type(error).__name__}: {error}")]


def _table(title: str, rows: Sequence[Row]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in ("figure", "value", "95 % interval", "target", "verdict", "detail"):
        table.add_column(heading, justify="right" if heading == "value" else "left")
    for row in rows:
        style = _STYLES[row.verdict]
        table.add_row(
            row.name,
            _text(row),
            "" if row.interval is None else " … ".join(f"{end:.4g}" for end in row.interval),
            "" if row.target is None else str(row.target),
            f"[{style}]{row.verdict}[/]" if style else "",
            row.detail,
        )
    return table


def _text(row: Row) -> str:
    if row.skipped:
        return ""
    if row.target == Target(1.0, 1.0) and not row.unit:
        return "yes" if row.value == 1.0 else "no"
    value = f"{row.value:,.0f}" if abs(row.value) >= 1000 else f"{row.value:.4g}"
    return f"{value} {row.unit}".rstrip()


def _write_json(file: Path, reports: Sequence[Report], options: argparse.Namespace) -> None:
    content = {
        "machine": machine(),
        "options": {key: str(value) for key, value in vars(options).items()},
        "suites": [
            {
                "suite": report.suite,
                "benchmark": name,
                "seconds": report.seconds[name],
                "rows": [row.as_dict() for row in rows],
            }
            for report in reports
            for name, rows in report.rows.items()
        ],
    }
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def machine() -> dict[str, Any]:
    """What a reader must know of the machine and the checkout to repeat a run."""
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "commit": _commit(),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _commit() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return found.stdout.strip() or None
