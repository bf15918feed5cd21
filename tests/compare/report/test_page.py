"""A report is one file that needs nothing from outside, and holds its data exactly."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any

import orjson
import pytest

from streamcp.checkpoint.snapshot import SubtaskStatistics
from streamcp.checkpoint.statistics import CheckpointStatistics
from streamcp.compare.breakdown import Breakdown
from streamcp.compare.experiment import Experiment
from streamcp.compare.figures import compare
from streamcp.compare.messages import Checkpoint, Ended, Latencies, Running, Sample
from streamcp.compare.report.figures import delays, one_checkpoint, over_time, recovery
from streamcp.compare.report.latencies import latency_figures
from streamcp.compare.report.page import Page, PlainTable
from streamcp.compare.report.sweeps import queue_law, sweep_figures
from streamcp.compare.runs import KilledRun, Life, MeasuredRun
from streamcp.compare.sweep import Point, Sweep
from streamcp.config import EXACTLY_ONCE_MODES, Mode

DELAYS = {"aligned": 0.5, "unaligned": 0.002, "adaptive": 0.003}
SUBTASK = SubtaskStatistics(
    start_delay=0.1, alignment=0.2, sync=0.001, barrier_delay=0.301, end_to_end=0.4
)
HOSTILE = {"text": "</script><script>alert(1)</script><!--", "number": 0.1}


def life_of(mode: Mode, *, queued: int = 40, late: bool = False) -> Life:
    life = Life(started=1.0, first_output=0.1, first_output_age=1.1)
    life.running = Running(1, 0.2, 0)
    life.samples = [Sample(n / 4, 100 * n, 90 * n, queued) for n in range(20)]
    for number in range(1, 4):
        told = CheckpointStatistics(
            checkpoint_id=number,
            outcome="completed",
            mode="aligned" if mode == "aligned" else "unaligned",
            barrier_delay=DELAYS[mode] * number,
            durable_delay=DELAYS[mode] * number + 0.05,
            in_flight_bytes=1000 * number,
        )
        life.checkpoints.append(Checkpoint(float(number), told.as_dict()))
    if late:
        counts = {"50000": 500, "60000": 500}
        life.latencies = Latencies(
            due=counts, given=counts, visible=counts, seconds={"0": counts, "1": counts}
        )
    life.ended = Ended(5.0, {"rows": 2000})
    return life


def experiment_of(
    *, late: bool = False, queued: int = 40, modes: Sequence[Mode] = EXACTLY_ONCE_MODES
) -> Experiment:
    breakdown = Breakdown(2, {"rows[0]": SUBTASK, "out <&>[0]": SUBTASK})
    output = Counter({b"1-out: 1": 1})
    runs = [
        MeasuredRun(mode, life_of(mode, late=late, queued=queued), output, (breakdown,))
        for mode in modes
    ]
    killed = [KilledRun(mode, life_of(mode), life_of(mode), output) for mode in modes]
    reference = life_of("aligned") if late else None
    return Experiment(runs, killed, 0.8 if late else None, reference)


def page_of(experiment: Experiment, data: dict[str, Any]) -> str:
    comparison = compare(experiment, EXACTLY_ONCE_MODES)
    figures = [
        delays(experiment, comparison),
        *latency_figures(experiment, comparison),
        one_checkpoint(experiment, comparison),
        over_time(experiment, comparison),
        recovery(comparison),
    ]
    return Page(
        title="a & b",
        headline=["Half < whole.", "It took 1.5 ms."],
        said=[("all is well", True), ("LOST", False)],
        figures=[one for one in figures if one is not None],
        tables=[PlainTable("Figures", ["x"], [("a", ["1"]), ("", ()), ("  b", ["2"])], "note")],
        method=[("Machine", "this one")],
        limits=["much"],
        data=data,
    ).as_html()


class Reader(HTMLParser):
    """Collects what a page consists of, and refuses tags that do not close."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        if "id" in told:
            self.ids.append(str(told["id"]))
        self.addresses += [str(told[name]) for name in ("href", "src", "action") if name in told]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)


