"""A chart is clean SVG in both renditions: text as text, named colours, no address, no idle id."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from streamcp.compare.charts import colours
from streamcp.compare.charts.axis import Axis, duration, number, size
from streamcp.compare.charts.bars import Bar, stacked_bars
from streamcp.compare.charts.canvas import legend_places
from streamcp.compare.charts.chart import Chart, cleaned
from streamcp.compare.charts.gantt import Group, Row, gantt
from streamcp.compare.charts.percentiles import Curve, percentile_curves
from streamcp.compare.charts.points import Points, Prediction, points_over
from streamcp.compare.charts.strips import Column, strips
from streamcp.compare.charts.strips import Panel as Strip
from streamcp.compare.charts.timeline import Line, Panel, timeline

SECONDS = Axis("seconds & more", duration, log=True)


def points_chart() -> Chart:
    series = [Points("aligned", "aligned", "o", [(10, 0.01), (10, 0.02), (100, 0.2)])]
    law = [
        Prediction("the law", "ink", [(10, 0.01), (100, 0.1)]),
        Prediction("level", "bad", [(10, 0.3)]),
    ]
    axis = Axis("records per channel", number, log=True)
    return points_over("sweep", "A <title>", "a & b", series, law, axis, SECONDS)


def strips_chart() -> Chart:
    columns = [
        Column("aligned", "aligned", "o", [0.1, 0.2], frozenset({1}), "1 failed"),
        Column("unaligned", "unaligned", "^", []),
    ]
    return strips(
        "strips", "t", "d", [Strip("Delay", SECONDS, columns), Strip("B", SECONDS, columns)]
    )


def gantt_chart() -> Chart:
    rows = [
        Row("a step with a very long name indeed[0]", (0.1, 0.2, 0.2, 0.4)),
        Row("b", (0, 0, 0, 0)),
    ]
    return gantt("gantt", "t", "d", [Group("aligned", "aligned", rows, 0.5)], SECONDS)


def timeline_chart() -> Chart:
    lines = [Line("median", [(0, 0.1), (1, 0.2)]), Line("max", [], "--")]
    return timeline("time", "t", "d", [Panel("aligned", "aligned", lines, [(0.2, 0.9)])], SECONDS)


def percentile_chart() -> Chart:
    curves = [Curve("aligned", "aligned", [(0.0, 0.1), (0.99, 2.0)]), Curve("b", "bad", [], True)]
    return percentile_curves("curves", "t", "d", curves, SECONDS)


def bars_chart() -> Chart:
    bars = [Bar("aligned", "aligned", [0.5, 0.1]), Bar("b", "bad", [None, None], "never")]
    return stacked_bars("bars", "t", "d", ["start", "restore"], bars, SECONDS)


CHARTS = [points_chart, strips_chart, gantt_chart, timeline_chart, percentile_chart, bars_chart]


@pytest.mark.parametrize("make", CHARTS)
def test_chart_is_clean_in_both_renditions(make: type) -> None:
    made: Chart = make()
    page = f"<p>{made.inline()}</p>"

    tree = ElementTree.fromstring(page)

    ids = [one.attrib["id"] for one in tree.iter() if "id" in one.attrib]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', page)) <= set(ids)
    assert [one.attrib["class"] for one in tree] == ["wide", "narrow"]
    assert "http" not in page
    assert "font-family" not in page
    assert re.findall("#[0-9a-f]{6}", page) == []
    assert set(re.findall(r"var\(--(\w+)\)", page)) <= colours.LIGHT.keys()


def test_chart_as_file_brings_its_colours_for_light_and_dark() -> None:
    tree = ElementTree.fromstring(points_chart().standalone())

    texts = [one.text for one in tree.iter() if one.tag.endswith("text")]
    style = next(one.text or "" for one in tree if one.tag.endswith("style"))
    assert tree.tag == "{http://www.w3.org/2000/svg}svg"
    assert "records per channel" in texts
    assert colours.LIGHT["aligned"] in style
    assert colours.DARK["aligned"] in style
    assert "prefers-color-scheme: dark" in style


def test_title_and_description_are_said_to_those_who_cannot_see() -> None:
    wide, _ = ElementTree.fromstring(f"<p>{points_chart().inline()}</p>")

    said = {one.attrib.get("id"): one.text for one in wide}
    label, text = wide.attrib["aria-labelledby"].split()
    assert (said[label], said[text]) == ("A <title>", "a & b")


def test_same_values_give_the_same_text() -> None:
    assert points_chart() == points_chart()


def test_colours_have_different_values() -> None:
    """Each is found again in the text of an SVG by its value."""
    assert len(set(colours.LIGHT.values())) == len(colours.LIGHT)
    assert colours.LIGHT.keys() == colours.DARK.keys()


def test_colour_without_a_name_is_refused() -> None:
    with pytest.raises(KeyError):
        cleaned('<svg><path style="fill: #123456"/></svg>')


def luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("palette", [colours.LIGHT, colours.DARK])
@pytest.mark.parametrize(
    ("name", "ratio"),
    [("ink", 7.0), ("faint", 4.5), ("bad", 4.5)]
    + [(name, 3.0) for name in ("aligned", "unaligned", "adaptive", "without")],
)
def test_contrast_is_what_web_guidelines_ask_for(
    palette: dict[str, str], name: str, ratio: float
) -> None:
    """4.5 for text, 3 for graphics (WCAG 2.2)."""
    light, dark = sorted((luminance(palette[name]), luminance(palette["paper"])), reverse=True)

    assert (light + 0.05) / (dark + 0.05) >= ratio


def test_legend_takes_as_many_lines_as_the_width_asks_for() -> None:
    assert [line for _, line in legend_places(["a" * 10] * 4, 240)] == [0, 0, 1, 1]
    assert [line for _, line in legend_places(["a" * 100] * 2, 240)] == [0, 1]
    assert legend_places([], 240) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0"),
        (1.5e-6, "1.5 µs"),
        (0.00153, "1.5 ms"),
        (0.9996, "1 s"),
        (12.34, "12 s"),
        (0.52, "520 ms"),
    ],
)
def test_duration_has_two_digits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_sizes_and_numbers_have_their_units() -> None:
    assert [size(n) for n in (0, 12, 171_234, 2.5e6, 3e9)] == [
        "0 B",
        "12 B",
        "170 kB",
        "2.5 MB",
        "3 GB",
    ]
    assert [number(n) for n in (0.5, 3, 12_345)] == ["0.5", "3", "12,345"]


def test_texts_of_an_axis_do_not_run_into_each_other() -> None:
    series = [Points("aligned", "aligned", "o", [(at, 0.1) for at in (0.5, 0.9, 0.95, 1, 2)])]
    axis = Axis("load", lambda share: f"load {share:g}")
    drawn = points_over("load", "t", "d", series, [], axis, SECONDS).standalone()

    texts = re.findall(r">(load [\d.]+)<", drawn)
    assert texts == ["load 0.5", "load 0.9", "load 2"]
