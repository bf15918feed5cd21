"""Figures of the page, drawn from rows and raw data of one run; nothing is measured here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from benchmarks.report.figures.figure import Figure
from benchmarks.report.figures.gantts import GANTT
from benchmarks.report.figures.latency import LATENCIES
from benchmarks.report.figures.ratios import RATIOS
from benchmarks.report.figures.sweeps import SWEEPS

FIGURES: Final[Mapping[str, Figure]] = {
    **SWEEPS,
    **LATENCIES,
    **RATIOS,
    "gantt": GANTT,
}
