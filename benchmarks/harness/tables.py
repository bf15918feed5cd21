"""Rows in the terminal."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.harness.rows import RIGHT, Row

_STYLES = {"met": "green", "missed": "bold red", "undecided": "yellow", "skipped": "dim", "": ""}


def make_console() -> Console:
    """A console that does not fold tables where nobody looks at a terminal."""
    return Console() if sys.stdout.isatty() else Console(width=160)


def table(title: str, rows: Sequence[Row]) -> Table:
    """All rows, with what they are judged by."""
    shown = Table(title=title, title_justify="left")
    for heading in ("figure", "value", "95 % interval", "target", "verdict", "detail"):
        shown.add_column(heading, justify="right" if heading == "value" else "left")
    for row in rows:
        style = _STYLES[row.verdict]
        shown.add_row(
            row.name,
            value_text(row),
            interval_text(row),
            "" if row.target is None else str(row.target),
            f"[{style}]{row.verdict}[/]" if style else "",
            row.detail,
        )
    return shown


def interval_text(row: Row) -> str:
    """The interval of a figure, if it has one."""
    if row.interval is None:
        return ""
    if not all(map(math.isfinite, row.interval)):
        return "too few samples"
    return " … ".join(f"{end:.4g}" for end in row.interval)


def value_text(row: Row) -> str:
    """The value of a figure with its unit; yes or no for what is right or wrong."""
    if row.skipped:
        return ""
    if row.target == RIGHT and not row.unit:
        return "yes" if row.value == 1.0 else "no"
    value = f"{row.value:,.0f}" if abs(row.value) >= 1000 else f"{row.value:.4g}"
    return f"{value} {row.unit}".rstrip()
