"""`iterate` draws a loop, and refuses at its line a body that cannot be one."""

from __future__ import annotations

from typing import Any

import pytest

import streamcp as sc
from streamcp.graph.logical import Connection, Forward, HashByKey, Rebalance
from streamcp.operators.steps import IterateStep


def numbers(job: sc.Job) -> sc.Stream[int]:
    return job.source(sc.items([1, 2, 3]), name="numbers")


def body(loop: sc.Stream[int]) -> tuple[sc.Stream[int], sc.Stream[int]]:
    return loop.map(abs).branch(bool)


def test_iterate_adds_a_head_that_reads_the_stream_and_what_the_body_feeds_back() -> None:
    job = sc.Job("x")
    output = numbers(job).rebalance().iterate(body, name="loop", parallelism=2)
    source, head, _, branch = job.graph.nodes
    assert head.spec == IterateStep()
    assert (head.label, head.verb, head.parallelism) == ("loop", "iterate", 2)
    assert head.inputs == (
        Connection(source, exchange=Rebalance()),
        Connection(branch, "yes", back=True),
    )
    assert output._connections == (Connection(branch, "no"),)


def test_feedback_keeps_its_exchange_and_every_stream_of_a_union() -> None:
    job = sc.Job("x")

    def two_ways(loop: sc.Stream[int]) -> tuple[sc.Stream[int], sc.Stream[int]]:
        less, same = loop.branch(bool)
        return less.key_by(abs).union(loop.map(abs)), same

    numbers(job).iterate(two_ways, name="loop")
    head = job.graph.nodes[1]
    kinds = [(type(one.exchange), one.back) for one in head.inputs]
    assert kinds == [(Forward, False), (HashByKey, True), (Forward, True)]


def test_step_of_the_body_remembers_its_own_line() -> None:
    job = sc.Job("x")
    numbers(job).iterate(body)
    head, mapped = job.graph.nodes[1:3]
    assert (mapped.place.file, head.place.file) == (__file__, __file__)
    assert mapped.place.line < head.place.line


@pytest.mark.parametrize("returned", [None, (), "ab", (1, 2), []])
def test_body_that_does_not_return_two_streams_is_refused(returned: Any) -> None:
    with pytest.raises(sc.DefinitionError, match=r"return two streams, \(again, output\)"):
        numbers(sc.Job("x")).iterate(lambda loop: returned)


def test_body_that_returns_one_stream_is_refused() -> None:
    wrong: Any = lambda loop: loop.map(abs)  # noqa: E731 - the error is about its result
    with pytest.raises(sc.DefinitionError, match="return two streams"):
        numbers(sc.Job("x")).iterate(wrong)


def test_coroutine_body_is_refused() -> None:
    async def slow(loop: Any) -> Any: ...

    with pytest.raises(sc.DefinitionError, match="iterate takes a plain function"):
        numbers(sc.Job("x")).iterate(slow)  # type: ignore[arg-type]


def test_body_without_the_parameter_is_refused() -> None:
    wrong: Any = lambda: None  # noqa: E731 - the error is about its arguments
    with pytest.raises(sc.DefinitionError, match="iterate"):
        numbers(sc.Job("x")).iterate(wrong)


def test_unknown_option_is_refused() -> None:
    with pytest.raises(sc.DefinitionError, match="iterate\\(\\) has no option 'laps'"):
        numbers(sc.Job("x")).iterate(body, laps=3)  # type: ignore[call-arg]
