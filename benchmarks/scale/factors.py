"""By how much a record takes longer than in the smallest setting, and beside a loop that meets the
same settings: what a processor's caches do not hold costs the loop as well."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.harness import Row, at_most, median_row

LIMIT = at_most(1.5)


@dataclass(frozen=True, slots=True)
class Costs:
    """Nanoseconds of the processor per record, window by window."""

    job: list[float] = field(default_factory=list)
    loop: list[float] = field(default_factory=list)


def cost_row(setting: str, own: Costs, loop: str) -> Row:
    """What a record costs in a setting; `loop` says of what kind the loop is."""
    detail = f"{loop}: {statistics.median(own.loop):,.0f} ns"
    name = f"processor time per record, {setting}"
    return median_row(name, own.job, "ns", detail=detail)


def factor_rows(name: str, own: Costs, base: Costs) -> Sequence[Row]:
    """How much longer a record takes than in the setting `base`, and than the loop explains."""
    raw = [a / b for a, b in zip(own.job, base.job, strict=True)]
    bare = [a / b for a, b in zip(own.loop, base.loop, strict=True)]
    detail = f"the loop's own factor is {statistics.median(bare):.2f}"
    beside = [a / b for a, b in zip(raw, bare, strict=True)]
    return [
        median_row(name, raw, "×", target=LIMIT, detail=detail),
        median_row(f"{name}, beside the loop's own factor", beside, "×", target=LIMIT),
    ]
