"""What `simulate` prints: how many seeds held, and everything about the first that did not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TextIO

from streamcp.cli import words


@dataclass(frozen=True, slots=True)
class Failure:
    """One case with its trace; `failure` is None for a replayed seed that held."""

    seed: int
    failure: str | None
    case: str
    trace: list[str]
    is_shrunk: bool


@dataclass(slots=True)
class Report:
    """The seeds that were run; `failed` has the failure of each that failed."""

    seeds: int
    seconds: float
    counts: Counter[str]
    failed: dict[int, str]
    shown: Failure | None = None


def print_report(report: Report, stdout: TextIO, what: str) -> None:
    """Print it for people."""
    if report.shown is not None:
        _print_failure(report.shown, stdout)
    held = report.seeds - len(report.failed)
    rate = report.seeds / report.seconds if report.seconds else 0.0
    print(
        f"{words.counted(report.seeds, 'seed')} in {words.duration(report.seconds)} "
        f"({rate:.1f}/s): {held:,} held, {len(report.failed):,} failed",
        file=stdout,
    )
    happened = ", ".join(f"{name} {count:,}" for name, count in report.counts.most_common())
    print(f"what happened: {happened}", file=stdout)
    for seed, failure in report.failed.items():
        print(f"seed {seed} failed: {failure}", file=stdout)
    if report.failed:
        print(f"see it again: streamcp simulate {what} --replay {min(report.failed)}", file=stdout)


def _print_failure(shown: Failure, stdout: TextIO) -> None:
    smaller = ", as small as it gets" if shown.is_shrunk else ""
    print(f"seed {shown.seed}{smaller}:", file=stdout)
    print(shown.case, file=stdout)
    print("\n".join(shown.trace), file=stdout)


def as_json(report: Report, stdout: TextIO) -> None:
    """Print it as one JSON document."""
    shown = report.shown
    words.print_json(
        {
            "seeds": report.seeds,
            "seconds": report.seconds,
            "counts": dict(report.counts),
            "failed": {str(seed): failure for seed, failure in report.failed.items()},
            "shown": shown
            and {
                "seed": shown.seed,
                "failure": shown.failure,
                "case": shown.case,
                "trace": shown.trace,
                "shrunk": shown.is_shrunk,
            },
        },
        stdout,
    )
