"""Every problem of a graph is found, told with place and remedy, and all of them together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.graph.validation import find_problems, validate


@sc.source(splits=lambda: ["a", "b"])
async def parts(split: str, position: int = 0) -> AsyncIterator[tuple[str, int]]:
    yield split, position + 1


@sc.source
async def numbers(position: int = 0) -> AsyncIterator[tuple[int, int]]:
    yield position, position + 1


async def slow(record: Any) -> Any:
    return record


async def write(records: Sequence[Any]) -> None: ...


def keep(record: Any, state: dict[str, int], ctx: Any) -> list[Any]:
    return [record]


def note(record: Any, shared: dict[str, int]) -> None: ...


def _problems(job: sc.Job, *, checkpoints: bool = False) -> list[str]:
    return list(find_problems(job.graph, checkpoints=checkpoints))


def test_good_graph_has_no_problem() -> None:
    job = sc.Job("x", parallelism=2)
    orders = job.source(parts(), name="parts")
    diverted = orders.map(slow, name="slow", on_error="divert")
    diverted.errors.sink(write, name="bad ones")
    diverted.key_by(str).count(name="n").sink(write, name="out")
    assert _problems(job, checkpoints=True) == []
    validate(job.graph, checkpoints=True)


def test_all_problems_come_in_one_error() -> None:
    job = sc.Job("orders")
    job.source(numbers(), name="a").map(slow, name="a", on_error="divert")
    with pytest.raises(sc.BuildError, match="job 'orders' cannot be built, 3 problems") as caught:
        validate(job.graph, checkpoints=True)
    assert len(caught.value.problems) == 3


def test_job_without_source_or_sink_is_told_what_to_write() -> None:
    assert _problems(sc.Job("x")) == [
        "it has no source: begin with job.source(...)",
        "it has no sink, so nothing would come out: end with .sink(...) or .for_each(...)",
    ]


def test_stream_that_nobody_reads_is_allowed() -> None:
    job = sc.Job("x")
    stream = job.source(numbers())
    stream.map(str)
    stream.for_each(print)
    assert _problems(job) == []


def test_problem_names_step_and_place() -> None:
    job = sc.Job("x")
    job.source(numbers(), name="in").for_each(print, on_error="divert", name="out")
    (problem,) = _problems(job)
    line = job.graph.nodes[1].place.line
    assert problem.startswith(f"for_each 'out' ({Path(__file__)}:{line}) diverts its errors")


NEED_NAMES: list[tuple[str, Callable[[sc.Stream[Any]], object], str]] = [
    ("map", lambda s: s.map(slow), 'map(…, name="slow")'),
    ("lambda", lambda s: s.map(lambda r: r, timeout="1s"), 'map(…, name="map")'),
    ("process", lambda s: s.key_by(str).process(keep, state=dict), 'process(…, name="keep")'),
    ("count", lambda s: s.key_by(str).count(), 'count(…, name="count")'),
    ("scan", lambda s: s.key_by(str).scan(int, max), 'scan(…, name="max")'),
    ("reduce", lambda s: s.key_by(str).reduce(max), 'reduce(…, name="max")'),
    (
        "two inputs",
        lambda s: s.key_by(str).connect(s.key_by(str)).process(keep, keep, state=dict),
        'process(…, name="keep")',
    ),
    (
        "broadcast",
        lambda s: s.connect(s.broadcast()).process(note, note, broadcast_state=dict),
        'process(…, name="note")',
    ),
    ("sink", lambda s: s.sink(write), 'sink(…, name="sink")'),
    ("for_each", lambda s: s.for_each(slow), 'for_each(…, name="slow")'),
]


@pytest.mark.parametrize(
    ("add", "line"), [n[1:] for n in NEED_NAMES], ids=[n[0] for n in NEED_NAMES]
)
def test_step_kept_in_checkpoints_needs_a_name(
    add: Callable[[sc.Stream[Any]], object], line: str
) -> None:
    """Rule 12: the line to write is in the message."""
    job = sc.Job("x")
    source = job.source(numbers(), name="in")
    source.for_each(print, name="end")
    add(source)
    assert _problems(job) == []
    (problem,) = _problems(job, checkpoints=True)
    assert f"write {line}" in problem


def test_proposed_names_are_free_and_differ() -> None:
    job = sc.Job("x")
    source = job.source(numbers())
    source.map(slow)
    source.map(slow)
    source.for_each(print, name="numbers")
    proposed = [problem.partition("name=")[2] for problem in _problems(job, checkpoints=True)]
    assert proposed == ['"numbers-2")', '"slow")', '"slow-2")']


def test_synchronous_stateless_steps_need_no_name() -> None:
    job = sc.Job("x")
    yes, no = job.source(numbers(), name="in").map(str).filter(bool).branch(bool)
    yes.flat_map(str.split).union(no).for_each(print)
    assert _problems(job, checkpoints=True) == []


def test_second_step_of_a_name_is_told_with_the_first() -> None:
    job = sc.Job("x")
    job.source(numbers(), name="a").for_each(print, name="a")
    (problem,) = _problems(job)
    first, second = (node.place.line for node in job.graph.nodes)
    assert "names are unique" in problem
    assert f":{second})" in problem.partition("same name")[0]
    assert f":{first})" in problem.partition("same name")[2]


def test_name_like_an_automatic_one_is_a_duplicate() -> None:
    job = sc.Job("x")
    job.source(numbers(), name="map-1").map(str).for_each(print)
    assert ["same name" in problem for problem in _problems(job)] == [True]


def test_notebook_gets_a_hint() -> None:
    """Rule 13: running a cell twice defines its steps twice."""
    job = sc.Job("x")
    cell = compile("job.source(make(), name='a')", "/tmp/ipykernel_12/34.py", "exec")
    scope = {"job": job, "make": numbers, "__name__": "__main__"}
    exec(cell, scope)
    exec(cell, scope)
    job.source(numbers(), name="end").for_each(print)
    (problem,) = _problems(job)
    assert problem.endswith("(in a notebook: create the Job in the same cell as its steps)")


def test_different_parallelism_without_exchange_names_both_verbs() -> None:
    job = sc.Job("x")
    job.source(parts(), name="in", parallelism=2).map(str, parallelism=3).for_each(
        print, parallelism=3
    )
    (problem,) = _problems(job)
    assert "has parallelism 3, its input source 'in'" in problem
    assert ".rebalance() or .key_by(...)" in problem


@pytest.mark.parametrize("exchange", ["rebalance", "key_by"])
def test_exchange_makes_different_parallelism_possible(exchange: str) -> None:
    job = sc.Job("x")
    source = job.source(parts(), name="in", parallelism=2)
    divided = source.rebalance() if exchange == "rebalance" else source.key_by(str)
    divided.map(str, parallelism=3).for_each(print, parallelism=3)
    assert _problems(job) == []


def test_source_without_splits_before_parallel_steps_is_told() -> None:
    job = sc.Job("x", parallelism=4)
    job.source(numbers()).for_each(print)
    (problem,) = _problems(job)
    assert "has parallelism 4, its input source" in problem


def test_single_sink_object_behind_parallel_steps_gets_the_remedy() -> None:
    job = sc.Job("x", parallelism=4)
    job.source(parts()).sink(sc.discard())
    (problem,) = _problems(job)
    assert "its class makes one per subtask" in problem


def test_parallel_source_needs_splits() -> None:
    job = sc.Job("x")
    job.source(numbers(), parallelism=2).rebalance().for_each(print)
    (problem,) = _problems(job)
    assert "numbers has no splits to divide; write @source(splits=...)" in problem


def test_errors_without_divert_and_diverted_errors_that_nobody_reads() -> None:
    job = sc.Job("x")
    source = job.source(numbers())
    source.map(str).errors.for_each(print)
    source.map(str, on_error="divert").for_each(print)
    source.sink(write, on_error="divert")
    problems = _problems(job)
    assert ['write on_error="divert"' in problem for problem in problems] == [True, False, False]
    assert ["nobody reads them" in problem for problem in problems] == [False, True, True]


def test_branch_and_stateful_steps_have_no_errors_to_read() -> None:
    job = sc.Job("x")
    job.source(numbers()).key_by(str).count().for_each(print)
    assert _problems(job) == []


def test_stream_of_another_job_is_refused() -> None:
    job, other = sc.Job("x"), sc.Job("y")
    foreign = other.source(numbers(), name="theirs")
    job.source(numbers()).union(foreign).for_each(print)
    (problem,) = _problems(job)
    assert "source 'theirs'" in problem
    assert "belongs to another job" in problem


def test_at_least_once_job_is_told_every_exactly_once_sink_with_its_place_and_the_remedy() -> None:
    job = sc.Job("x")
    source = job.source(numbers(), name="numbers")
    source.sink(write, name="plain")
    source.sink(sc.files.json_lines("here"), name="first")
    source.sink(sc.files.json_lines("there"), name="second")
    with pytest.raises(sc.BuildError) as caught:
        validate(job.graph, checkpoints=True, at_least_once=True)
    (problem,) = caught.value.problems
    for part in ("sink 'first' (", "sink 'second' (", "test_validation.py:", "another mode"):
        assert part in problem
    assert "'plain'" not in problem
    validate(job.graph, checkpoints=True, at_least_once=False)


def test_at_least_once_job_with_sinks_that_only_write_is_good() -> None:
    job = sc.Job("x")
    job.source(numbers(), name="numbers").sink(write, name="plain")
    validate(job.graph, checkpoints=True, at_least_once=True)


CONNECTS: list[tuple[str, Callable[[Any, Any], object]]] = [
    ("keyed", lambda a, b: a.key_by(str).connect(b.key_by(str)).process(keep, keep, state=dict)),
    ("broadcast", lambda a, b: a.connect(b.broadcast()).process(note, note, broadcast_state=dict)),
]


@pytest.mark.parametrize("connect", [one[1] for one in CONNECTS], ids=[one[0] for one in CONNECTS])
def test_stream_of_another_job_cannot_be_connected(connect: Callable[[Any, Any], Any]) -> None:
    job, other = sc.Job("x"), sc.Job("y")
    connect(job.source(numbers()), other.source(numbers(), name="theirs")).for_each(print)
    (problem,) = _problems(job)
    assert "source 'theirs'" in problem
    assert "belongs to another job" in problem


def test_broadcast_is_an_exchange_and_the_other_input_needs_one_of_its_own() -> None:
    job = sc.Job("x")
    records, rules = job.source(numbers(), name="in"), job.source(numbers(), name="rules")
    step = records.connect(rules.broadcast()).process(
        note, note, broadcast_state=dict, parallelism=2
    )
    step.rebalance().for_each(print)
    (problem,) = _problems(job)
    assert "its input source 'in'" in problem


def _journaled() -> sc.Job:
    job = sc.Job("x")
    job.source(numbers(), name="a").map(slow, name="ask", journal=True).sink(write, name="out")
    return job


def test_journal_without_checkpoints_is_told_the_remedy() -> None:
    with pytest.raises(
        sc.BuildError, match=r"'ask'.*journal=True needs checkpoints.*--checkpoints"
    ):
        validate(_journaled().graph, checkpoints=False)
    validate(_journaled().graph, checkpoints=True)


def test_journal_in_an_at_least_once_job_is_told_the_remedy() -> None:
    with pytest.raises(sc.BuildError, match=r"'ask'.*at_least_once.*choose another mode"):
        validate(_journaled().graph, checkpoints=True, at_least_once=True)