@pytest.mark.parametrize("late", [False, True])
def test_page_is_whole_and_needs_nothing_from_outside(late: bool) -> None:
    page = page_of(experiment_of(late=late), HOSTILE)

    read = Reader(page)

    assert len(read.ids) == len(set(read.ids))
    assert [one for one in read.addresses if not one.startswith("#")] == []
    assert re.findall(r"https?:|//\w|url\((?!#)|@import", page) == []
    assert {"latency", "backlog"} <= set(read.ids) or not late
    assert {"delays", "one-checkpoint", "throughput", "recovery"} <= set(read.ids)


def test_data_in_the_page_is_what_was_given() -> None:
    page = page_of(experiment_of(), HOSTILE)

    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)

    assert orjson.loads(data) == HOSTILE


def test_texts_are_escaped_and_said_where_they_belong() -> None:
    page = page_of(experiment_of(), HOSTILE)

    read = Reader(page)

    assert read.texts["h1"] == ["a & b"]
    assert "Half < whole." in read.texts["p"]
    assert "It took 1.5\N{NO-BREAK SPACE}ms." in read.texts["p"]
    assert '<p class="wrong">LOST</p>' in page
    assert '<p class="right">all is well</p>' in page
    assert '<th scope="row" class="part">b</th><td>2</td>' in page
    assert page.count("<tbody>") == 2


def test_subtasks_of_a_checkpoint_end_their_phases_one_after_the_other() -> None:
    shown = one_checkpoint(experiment_of(), compare(experiment_of(), EXACTLY_ONCE_MODES))

    assert shown is not None
    assert "out <&>[0]" not in shown.chart.wide
    assert "out &lt;&amp;&gt;[0]" in shown.chart.wide
    assert "aligned: checkpoint 2" in shown.chart.wide


def points_of(name: str = "capacity=10,100") -> tuple[Sweep, list[Point]]:
    sweep = Sweep.from_text(name)
    return sweep, [
        Point(value, EXACTLY_ONCE_MODES, experiment_of(queued=int(40 * value.number)))
        for value in sweep.values
    ]


def test_aligned_barrier_is_predicted_from_what_is_queued_and_the_rate() -> None:
    """2,000 records in five seconds: 400 a second."""
    _, points = points_of()

    assert queue_law(points) == [(10.0, 1.0), (100.0, 10.0)]


def test_sweep_of_capacity_shows_delays_and_what_they_cost() -> None:
    sweep, points = points_of()

    shown = sweep_figures(sweep, points, EXACTLY_ONCE_MODES)

    assert [one.chart.name for one in shown] == ["barrier-delay", "durable-delay", "in-flight"]
    assert "predicted for aligned" in shown[0].chart.wide
    assert "predicted" not in shown[1].chart.wide


def test_timeout_is_predicted_by_the_other_modes() -> None:
    sweep = Sweep.from_text("timeout=10ms,1s")
    others = Point(None, ["aligned", "unaligned"], experiment_of(modes=["aligned", "unaligned"]))
    points = [
        others,
        *(Point(value, ["adaptive"], experiment_of(modes=["adaptive"])) for value in sweep.values),
    ]

    shown = sweep_figures(sweep, points, EXACTLY_ONCE_MODES)

    assert "min(aligned, timeout + unaligned)" in shown[0].chart.wide
    assert "start unaligned at once" in shown[0].caption


def test_sweep_of_load_shows_the_highest_percentile_that_all_tell() -> None:
    sweep = Sweep.from_text("load=0.5,0.8")
    points = [Point(value, EXACTLY_ONCE_MODES, experiment_of(late=True)) for value in sweep.values]

    shown = sweep_figures(sweep, points, EXACTLY_ONCE_MODES)

    assert shown[0].chart.title == "Latency (p90) against load, as part of what is sustained"
