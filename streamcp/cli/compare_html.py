"""The report of a comparison as a page: what is said around the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamcp.cli.compare_headline import headline, sweep_headline
from streamcp.cli.compare_report import conclusion, order_of, title
from streamcp.cli.compare_rows import (
    LATENCY_COLUMNS,
    LATENCY_NOTE,
    Cells,
    groups_of,
    latency_groups,
)
from streamcp.cli.compare_sweep import (
    COLUMNS,
    latency_rows,
    sweep_conclusion,
    sweep_rows,
    sweep_title,
)
from streamcp.compare.experiment import Experiment
from streamcp.compare.figures import Comparison
from streamcp.compare.report.figures import delays, one_checkpoint, over_time, recovery
from streamcp.compare.report.latencies import latency_figures
from streamcp.compare.report.page import Page, PlainTable
from streamcp.compare.report.sweeps import sweep_figures
from streamcp.compare.sweep import Point, Sweep
from streamcp.config import Mode

_LIMITS = (
    "One machine, few runs: this shows the difference between a millisecond and a second, not one "
    "of five percent. Whatever else ran on the machine shows up in everything.",
    "Sinks are stand-ins that write JSON lines to a local disk, exactly once; the durable delay "
    "holds what this disk takes to sync. That a sync has returned does not say that a loss of "
    "power would be survived.",
    "Samples are a quarter of a second apart: what is read off them is no more exact.",
)
_CLOSED = (
    "Sources gave out as many records as the job took (closed loop). So there is no latency here: "
    "it would only be the length of the queues over the rate.",
)
_OPEN = (
    "Sources and job share one process and its event loop. The clock of a record starts when it "
    "is due, so that hides nothing; but a source that is late because the job holds the loop "
    "counts as latency of the job. How late the sources' own ticks were stands in the table.",
    "Times at which records are due are whole milliseconds: a latency is exact to half a "
    "millisecond and to the third digit, whichever is more.",
    "Latency is that of the records that reach a sink. What is filtered out or only counted has "
    "none; a record that becomes several counts as many times; a list counts as its records. What "
    "is emitted by a timer does not occur: a job with timers gets no stamps.",
)


def page_of(
    experiment: Experiment,
    comparison: Comparison,
    settings: Mapping[str, Any],
    results: Mapping[str, Any],
    kept: str,
) -> Page:
    """Put the report of one comparison together; `kept` says where the files of its runs are."""
    figures = [
        delays(experiment, comparison),
        *latency_figures(experiment, comparison),
        one_checkpoint(experiment, comparison),
        over_time(experiment, comparison),
        recovery(comparison),
    ]
    modes = [mode.mode for mode in comparison.modes]
    tables = [PlainTable("Figures", modes, _in_rows(groups_of(comparison)))]
    latencies = latency_groups(comparison)
    if latencies:
        rows = _in_rows(latencies)
        tables.append(PlainTable("Latency", LATENCY_COLUMNS, rows, f"{LATENCY_NOTE}."))
    return Page(
        title=title(settings),
        headline=headline(comparison, settings["channel_capacity"]),
        said=[(line, comparison.is_right) for line in conclusion(comparison, kept)],
        figures=[one for one in figures if one is not None],
        tables=tables,
        method=[
            *_machine(results["machine"]),
            *_method(settings),
            ("Runs", order_of(settings) + "; then one run per mode killed and started again"),
        ],
        limits=[*(_OPEN if experiment.load else _CLOSED), *_LIMITS],
        data=results,
    )


def sweep_page(
    sweep: Sweep,
    points: Sequence[Point],
    modes: Sequence[Mode],
    settings: Mapping[str, Any],
    results: Mapping[str, Any],
    kept: str,
) -> Page:
    """Put the report of a sweep together."""
    tables = [PlainTable("Figures", COLUMNS, sweep_rows(sweep, points))]
    latencies = latency_rows(sweep, points)
    if latencies:
        note = f"Due → written to a sink; {LATENCY_NOTE}."
        tables.append(PlainTable("Latency", LATENCY_COLUMNS, latencies, note))
    said, right = sweep_conclusion(points, kept)
    is_open = sweep.setting.name == "load"
    return Page(
        title=sweep_title(settings),
        headline=sweep_headline(sweep, points, modes),
        said=[(line, right) for line in said],
        figures=sweep_figures(sweep, points, modes),
        tables=tables,
        method=[
            *_machine(results["machine"]),
            *_method(settings),
            (
                "Runs",
                "at each value every mode once, with the same records; the order of the modes "
                "turns around from one value to the next",
            ),
        ],
        limits=[
            "One run per mode and value, with few checkpoints each: the figures show how the modes "
            "depend on the setting, not a difference of ten percent at one value.",
            *(_OPEN if is_open else _CLOSED),
            *_LIMITS,
        ],
        data=results,
    )


def _in_rows(groups: Sequence[Sequence[Cells]]) -> list[Cells]:
    """The rows of all groups, with an empty one between two."""
    rows: list[Cells] = []
    for number, group in enumerate(groups):
        rows += [("", ())] if number else []
        rows += group
    return rows


def _machine(machine: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        ("Machine", f"{machine['processor']}, {machine['processors']} processors"),
        ("System", machine["system"]),
        ("Versions", f"streamcp {machine['streamcp']}, Python {machine['python']}"),
        ("Date", machine["date"]),
    ]


def _method(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        ("Command", f"streamcp compare {settings['command']}".rstrip()),
        ("Checkpoints", _checkpoints(settings)),
        ("Channels", _channels(settings)),
        ("Load", _load(settings)),
        ("Sinks", _sinks(settings)),
    ]


def _swept(settings: Mapping[str, Any], name: str) -> str:
    """The sweep, if it is of that setting."""
    text = str(settings["sweep"] or "")
    return f"swept: {text}" if text.startswith(f"{name}=") else ""


def _channels(settings: Mapping[str, Any]) -> str:
    return _swept(settings, "capacity") or f"{settings['channel_capacity']:,} records each"


def _checkpoints(settings: Mapping[str, Any]) -> str:
    predict = "with" if settings["predict"] else "without"
    timeout = _swept(settings, "timeout") or settings["alignment_timeout"]
    return (
        f"every {settings['every']}; adaptive mode: alignment timeout {timeout}, {predict} "
        "prediction. Nothing else differs between the modes"
    )


def _load(settings: Mapping[str, Any]) -> str:
    if settings["sustainable"] is None:
        return (
            f"closed loop: the sources of the first run gave out records for "
            f"{settings['limited_by']}, those of all others the same records"
        )
    return (
        "open loop: a run without checkpoints worked off "
        f"{settings['sustainable']:,.0f} records/s. {_part(settings)} of that is given out, by "
        "every source at an even rate, each record due at a time of its own, in ticks of a "
        "millisecond. What the job has no room for waits outside, and its clock runs. Each record "
        "carries the time at which it was due through all steps, as its timestamp; that costs a "
        "few bytes per record in a checkpoint"
    )


def _part(settings: Mapping[str, Any]) -> str:
    load = settings["load"]
    return f"A part ({_swept(settings, 'load')})" if load is None else f"{100 * load:g} %"


def _sinks(settings: Mapping[str, Any]) -> str:
    delay = settings["sink_delay_seconds"]
    slow = f", {1000 * delay:g} ms per record" if delay else ""
    swept = _swept(settings, "service")
    slow = f", time per record {swept}" if swept else slow
    return f"stand-ins that write JSON lines to disk, exactly once{slow}"
