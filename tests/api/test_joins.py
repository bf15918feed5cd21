"""Joins are described rightly, and refused where they cannot work: at their line or the build."""

from __future__ import annotations

from typing import Any

import pytest

import streamcp as sc
from streamcp.graph.logical import HashByKey, Node
from streamcp.graph.validation import find_problems
from streamcp.operators.steps import JoinStep

Keyed = sc.KeyedStream[int, int]


def inputs(*, left_timed: bool = True, right_timed: bool = True) -> tuple[Any, Any]:
    """Two keyed streams, as a type checker would not let them be joined wrongly."""
    job = sc.Job("j")
    times = sc.Watermarks[int](lambda number: number)
    left, right = (
        job.source(sc.items([1, 2, 3]), name=name, watermarks=times if timed else None)
        for name, timed in (("left", left_timed), ("right", right_timed))
    )
    return left.key_by(lambda number: number % 2), right.key_by(lambda number: number % 2)


def add(left: int, right: int) -> int:
    return left + right


async def slow(left: int, right: int) -> int:
    return left + right


def node_of(stream: sc.Stream[Any]) -> Node:
    return stream._connections[0].node


def problems(stream: sc.Stream[Any], *, checkpoints: bool = False) -> list[str]:
    stream.sink(sc.discard(), name="out")
    return list(find_problems(stream._graph, checkpoints=checkpoints))


def test_join_is_one_step_behind_both_exchanges_with_its_name_and_parallelism() -> None:
    left, right = inputs()
    node = node_of(left.join(right, add, before="1s", name="sums", parallelism=2))
    assert isinstance(node.spec, JoinStep)
    assert (node.label, node.verb, node.parallelism) == ("sums", "join", 2)
    assert [(one.node.label, one.port) for one in node.inputs] == [("left", 0), ("right", 1)]
    assert all(isinstance(one.exchange, HashByKey) for one in node.inputs)


def test_function_of_a_join_is_declared_for_snapshots() -> None:
    left, right = inputs()
    spec = node_of(left.join(right, add, before="1s")).spec
    assert isinstance(spec, JoinStep)
    assert spec.annotated == (add,)


def test_late_records_are_a_side_output_of_the_join() -> None:
    left, right = inputs()
    joined = left.join(right, add, after="1s")
    (late,) = joined.late._connections
    assert (late.node, late.output) == (node_of(joined), "side late")


REFUSED: list[tuple[Any, str]] = [
    (lambda a, b: a.join(b, add), r"join\(add\): only records of the same millisecond would meet"),
    (lambda a, b: a.join(b, add, before="0s", after="0s"), 'before="5m"'),
    (lambda a, b: a.join(b, add, before="1s", how="both"), "choose one of inner, left, right, o"),
    (lambda a, b: a.join(b, add, before="1s", nam="x"), r"join\(\) has no option 'nam'; did you m"),
    (lambda a, b: a.join(b, add, before="1s", concurrency=3), "no option 'concurrency'"),
    (lambda a, b: a.join(b, slow, before="1s"), r"join\(slow\) is a coroutine function"),
    (lambda a, b: a.join(b, abs, before="1s"), r"called as abs\(left, right\)"),
    (lambda a, b: a.join(b, 5, before="1s"), r"join\(5\): a function is needed"),
    (
        lambda a, b: a.join(b.filter(bool), add, before="1s"),
        r"join\(Step\): give it the same kind of key: other.key_by",
    ),
    (
        lambda a, b: a.join(b.window(sc.Tumbling("1m")), add, before="1s"),
        r"join\(WindowedStream\): the windows are said once",
    ),
    (lambda a, b: a.join("b", add, before="1s"), r"join\(str\): only another keyed stream"),
    (
        lambda a, b: a.join_asof(b, add, how="right"),
        r"join_asof\(how='right'\): choose one of inner",
    ),
    (lambda a, b: a.join_asof(b.map(abs), add), r"join_asof\(Step\): give it the same kind of key"),
    (lambda a, b: a.join_asof(b, slow), r"join_asof\(slow\) is a coroutine function"),
    (
        lambda a, b: a.window(sc.CountWindow(5)).join(b, add),
        r"window\(CountWindow.*\).join\(...\): which records of two streams",
    ),
    (
        lambda a, b: a.window(sc.Tumbling("1m"), emit=sc.on_each()).join(b, add),
        r"emit=...\).join\(...\): the pairs of a window are emitted once",
    ),
    (
        lambda a, b: a.window(sc.Tumbling("1m"), allowed_lateness="1s").join(b, add),
        r"allowed_lateness=...\).join\(...\): .* leave it out, and read .late",
    ),
    (lambda a, b: minute(a).join(minute(b), add), r"join\(WindowedStream\): the windows are said"),
    (lambda a, b: minute(a).join(b, add, how="full"), r"join\(how='full'\)"),
    (lambda a, b: minute(a).count().top(0, by=abs), r"top\(0\): write a number of results"),
    (lambda a, b: minute(a).count().top(3, by=slow), r"top\(slow\) is a coroutine function"),
    (lambda a, b: minute(a).count().top(3, by=add), r"called as add\(result\)"),
    (lambda a, b: minute(a).count().top(3, by=abs, per=add), r"called as add\(result\)"),
    (lambda a, b: minute(a).count().top(3, by=abs, nam="x"), "did you mean 'name'"),
    (
        lambda a, b: a.window(sc.Session("1m")).count().top(3, by=abs),
        r"top\(3\) of Session\(gap='1m'\): each key has windows of its own",
    ),
]


