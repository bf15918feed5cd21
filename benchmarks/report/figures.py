"""Figures of the page, drawn from raw data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.harness.results import Result


@dataclass(frozen=True, slots=True)
class Figure:
    """`draw` gives the text of an SVG file; it `needs` these benchmarks."""

    title: str
    caption: str
    needs: Sequence[str]
    draw: Callable[[Mapping[str, Result]], str]


FIGURES: Final[Mapping[str, Figure]] = {}
