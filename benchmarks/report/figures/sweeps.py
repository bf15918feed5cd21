"""Every checkpoint of a sweep as a dot: what was set goes sideward, what it took goes upward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from benchmarks.report.figures.figure import (
    LOOKS,
    Entry,
    Figure,
    Results,
    completed,
    first_number,
)
from streamcp.compare.charts.axis import Axis, duration, number, size
from streamcp.compare.charts.points import Points, Prediction, points_over

BARRIER = Axis("barrier delay: trigger → last subtask has acted", duration, log=True)
IN_FLIGHT = Axis("bytes in flight that the checkpoint holds", size, log=True)
TAKEN = ("aligned", "aligned, small capacity", "unaligned", "adaptive, no prediction")

TRAP = "capacity 100"  # the level of backpressure at which timeouts are compared

X = Callable[[Entry], float]


def by_setting(entry: Entry) -> float:
    """The number that the setting of a checkpoint names."""
    return first_number(entry["setting"])


def sweep(
    name: str,
    title: str,
    benchmark: str,
    axis: Axis,
    *,
    x: X = by_setting,
    y: X = lambda entry: float(entry["barrier_delay"]),
    y_axis: Axis = BARRIER,
    kinds: Sequence[str] = TAKEN,
    laws: Sequence[str] = ("aligned", "unaligned"),
    chosen: Callable[[Entry], bool] = lambda entry: True,
    more: Callable[[Results], Sequence[Points]] = lambda results: (),
) -> Figure:
    """A figure of one workload, with a dashed line per law."""

    def draw(results: Results) -> str:
        entries = [one for one in completed(results, benchmark) if chosen(one)]
        series = [*(_points(entries, kind, x, y) for kind in kinds), *more(results)]
        drawn = points_over(
            name,
            title,
            f"{title}, a dot per checkpoint. Medians: {_medians(series, y_axis)}.",
            [one for one in series if one.points],
            [law for kind in laws for law in _law(entries, kind, x)],
            axis,
            y_axis,
        )
        return drawn.standalone()

    return Figure(title, (benchmark,), draw)


def _points(entries: Iterable[Entry], kind: str, x: X, y: X) -> Points:
    look = LOOKS[kind]
    dots = [(x(one), y(one)) for one in entries if one["mode"] == kind]
    return Points(look.name, look.colour, look.marker, [dot for dot in dots if dot[1] > 0])


def _law(entries: Sequence[Entry], kind: str, x: X) -> list[Prediction]:
    """What `predicted` says at each setting; of aligned ones also where none were taken."""
    told: dict[float, list[float]] = {}
    for one in entries:
        value = one["law"] if kind == "aligned" else one["predicted"]
        if kind == "aligned" or one["mode"] == kind:
            told.setdefault(x(one), []).append(value)
    points = [(at, median(values)) for at, values in sorted(told.items())]
    look = LOOKS[kind]
    return [Prediction(f"{look.name}, by the law", look.colour, points)] if points else []


def _medians(series: Sequence[Points], axis: Axis) -> str:
    return "; ".join(
        f"{one.name}: {', '.join(axis.text(value) for _, value in one.medians())}"
        for one in series
        if one.points
    )


def by_timeout(entry: Entry) -> float:
    """The alignment timeout of a checkpoint, in milliseconds."""
    return 1000 * float(entry["timeout"])


def _trapped(results: Results) -> list[Points]:
    """What a timer that begins with the first barrier would have gained."""
    kept = results["timeout.timeout"].raw["timer from the first barrier"]
    dots = [(by_timeout(one), one["barrier_delay"]) for one in kept if one["setting"] == TRAP]
    return [Points("with a timer from the first barrier (calculated)", "bad", "v", dots)]


SWEEPS = {
    "capacity": sweep(
        "capacity",
        "Barrier delay against the capacity of the channels",
        "capacity.capacity",
        Axis("records per channel", number, log=True),
    ),
    "captured": sweep(
        "captured",
        "What is stored of the queues, against the capacity of the channels",
        "capacity.capacity",
        Axis("records per channel", number, log=True),
        y=lambda entry: float(entry["in_flight_bytes"]),
        y_axis=IN_FLIGHT,
        laws=(),
    ),
    "service_time": sweep(
        "service_time",
        "Barrier delay against the time that a record takes in the sink",
        "service_time.kibibyte",
        Axis("ms per record", number, log=True),
    ),
    "timeout": sweep(
        "timeout",
        "Barrier delay against the alignment timeout",
        "timeout.timeout",
        Axis("alignment timeout, ms", number, log=True),
        x=by_timeout,
        chosen=lambda entry: entry["setting"] == TRAP,
        kinds=("adaptive, no prediction",),
        laws=("adaptive, no prediction",),
        more=_trapped,
    ),
    "skew": sweep(
        "skew",
        "Barrier delay against the share of bids of the hot bidder",
        "skew.skew",
        Axis("hot ratio", lambda share: f"{share:g}"),
        chosen=lambda entry: entry["setting"].startswith("hot"),
        laws=(),
    ),
    "depth": sweep(
        "depth",
        "Barrier delay against the number of exchanges",
        "depth.depth",
        Axis("exchanges before the slow step", number),
    ),
    "position": sweep(
        "position",
        "Barrier delay against the place of the slow step",
        "position.position",
        Axis("the slow step, of four", number),
    ),
}
