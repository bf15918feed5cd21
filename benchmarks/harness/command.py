"""`python -m benchmarks list | run | compare | report`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.harness.comparing import compared
from benchmarks.harness.results import (
    Result,
    add_results,
    read_results,
    with_verdict,
)
from benchmarks.harness.running import chosen, run_fresh, run_here
from benchmarks.harness.suites import Suite
from benchmarks.harness.tables import make_console, table


def main(suites: Sequence[Suite[Any]], arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit code."""
    parser = _make_parser(suites)
    options = parser.parse_args(arguments)
    console = make_console()
    match options.command:
        case "list":
            return _list(suites, options, console)
        case "run":
            return _run(suites, options, parser, console)
        case "compare":
            return _compare(options, parser, console)
        case _:
            return _report(options, parser, console)


def _make_parser(suites: Sequence[Suite[Any]]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="every benchmark, and what it asks")
    listing.add_argument("--json", action="store_true", help="as JSON")
    _add_run(commands.add_parser("run", help="measure"), suites)
    comparing = commands.add_parser("compare", help="two runs side by side")
    comparing.add_argument("before", type=Path, help="a file written by run --json")
    comparing.add_argument("after", type=Path, help="another one")
    comparing.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    comparing.add_argument("--check", action="store_true", help="exit 1 if a target is missed now")
    reporting = commands.add_parser("report", help="a page with tables and figures, of one run")
    reporting.add_argument("results", type=Path, help="a file written by run --json")
    reporting.add_argument("--to", type=Path, required=True, metavar="FILE", help="the page (.md)")
    return parser


def _add_run(parser: argparse.ArgumentParser, suites: Sequence[Suite[Any]]) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="suite or suite.benchmark; all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every sample there")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is missed")
    parser.add_argument("--quick", action="store_true", help="small sizes; most is undecided")
    parser.add_argument("--seed", type=int, help="replay the random choices of a run")
    parser.add_argument(
        "--here", action="store_true", help="in this process, for a debugger or a profiler"
    )
    for suite in suites:
        suite.add_options(parser)


# ---- list


def _list(suites: Sequence[Suite[Any]], options: argparse.Namespace, console: Console) -> int:
    questions = {f"{suite.name}.{name}": suite.question(name) for suite, name in chosen(suites, ())}
    if options.json:
        print(json.dumps(questions, indent=1, ensure_ascii=False))
        return 0
    shown = Table("benchmark", "question")
    for name, question in questions.items():
        shown.add_row(name, question)
    console.print(shown)
    return 0


# ---- run


def _run(
    suites: Sequence[Suite[Any]],
    options: argparse.Namespace,
    parser: argparse.ArgumentParser,
    console: Console,
) -> int:
    _refuse_unknown(suites, options.names, parser)
    if options.seed is None:
        options.seed = int.from_bytes(os.urandom(4), "big")
    results = []
    for suite, name in chosen(suites, options.names):
        result = _run_one(suite, name, options, console)
        results.append(result)
        if options.json is not None:  # each at once: a run of an hour may be interrupted
            add_results(options.json, [result])
    console.print(f"seed {options.seed}", style="dim")
    _print_ends(results, console)
    missed = with_verdict(results, "missed")
    always = {suite.name for suite in suites if suite.checks_always}
    wrong = any(one.is_wrong() and one.name.partition(".")[0] in always for one in results)
    return 1 if wrong or (missed and options.check) else 0


def _refuse_unknown(
    suites: Sequence[Suite[Any]], names: Sequence[str], parser: argparse.ArgumentParser
) -> None:
    known = {suite.name for suite in suites}
    known |= {f"{suite.name}.{name}" for suite, name in chosen(suites, ())}
    for name in names:
        if name not in known:
            parser.error(f"{name}: no such benchmark; `python -m benchmarks list` has them all")


def _run_one(suite: Suite[Any], name: str, options: argparse.Namespace, console: Console) -> Result:
    if options.here:
        result = run_here(suite, name, options, console)
    else:
        result = run_fresh(suite, name, options)
    console.print(table(f"{result.name}: {result.question}", result.rows))
    return result


def _print_ends(results: Sequence[Result], console: Console) -> None:
    undecided, missed = with_verdict(results, "undecided"), with_verdict(results, "missed")
    if undecided:
        console.print(table("undecided: the interval is too wide to tell", undecided))
    if missed:
        console.print(table("missed", missed))


# ---- compare and report


def _compare(options: argparse.Namespace, parser: argparse.ArgumentParser, console: Console) -> int:
    before, after = (_read(file, parser) for file in (options.before, options.after))
    rows = list(compared(before, after))
    if not rows:
        parser.error(f"{options.before} and {options.after} have no figure in common")
    console.print(table(f"{options.after} / {options.before}", rows))
    if options.json is not None:
        text = json.dumps([row.as_dict() for row in rows], indent=1, ensure_ascii=False)
        options.json.write_text(text + "\n", encoding="utf-8")
    missed = with_verdict(after.values(), "missed")
    if missed:
        console.print(table(f"missed in {options.after}", missed))
    return 1 if missed and options.check else 0


def _read(file: Path, parser: argparse.ArgumentParser) -> dict[str, Result]:
    try:
        return read_results(file)
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser.error(f"{file}: not a file of results, which `run --json` writes: {error!r}")


def _report(options: argparse.Namespace, parser: argparse.ArgumentParser, console: Console) -> int:
    from benchmarks.report.page import write_page  # needs matplotlib, which measuring does not

    for file in write_page(_read(options.results, parser), options.to):
        console.print(f"written: {file}")
    return 0