def minute(keyed: Any) -> Any:
    return keyed.window(sc.Tumbling("1m"))


@pytest.mark.parametrize(("describe", "message"), REFUSED)
def test_what_cannot_work_is_refused_at_its_line(describe: Any, message: str) -> None:
    with pytest.raises(sc.DefinitionError, match=message):
        describe(*inputs())


@pytest.mark.parametrize("setting", ["before", "after"])
@pytest.mark.parametrize("value", ["-1s", 5, "0.5ms", "5"])
def test_bound_that_is_no_duration_is_refused(setting: str, value: Any) -> None:
    left, right = inputs()
    with pytest.raises(sc.SettingsError, match=rf"join\({setting}\)"):
        left.join(right, add, **{setting: value})


def test_join_of_streams_without_watermarks_cannot_be_built() -> None:
    left, right = inputs(left_timed=False, right_timed=False)
    (problem,) = problems(left.join(right, add, before="1s", name="sums"))
    assert "join 'sums'" in problem
    assert "needs event time" in problem
    assert "watermarks=sc.Watermarks(" in problem


def test_join_with_one_stream_without_watermarks_names_it() -> None:
    left, right = inputs(right_timed=False)
    (problem,) = problems(left.join(right, add, before="1s", name="sums"))
    assert "source 'right'" in problem
    assert "give the source of the latter watermarks=" in problem


def test_join_needs_a_name_with_checkpoints_and_gets_one_proposed() -> None:
    left, right = inputs()
    (problem,) = problems(left.join(right, add, before="1s"), checkpoints=True)
    assert 'write join(…, name="join")' in problem


@pytest.mark.parametrize("value", ["-1s", 5, "0.5ms"])
def test_tolerance_that_is_no_duration_is_refused(value: Any) -> None:
    left, right = inputs()
    with pytest.raises(sc.SettingsError, match=r"join_asof\(tolerance\)"):
        left.join_asof(right, add, tolerance=value)


def test_asof_join_is_a_step_of_its_own_word() -> None:
    left, right = inputs(left_timed=False, right_timed=False)
    (problem,) = problems(left.join_asof(right, add, name="newest"))
    assert "join_asof 'newest'" in problem


def test_join_of_windows_has_the_options_of_both_and_can_be_ranked() -> None:
    left, right = inputs()
    joined = left.window(sc.Tumbling("1m"), parallelism=2).join(right, add, name="sums")
    assert (node_of(joined).label, node_of(joined).parallelism) == ("sums", 2)
    top = joined.top(3, by=lambda result: result.value, name="top")
    assert (node_of(top).verb, node_of(top).inputs[0].node) == ("top", node_of(joined))


def test_best_of_windows_without_event_time_cannot_be_built() -> None:
    left, _ = inputs(left_timed=False)
    counts = left.window(sc.Global(), emit=sc.on_each(), name="all").count()
    (problem,) = problems(counts.top(3, by=lambda result: result.value, name="top"))
    assert "top 'top'" in problem
    assert "needs event time" in problem


def test_stream_can_be_joined_with_itself() -> None:
    left, _ = inputs()
    assert problems(left.join(left, add, before="1s", name="sums"), checkpoints=True) == []
