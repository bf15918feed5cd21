"""Ratios with their intervals: beside the loop, beside the peers, and with checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from benchmarks.harness.rows import Row
from benchmarks.report.figures.intervals import Choice, intervals
from streamcp.compare.charts.axis import Axis


def _times(value: float) -> str:
    return f"{value:,.0f}×" if value >= 100 else f"{value:.3g}×"


TIMES: Final = Axis("ratio, logarithmic", _times, log=True)
SHARE: Final = Axis("share of the loop's speed", lambda value: f"{value:.2f}")
PER_CENT: Final = Axis("per cent of the throughput", lambda value: f"{value:.1f} %")

_WORKLOADS: Final = {
    "stateless": "stateless chain",
    "count": "keyed count",
    "count_with_checkpoints": "keyed count, checkpoints",
    "windows": "tumbling window",
    "calls": "async enrichment",
}


def _named(names: Sequence[str]) -> Callable[[Row], str | None]:
    return lambda row: row.name if row.name in names else None


def _against_peer(workload: str) -> Choice:
    def label(row: Row) -> str | None:
        prefix = "streamcp / "
        if not row.name.startswith(prefix) or "bare" in row.name:
            return None
        return f"{_WORKLOADS[workload]}: {row.name.removeprefix(prefix)}"

    return Choice(f"peers.{workload}", label)


def _lost(row: Row) -> str | None:
    prefix = "throughput lost to a checkpoint "
    if not row.name.startswith(prefix) or "processor" in row.name:
        return None
    return row.name.removeprefix(prefix)


RATIOS: Final = {
    "peers": intervals(
        "peers",
        "How many times as fast as each peer",
        [_against_peer(name) for name in _WORKLOADS],
        TIMES,
    ),
    "loops": intervals(
        "loops",
        "Beside the hand-written loop that calls the same functions",
        [
            Choice("micro.stateless", _named(["map–filter–map / bare loop"])),
            Choice("micro.exchange", _named(["exchange and keyed count / bare loop"])),
            Choice("micro.process", _named(["keyed process / bare loop"])),
            Choice("micro.calls", _named(["async map, ordered / bare pool"])),
        ],
        SHARE,
    ),
    "overhead": intervals(
        "overhead",
        "Throughput lost to checkpoints where nothing waits",
        [Choice("overhead.overhead", _lost)],
        PER_CENT,
    ),
}
