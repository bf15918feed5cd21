"""Windows are described rightly, and refused at their line where they cannot work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import streamcp as sc
from streamcp.graph.logical import HashByKey, Node
from streamcp.graph.validation import find_problems
from streamcp.operators.steps import FlatMapStep, WindowStep

Keyed = sc.KeyedStream[int, int]
Minute = sc.WindowedStream[int, int]


@dataclass(frozen=True)
class Pair:
    first: int
    second: int


async def slow(value: int, record: int) -> int:
    return value + record


def keyed(*, watermarks: sc.Watermarks[int] | None = None) -> Keyed:
    given = sc.Watermarks[int](lambda number: number) if watermarks is None else watermarks
    source = sc.Job("w").source(sc.items([1, 2, 3]), name="numbers", watermarks=given)
    return source.key_by(lambda number: number % 2)


def untimed() -> Keyed:
    return sc.Job("w").source(sc.items([1, 2, 3]), name="numbers").key_by(lambda number: number)


def minute(**options: Any) -> Minute:
    return keyed().window(sc.Tumbling("1m"), **options)


def node_of(stream: sc.Stream[Any]) -> Node:
    return stream._connections[0].node


def problems(stream: sc.Stream[Any], *, checkpoints: bool = False) -> list[str]:
    stream.sink(sc.discard(), name="out")
    return list(find_problems(stream._graph, checkpoints=checkpoints))


def test_window_is_one_step_behind_the_exchange_with_its_name_and_parallelism() -> None:
    node = node_of(minute(name="minutes", parallelism=2).count())
    assert isinstance(node.spec, WindowStep)
    assert (node.label, node.verb, node.parallelism) == ("minutes", "window", 2)
    assert isinstance(node.inputs[0].exchange, HashByKey)


def test_two_results_of_one_windowed_stream_are_two_steps() -> None:
    windows = minute()
    first, second = windows.count(), windows.reduce(max)
    assert node_of(first) is not node_of(second)
    assert node_of(first).label != node_of(second).label


def test_late_records_are_a_side_output_of_the_window() -> None:
    counted = minute().count()
    (late,) = counted.late._connections
    assert (late.node, late.output) == (node_of(counted), "side late")


def test_process_is_a_step_behind_the_window_with_options_of_its_own() -> None:
    processed = minute(name="minutes").process(lambda window: window.value, name="records")
    node = node_of(processed)
    assert isinstance(node.spec, FlatMapStep)
    assert (node.label, node.inputs[0].node.label) == ("records", "minutes")
    (late,) = processed.late._connections
    assert (late.node.label, late.output) == ("minutes", "side late")


def test_function_that_makes_one_value_of_several_is_declared_for_snapshots() -> None:
    node = node_of(minute().aggregate(sc.Count(), sc.Sum(lambda number: number), into=Pair))
    assert isinstance(node.spec, WindowStep)
    assert Pair in node.spec.annotated


def any_keyed() -> Any:
    """What a type checker would refuse."""
    return keyed()


def any_minute(**options: Any) -> Any:
    return minute(**options)


REFUSED: list[tuple[Any, str]] = [
    (lambda: any_keyed().window("1m"), r"window\('1m'\): write Tumbling, Sliding"),
    (lambda: any_minute(emit="early"), r"window\(emit='early'\): write early\(every=...\)"),
    (lambda: any_minute(nam="x"), r"window\(\) has no option 'nam'; did you mean 'name'"),
    (lambda: any_minute(parallelism=0), r"window\(parallelism=0\)"),
    (lambda: any_keyed().window(sc.CountWindow(5), allowed_lateness="1s"), "nothing is late"),
    (
        lambda: any_keyed().window(sc.CountWindow(5), emit=sc.early(every="1s")),
        "does not know time",
    ),
    (
        lambda: any_minute().aggregate(sc.Count),
        r"aggregate\(Count\): write Count\(...\)",
    ),
    (lambda: any_minute().aggregate("amount"), r"aggregate\('amount'\): it has no create, add"),
    (
        lambda: any_minute().aggregate(sc.Count(), sc.Count()),
        "of 2 aggregates: write into=",
    ),
    (lambda: any_minute().aggregate(), r"aggregate\(\) of 0 aggregates"),
    (
        lambda: any_minute().aggregate(sc.Count(), sc.Count(), into=lambda one: one),
        r"aggregate\(lambda\) is called as lambda\(Count, Count\)",
    ),
    (lambda: any_minute().fold(0, lambda value, number: value), r"fold\(0\): a function is needed"),
    (lambda: any_minute().fold(int, slow), r"fold\(slow\) is a coroutine function"),
    (
        lambda: any_minute().fold(int, lambda value: value),
        r"lambda\(value, record\), which",
    ),
    (
        lambda: (
            any_keyed().window(sc.Session("5s")).fold(int, lambda value, number: value + number)
        ),
        r"fold\(int, lambda\): the values of Session\(gap='5s'\) are merged of parts; write merge=",
    ),
    (lambda: any_minute().reduce(lambda one: one), r"reduce\(lambda\) is called as"),
    (lambda: any_minute().process(5), r"process\(5\): a function is needed"),
]


@pytest.mark.parametrize(("describe", "message"), REFUSED)
def test_what_cannot_work_is_refused_at_its_line(describe: Any, message: str) -> None:
    with pytest.raises(sc.DefinitionError, match=message):
        describe()


@pytest.mark.parametrize("lateness", [5, "5", "-1s", "0.5ms"])
def test_allowed_lateness_that_is_no_duration_is_refused(lateness: Any) -> None:
    with pytest.raises(sc.SettingsError, match=r"window\(allowed_lateness\)"):
        minute(allowed_lateness=lateness)


@pytest.mark.parametrize("windows", [sc.Tumbling("1m"), sc.Session("1m"), sc.Global()])
def test_window_on_a_stream_without_watermarks_cannot_be_built(windows: sc.Windows) -> None:
    (problem,) = problems(untimed().window(windows, name="minutes").count())
    assert "'minutes'" in problem
    assert "needs event time" in problem
    assert "watermarks=sc.Watermarks(" in problem


def test_windows_that_do_not_ask_for_time_can_be_built_without_watermarks() -> None:
    assert problems(untimed().window(sc.CountWindow(5)).count()) == []
    assert problems(untimed().window(sc.Global(), emit=sc.on_each()).count()) == []


def test_window_needs_a_name_with_checkpoints() -> None:
    (problem,) = problems(minute().count(), checkpoints=True)
    assert "window" in problem
    assert problems(minute(name="minutes").count(), checkpoints=True) == []
