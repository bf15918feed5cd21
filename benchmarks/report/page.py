"""The page: what was measured where, each benchmark's table, its figures; nothing by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.results import Result
from benchmarks.harness.rows import Row
from benchmarks.harness.tables import interval_text, value_text


def write_page(results: Mapping[str, Result], page: Path) -> list[Path]:
    """Write the page, and its figures beside it; gives all files."""
    page.write_text("\n".join(_lines(results)) + "\n", encoding="utf-8")
    return [page]


def _lines(results: Mapping[str, Result]) -> Iterator[str]:
    yield "# Results"
    for machine in _machines(results):
        yield ""
        yield machine
    for result in results.values():
        yield ""
        yield f"## {result.name}"
        yield ""
        yield result.question
        yield ""
        yield from table_lines(result.rows)


def _machines(results: Mapping[str, Result]) -> Iterator[str]:
    """A line per machine, interpreter and commit: mostly one."""
    told = dict.fromkeys(_described(result.machine) for result in results.values())
    yield from told


def _described(machine: Mapping[str, Any]) -> str:
    changed = " with uncommitted changes" if machine.get("changed") else ""
    return (
        f"{machine['cores']} cores of {machine['processor']}, {machine['system']}, "
        f"{machine['implementation']} {machine['python']}, commit `{machine['commit']}`{changed}."
    )


def table_lines(rows: Sequence[Row]) -> Iterator[str]:
    """A table in Markdown."""
    yield "| figure | value | 95 % interval | target | verdict |"
    yield "|---|---:|---|---|---|"
    for row in rows:
        target = "" if row.target is None else str(row.target)
        detail = f"<br>{row.detail}" if row.detail else ""
        cells = (row.name + detail, value_text(row), interval_text(row), target, row.verdict)
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
