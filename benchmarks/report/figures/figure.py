"""What a figure of the page is, and how modes look in all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from benchmarks.harness.results import Result

Results: TypeAlias = Mapping[str, Result]
Entry: TypeAlias = Mapping[str, Any]
"""A checkpoint, as the closed-loop workloads keep it."""


@dataclass(frozen=True, slots=True)
class Figure:
    """`draw` gives the text of an SVG file; it `needs` these benchmarks to be measured."""

    title: str
    needs: Sequence[str]
    draw: Callable[[Results], str]


@dataclass(frozen=True, slots=True)
class Look:
    """A kind of checkpoint, as it is shown."""

    name: str
    colour: str
    marker: str


# By the names of `benchmarks.workloads.taking`.
LOOKS: Final = {
    "aligned": Look("aligned", "aligned", "o"),
    "aligned, small capacity": Look("aligned, capacity 10", "without", "v"),
    "unaligned": Look("unaligned", "unaligned", "^"),
    "adaptive, no prediction": Look("adaptive, no prediction", "adaptive", "s"),
}


def completed(results: Results, benchmark: str) -> list[Entry]:
    """The checkpoints that a closed-loop workload has kept."""
    kept = results[benchmark].raw["checkpoints"]
    return [one for one in kept if one["outcome"] == "completed"]


def first_number(setting: str) -> float:
    """The number in a setting: "capacity 1,000", "0.2 ms per record"."""
    found = re.search(r"\d[\d,]*(?:\.\d+)?", setting)
    assert found is not None, setting
    return float(found[0].replace(",", ""))
