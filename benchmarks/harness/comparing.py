"""Two runs side by side: by how much a figure has changed, and whether that is more than noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from benchmarks.harness.open_loop import UPPER_BOUND
from benchmarks.harness.results import Result
from benchmarks.harness.rows import Row, ratio_of_medians


def compared(before: Mapping[str, Result], after: Mapping[str, Result]) -> Iterator[Row]:
    """A row per figure that both have: after by before, with a bootstrap interval where both have
    samples enough. No target: whether more is better only the figure's own target knows, and its
    verdict is in the detail."""
    for name in (name for name in before if name in after):
        earlier = {row.name: row for row in before[name].rows}
        for row in after[name].rows:
            other = earlier.get(row.name)
            if other is not None and _is_comparable(other, row):
                yield _change(name, other, row)


def _is_comparable(before: Row, after: Row) -> bool:
    values = (before.value, after.value)
    return all(map(math.isfinite, values)) and before.value > 0 and after.value > 0


def _change(benchmark: str, before: Row, after: Row) -> Row:
    name = f"{benchmark}: {after.name}"
    detail = f"{before.value:.4g} → {after.value:.4g} {after.unit}".rstrip()
    if any(row.detail.startswith(UPPER_BOUND) for row in (before, after)):
        detail += f"; {UPPER_BOUND} of what is compared"
    if (before.verdict, after.verdict) != ("", ""):
        detail += f"; {before.verdict or 'no target'} → {after.verdict or 'no target'}"
    if min(before.samples + after.samples, default=0) <= 0:
        return Row(name, after.value / before.value, "×", None, None, detail)
    return ratio_of_medians(name, after.samples, before.samples, detail=detail)
