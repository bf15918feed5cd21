"""The page: prose of a template, tables and figures of one run, nothing copied by hand.

A line of the template that is a directive is replaced: `<!-- summary -->`, `<!-- machines -->`,
`<!-- raw -->` (the run's file), `<!-- table NAME -->` (a suite, or one benchmark) and
`<!-- figure NAME -->`. What the run has not measured is told, not left out in silence.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.results import Result, with_verdict, write_results
from benchmarks.harness.rows import Row
from benchmarks.harness.tables import interval_text, value_text
from benchmarks.report.figures import FIGURES

_TEMPLATE = Path(__file__).with_name("template.md")
_CHECKOUT = re.compile(r"(?:/[\w.+-]+)+/(?=(?:streamcp|benchmarks)/)")
_TEMPORARY = re.compile(re.escape(tempfile.gettempdir()) + r"/[\w.-]+/")
_FOLDERS = ("json", "home", "peers")  # what says where something is, in options and sizes
_DIRECTIVE = re.compile(r"<!-- (?P<kind>\w+)(?: (?P<name>[\w. -]+?))? -->")

Results = Mapping[str, Result]


def write_page(results: Results, page: Path) -> list[Path]:
    """Write the page, and its figures into a folder beside it; gives all files."""
    writer = _Writer({name: published(result) for name, result in results.items()}, page)
    template = _TEMPLATE.read_text(encoding="utf-8").splitlines()
    lines = [line for one in template for line in writer.lines(one)]
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [page, *writer.written]


def published(result: Result) -> Result:
    """The same without the folders of whoever has measured it."""
    return Result.from_dict(_without_folders(result.as_dict()))


def _without_folders(value: Any) -> Any:
    if isinstance(value, str):
        return _TEMPORARY.sub("…/", _CHECKOUT.sub("", value))
    if isinstance(value, Mapping):
        return {key: _without_folders(one) for key, one in value.items() if key not in _FOLDERS}
    return [_without_folders(one) for one in value] if isinstance(value, list | tuple) else value


class _Writer:
    def __init__(self, results: Results, page: Path) -> None:
        self._results = results
        self._page = page
        self.written: list[Path] = []

    def lines(self, line: str) -> Iterator[str]:
        """What a line of the template becomes."""
        directive = _DIRECTIVE.fullmatch(line)
        if directive is None:
            yield line
            return
        name = directive["name"] or ""
        match directive["kind"]:
            case "machines":
                yield from machine_lines(self._results)
            case "summary":
                yield from summary_lines(self._results)
            case "raw":
                yield from self._raw()
            case "table":
                yield from self._tables(name)
            case "figure":
                yield from self._figure(name)
            case kind:
                raise ValueError(f"{_TEMPLATE.name}: there is no directive {kind!r}: {line}")

    def _raw(self) -> Iterator[str]:
        file = self._folder() / "results.json.gz"
        write_results(file, self._results.values())
        self.written.append(file)
        yield f"[{file.parent.name}/{file.name}]({file.parent.name}/{file.name})"

    def _folder(self) -> Path:
        folder = self._page.with_suffix("")
        folder.mkdir(exist_ok=True)
        return folder

    def _tables(self, name: str) -> Iterator[str]:
        found = [one for one in self._results.values() if one.name == name or suite(one) == name]
        for result in found:
            short = (
                " *Measured in its short form.*" if result.options.get("quick") == "True" else ""
            )
            yield f"**{result.name}**: {result.question}{short}"
            yield ""
            yield from table_lines(result.rows)
            yield ""
        if not found:
            yield f"*`{name}` was not measured in this run.*"

    def _figure(self, name: str) -> Iterator[str]:
        figure = FIGURES[name]
        if any(needed not in self._results for needed in figure.needs):
            yield f"*{figure.title}: {' and '.join(figure.needs)} not measured in this run.*"
            return
        file = self._folder() / f"{name}.svg"
        file.write_text(figure.draw(self._results), encoding="utf-8")
        self.written.append(file)
        yield f"![{figure.title}]({file.parent.name}/{file.name})"


def suite(result: Result) -> str:
    """The suite that a benchmark is of."""
    return result.name.partition(".")[0]


def machine_lines(results: Results) -> Iterator[str]:
    """A line for each machine, and below it one for each commit: what was measured of it."""
    machines: dict[str, dict[str, list[str]]] = {}
    for result in results.values():
        commits = machines.setdefault(_described(result.machine), {})
        commits.setdefault(_commit(result.machine), []).append(result.name)
    for machine, commits in machines.items():
        yield f"- {machine}"
        for commit, names in commits.items():
            told = dict.fromkeys(_told(results[name], results) for name in names)
            yield f"  - commit {commit}: {', '.join(told)}"


def _told(result: Result, results: Results) -> str:
    """A suite, if all that was measured of it is of one commit; else the benchmark."""
    own = suite(result)
    commits = {one.machine["commit"] for one in results.values() if suite(one) == own}
    return own if len(commits) == 1 else result.name


def _described(machine: Mapping[str, Any]) -> str:
    optimised = "" if machine.get("optimised") else " (built without profile-guided optimisation)"
    return (
        f"{machine['cores']} cores of {machine['processor']}, {machine['system']}, "
        f"{machine['file system']}; {machine['implementation']} {machine['python']}{optimised}"
    )


def _commit(machine: Mapping[str, Any]) -> str:
    changed = " with uncommitted changes" if machine.get("changed") else ""
    return f"`{machine['commit']}`{changed}"


def summary_lines(results: Results) -> Iterator[str]:
    """How many targets are met; those that are not, one by one."""
    all_ = results.values()
    met, undecided, missed = (len(with_verdict(all_, v)) for v in ("met", "undecided", "missed"))
    yield (
        f"Of {met + undecided + missed} figures with a target {met} meet it, {missed} miss it, and "
        f"{undecided} are undecided: their interval holds the target."
    )
    for verdict in ("missed", "undecided"):
        for result in all_:
            rows = [row for row in result.rows if row.verdict == verdict]
            if rows:
                yield ""
                yield f"**{verdict}**, `{result.name}`:"
                yield ""
                yield from table_lines(rows)


def table_lines(rows: Sequence[Row]) -> Iterator[str]:
    """A table in Markdown."""
    yield "| figure | value | 95 % interval | target | verdict |"
    yield "|---|---:|---|---|---|"
    for row in rows:
        target = "" if row.target is None else str(row.target)
        detail = f"<br>{row.detail}" if row.detail else ""
        cells = (row.name + detail, value_text(row), interval_text(row), target, row.verdict)
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
