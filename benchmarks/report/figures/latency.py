"""Open loop: how late records are, over all of them and over time, and what a checkpoint adds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from benchmarks.report.figures.figure import Figure, Results
from streamcp.compare.charts.axis import Axis, duration
from streamcp.compare.charts.colours import MARKERS
from streamcp.compare.charts.percentiles import Curve, percentile_curves
from streamcp.compare.charts.points import Points, points_over
from streamcp.compare.charts.timeline import Line, Panel, timeline
from streamcp.compare.histogram import Histogram

SHARE: Final = 0.8  # of the highest load: where the curves are drawn
COLOURS: Final = {
    "none": "without",
    "aligned": "aligned",
    "unaligned": "unaligned",
    "adaptive": "adaptive",
}
_NAMES: Final = {"none": "no checkpoints"}
LATENCY: Final = Axis("latency, from the intended time", duration, log=True)


def _runs(results: Results, benchmark: str) -> list[Mapping[str, Any]]:
    kept: list[Mapping[str, Any]] = results[benchmark].raw["runs"]
    return kept


def _percentiles(results: Results) -> str:
    runs = [one for one in _runs(results, "latency.latency") if one["share"] == SHARE]
    curves = [
        Curve(_NAMES.get(mode, mode), colour, _curve(_buckets(runs, mode)))
        for mode, colour in COLOURS.items()
    ]
    unaligned = [one["naive"] for one in runs if one["mode"] == "unaligned"]
    naive = Curve("unaligned, stamped naively", "unaligned", _curve(unaligned), dashed=True)
    shown = [one for one in [*curves, naive] if one.points]
    told = "; ".join(f"{one.name}: at most {duration(one.points[-1][1])}" for one in shown)
    title = "How late records are at 80 % of the highest load"
    return percentile_curves("latency", title, told, shown, LATENCY).standalone()


def _buckets(runs: Iterable[Mapping[str, Any]], mode: str) -> list[Sequence[tuple[int, int]]]:
    return [second for one in runs if one["mode"] == mode for second in one["seconds"]]


def _curve(histograms: Iterable[Sequence[tuple[int, int]]]) -> list[tuple[float, float]]:
    """That of all together; each has pairs of a bucket and its count."""
    parts = (Histogram(dict(one)) for one in histograms)
    return Histogram.sum(parts).curve()


def _over_time(results: Results) -> str:
    runs = [one for one in _runs(results, "latency.latency") if one["share"] == SHARE]
    first = {one["mode"]: one for one in reversed(runs)}
    panels = [
        Panel(
            _NAMES.get(mode, mode),
            colour,
            [
                _line(first[mode]["slices"], "p99 of each tenth of a second", 2, 1.0),
                _line(first[mode]["slices"], "p50", 1, 0.5),
            ],
            [_span(one) for one in first[mode]["checkpoints"]],
        )
        for mode, colour in COLOURS.items()
        if mode in first
    ]
    title = "Latency over time at 80 % of the highest load"
    told = "A panel per mode; checkpoints are marked."
    return timeline("latency_over_time", title, told, panels, LATENCY).standalone()


def _line(slices: Sequence[Sequence[float]], name: str, column: int, opacity: float) -> Line:
    points = [(one[0], one[column] / 1000) for one in slices if one[column] > 0]
    return Line(name, points, opacity=opacity)


def _span(checkpoint: Mapping[str, Any]) -> tuple[float, float]:
    return checkpoint["at"], checkpoint["at"] + (checkpoint["durable_ms"] or 0.0) / 1000


def _load(results: Results) -> str:
    runs = _runs(results, "load.load")
    series = [
        Points(
            mode,
            COLOURS[mode],
            marker,
            [
                (one["share"], checkpoint["barrier_ms"] / 1000)
                for one in runs
                if one["mode"] == mode
                for checkpoint in one["checkpoints"]
                if checkpoint["outcome"] == "completed"
            ],
        )
        for mode, marker in MARKERS.items()
    ]
    shown = [one for one in series if one.points]
    title = "Barrier delay against the load"
    told = "; ".join(f"{one.name}: {len(one.points)} checkpoints" for one in shown)
    x = Axis("load, as a share of what the sink can do", lambda share: f"{share:g}")
    y = Axis("barrier delay: trigger → last subtask has acted", duration, log=True)
    return points_over("load", title, told, shown, [], x, y).standalone()


def _transient(results: Results) -> str:
    panels = [
        Panel(
            f"timeout {one['timeout']}",
            COLOURS.get(one["timeout"], "adaptive"),
            [
                Line(
                    "each checkpoint",
                    [
                        (taken["at"], taken["barrier_ms"] / 1000)
                        for taken in one["checkpoints"]
                        if taken["outcome"] == "completed" and taken["barrier_ms"] > 0
                    ],
                )
            ],
            [tuple(one["window"])],
        )
        for one in _runs(results, "transient.transient")
    ]
    y = Axis("barrier delay: trigger → last subtask has acted", duration, log=True)
    title = "A sink that is ten times slower for a while"
    told = "A panel per alignment timeout: the barrier delay of each checkpoint over time."
    marked = "the sink is slow, or its backlog not yet worked off"
    return timeline("transient", title, told, panels, y, marked).standalone()


def _failure(results: Results) -> str:
    panels = [
        Panel(
            f"{one['mode']}, a checkpoint every {one['interval']:g} s",
            COLOURS[one["mode"]],
            [
                _line(one["slices"], "p99 of each tenth of a second", 2, 1.0),
                _line(one["slices"], "p50", 1, 0.5),
            ],
            [(one["killed"], one["caught_up"] or one["killed"])],
        )
        for one in _runs(results, "failure.failure")
    ]
    title = "Latency around a kill -9"
    told = "A panel per mode and interval; records go on being due while the job is dead."
    marked = "from the kill until it has caught up"
    return timeline("failure", title, told, panels, LATENCY, marked).standalone()


LATENCIES: Final = {
    "latency": Figure("How late records are", ("latency.latency",), _percentiles),
    "latency_over_time": Figure("Latency over time", ("latency.latency",), _over_time),
    "load": Figure("Barrier delay against the load", ("load.load",), _load),
    "transient": Figure("A sink that is slow for a while", ("transient.transient",), _transient),
    "failure": Figure("Latency around a kill -9", ("failure.failure",), _failure),
}
