"""One checkpoint in each mode, subtask by subtask."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median_low
from typing import Any

from benchmarks.report.figures.figure import LOOKS, Entry, Figure, Results, completed
from streamcp.compare.charts.axis import Axis, duration
from streamcp.compare.charts.gantt import Group, Row, gantt

_BENCHMARK = "capacity.capacity"
_SETTING = "capacity 100"
_PHASES = ("start_delay", "alignment", "sync", "barrier_delay", "end_to_end")
_KINDS = ("aligned", "adaptive, no prediction", "unaligned")


def _draw(results: Results) -> str:
    entries = [one for one in completed(results, _BENCHMARK) if one["setting"] == _SETTING]
    groups = [group for kind in _KINDS for group in _groups(entries, kind)]
    told = "; ".join(f"{one.title}: complete after {duration(one.complete)}" for one in groups)
    title = "One checkpoint in each mode, subtask by subtask"
    return gantt("gantt", title, told, groups, Axis("after the trigger", duration)).standalone()


def _groups(entries: list[Entry], kind: str) -> list[Group]:
    """The checkpoint nearest to the median of those that are told subtask by subtask."""
    taken = [one for one in entries if one["mode"] == kind]
    told = [one for one in taken if one["tasks"]]
    if not told:
        return []
    middle = median_low(one["barrier_delay"] for one in taken)
    chosen = min(told, key=lambda one: abs(one["barrier_delay"] - middle))
    rows = [_row(task) for task in chosen["tasks"]]
    look = LOOKS[kind]
    return [Group(look.name, look.colour, rows, chosen["durable_delay"])]


def _row(task: Mapping[str, Any]) -> Row:
    return Row.of_phases(task["subtask"], **{phase: task[phase] for phase in _PHASES})


GANTT = Figure("One checkpoint in each mode, subtask by subtask", (_BENCHMARK,), _draw)
