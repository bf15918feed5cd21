"""Verbs add the right nodes and connections, and refuse at their line what cannot work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

import streamcp as sc
from streamcp.graph.logical import Connection, Forward, HashByKey, Node, Rebalance
from streamcp.operators.steps import (
    AsyncOptions,
    BatchStep,
    BranchStep,
    CountStep,
    FilterStep,
    FlatMapStep,
    ForEachStep,
    InspectStep,
    MapStep,
    ProcessStep,
    ReduceStep,
    ScanStep,
    SinkStep,
    UnbatchStep,
)

AnyStream = sc.Stream[Any]
AnyKeyed = sc.KeyedStream[Any, Any]


@dataclass
class Visits:
    count: int = 0


async def slow(record: Any) -> Any:
    return record


async def slow_many(record: Any) -> AsyncIterator[Any]:
    yield record


def many(record: Any) -> Iterator[Any]:
    yield record


async def slow_write(records: Any) -> None: ...


def process(record: Any, state: Visits, ctx: Any) -> list[Any]:
    return [record]


async def slow_process(record: Any, state: Visits, ctx: Any) -> list[Any]:
    return [record]


def timer(timestamp: int, state: Visits, ctx: Any) -> list[Any]:
    return [timestamp]


async def slow_timer(timestamp: int, state: Visits, ctx: Any) -> list[Any]:
    return [timestamp]


@asynccontextmanager
async def open_service() -> AsyncIterator[str]:
    yield "service"


@pytest.fixture
def job() -> sc.Job:
    return sc.Job("x")


@pytest.fixture
def stream(job: sc.Job) -> AnyStream:
    return job.source(sc.items([1, 2]), name="in")


@pytest.fixture
def keyed(stream: AnyStream) -> AnyKeyed:
    return stream.key_by(str)


def _last(job: sc.Job) -> Node:
    return job.graph.nodes[-1]


def _senders(node: Node) -> list[tuple[int, str, type]]:
    return [(c.node.number, c.output, type(c.exchange)) for c in node.inputs]


# ---- what is added to the graph


def test_plain_function_is_called_inline(job: sc.Job, stream: AnyStream) -> None:
    stream.map(str, name="text", parallelism=3, on_error="drop")
    node = _last(job)
    assert node.spec == MapStep(str, None, None, "drop")
    assert (node.name, node.parallelism, node.verb) == ("text", 3, "map")
    assert _senders(node) == [(0, "main", Forward)]


def test_coroutine_function_runs_in_a_pool_with_defaults(job: sc.Job, stream: AnyStream) -> None:
    stream.map(slow)
    assert _last(job).spec == MapStep(slow, AsyncOptions(concurrency=16, ordered=True))


def test_async_options_reach_the_step(job: sc.Job, stream: AnyStream) -> None:
    retry = sc.Retry(2)
    stream.map(slow, concurrency=3, ordered=False, timeout="2s", retry=retry)
    assert _last(job).spec == MapStep(slow, AsyncOptions(3, False, 2.0, retry))


def test_plain_function_in_an_executor_has_all_options(job: sc.Job, stream: AnyStream) -> None:
    stream.map(str, executor="thread", concurrency=2, timeout="1s", ordered=False)
    options = AsyncOptions(2, False, 1.0, executor="thread")
    assert _last(job).spec == MapStep(str, options)
    stream.flat_map(many, executor="thread")
    assert _last(job).spec == FlatMapStep(many, AsyncOptions(executor="thread"))


def test_one_rate_or_several_and_a_breaker_reach_the_step(job: sc.Job, stream: AnyStream) -> None:
    rate, by_key, breaker = sc.Rate(5), sc.Rate(1, key=str), sc.CircuitBreaker()
    stream.map(slow, rate=rate, breaker=breaker)
    assert _last(job).spec == MapStep(slow, AsyncOptions(rates=(rate,), breaker=breaker))
    stream.map(slow, rate=[rate, by_key])
    assert _last(job).spec == MapStep(slow, AsyncOptions(rates=(rate, by_key)))


def test_lambda_with_an_async_option_is_async(job: sc.Job, stream: AnyStream) -> None:
    """Rule 2: the option says what nobody can see."""
    returning = lambda record: slow(record)  # noqa: E731
    stream.map(returning, timeout="1s")
    assert _last(job).spec == MapStep(returning, AsyncOptions(timeout=1.0))


def test_none_for_an_option_means_not_given(job: sc.Job, stream: AnyStream) -> None:
    stream.map(str, name=None, parallelism=None, timeout=None, retry=None)  # type: ignore[arg-type]
    assert _last(job).spec == MapStep(str)


def test_service_is_opened_by_its_step(job: sc.Job, stream: AnyStream) -> None:
    with_service = lambda record, service: record  # noqa: E731
    stream.map(with_service, uses=open_service)
    assert _last(job).spec == MapStep(with_service, uses=open_service)


@pytest.mark.parametrize("fn", [many, slow_many, slow])
def test_flat_map_takes_generators_and_coroutines(
    job: sc.Job, stream: AnyStream, fn: Callable[..., Any]
) -> None:
    stream.flat_map(fn)
    calls = None if fn is many else AsyncOptions()
    assert _last(job).spec == FlatMapStep(fn, calls)


def test_filter_and_for_each_describe_their_calls(job: sc.Job, stream: AnyStream) -> None:
    stream.filter(bool)
    assert _last(job).spec == FilterStep(bool)
    stream.for_each(slow, concurrency=2)
    assert _last(job).spec == ForEachStep(slow, AsyncOptions(concurrency=2))


def test_branch_is_one_step_with_two_outputs(job: sc.Job, stream: AnyStream) -> None:
    yes, no = stream.branch(bool, name="sides")
    yes.for_each(print)
    no.for_each(print)
    sides, first, second = job.graph.nodes[1:]
    assert sides.spec == BranchStep(bool)
    assert _senders(first) == [(1, "yes", Forward)]
    assert _senders(second) == [(1, "no", Forward)]


def test_inspect_is_a_step_that_reads_and_is_read(job: sc.Job, stream: AnyStream) -> None:
    stream.inspect(print, name="seen", on_error="drop").for_each(print)
    seen, last = job.graph.nodes[1:]
    assert seen.spec == InspectStep(print, on_error="drop")
    assert _senders(last) == [(1, "main", Forward)]


def test_tap_draws_aside_and_returns_the_same_stream(job: sc.Job, keyed: AnyKeyed) -> None:
    def aside(tapped: AnyKeyed) -> None:
        tapped.count(name="n").sink(sc.discard(), name="counted")

    assert keyed.tap(aside) is keyed
    assert [node.name for node in job.graph.nodes[1:]] == ["n", "counted"]


def test_union_is_a_step_with_several_inputs(job: sc.Job, stream: AnyStream) -> None:
    stream.map(str).union(stream, stream.map(int)).for_each(print)
    assert _senders(_last(job)) == [
        (1, "main", Forward),
        (0, "main", Forward),
        (2, "main", Forward),
    ]


def test_rebalance_is_in_the_connection(job: sc.Job, stream: AnyStream) -> None:
    stream.union(stream.map(str)).rebalance().for_each(print)
    assert _senders(_last(job)) == [(0, "main", Rebalance), (1, "main", Rebalance)]


def test_map_on_a_keyed_stream_is_divided_by_key_and_gives_an_unkeyed_one(
    job: sc.Job, keyed: AnyKeyed
) -> None:
    mapped = keyed.map(str)
    assert _last(job).inputs == (Connection(job.graph.nodes[0], "main", HashByKey(str)),)
    assert not isinstance(mapped, sc.KeyedStream)
    mapped.for_each(print)
    assert _senders(_last(job)) == [(1, "main", Forward)]


def test_later_exchange_replaces_an_earlier_one(job: sc.Job, keyed: AnyKeyed) -> None:
    keyed.key_by(int).count()
    assert _last(job).inputs[0].exchange == HashByKey(int)
    keyed.rebalance().for_each(print)
    assert _last(job).inputs[0].exchange == Rebalance()


def test_keyed_verbs_describe_their_state(job: sc.Job, keyed: AnyKeyed) -> None:
    keyed.count(name="n")
    assert (_last(job).spec, _last(job).name) == (CountStep(), "n")
    keyed.reduce(max, name="max")
    assert _last(job).spec == ReduceStep(max)
    keyed.scan(list, lambda values, record: [*values, record], name="all")
    assert isinstance(_last(job).spec, ScanStep)
    assert _senders(_last(job)) == [(0, "main", HashByKey)]


def test_process_describes_state_and_timer(job: sc.Job, keyed: AnyKeyed) -> None:
    keyed.process(process, state=Visits, on_timer=timer, name="visits", on_error="drop")
    assert _last(job).spec == ProcessStep(process, None, None, "drop", state=Visits, on_timer=timer)


def test_coroutine_process_takes_both_kinds_of_timer(job: sc.Job, keyed: AnyKeyed) -> None:
    keyed.process(slow_process, state=Visits, on_timer=timer)
    keyed.process(slow_process, state=Visits, on_timer=slow_timer, concurrency=4)
    assert _last(job).spec == ProcessStep(
        slow_process, AsyncOptions(concurrency=4), state=Visits, on_timer=slow_timer
    )


def test_errors_of_a_step_and_of_a_sink_are_outputs(job: sc.Job, stream: AnyStream) -> None:
    stream.map(str, on_error="divert").errors.for_each(print)
    assert _senders(_last(job)) == [(1, "errors", Forward)]
    stream.sink(slow_write, on_error="divert").errors.for_each(print)
    assert _senders(_last(job)) == [(3, "errors", Forward)]


def test_sink_object_is_one_subtask(job: sc.Job, stream: AnyStream) -> None:
    sink = sc.collect()
    stream.sink(sink, name="out")
    spec = _last(job).spec
    assert isinstance(spec, SinkStep)
    assert (spec.open(), spec.kind, _last(job).parallelism) == (sink, "plain", 1)


def test_coroutine_sink_has_the_parallelism_of_the_job(job: sc.Job, stream: AnyStream) -> None:
    stream.sink(slow_write, retry=sc.Retry(2))
    spec = _last(job).spec
    assert isinstance(spec, SinkStep)
    assert (spec.retry, _last(job).parallelism) == (sc.Retry(2), None)
    assert spec.open().write is slow_write


def test_batch_and_unbatch_are_steps_of_their_own(job: sc.Job, stream: AnyStream) -> None:
    stream.batch(5, "200ms", name="b", parallelism=2)
    node = _last(job)
    assert node.spec == BatchStep(5, 0.2)
    assert (node.name, node.parallelism, node.verb) == ("b", 2, "batch")
    stream.unbatch()
    assert _last(job).verb == "unbatch"
    assert isinstance(_last(job).spec, UnbatchStep)


def test_batch_needs_a_longest_wait(stream: AnyStream) -> None:
    with pytest.raises(sc.SettingsError, match=r"batch\(max_wait\)"):
        stream.batch(5, 1)  # type: ignore[arg-type]


# ---- what is refused, and the remedy


REFUSED: list[tuple[str, Callable[[Any, Any], object], str]] = [
    ("value", lambda s, k: s.map(5), "a function is needed"),
    ("plain_async", lambda s, k: s.map(str, concurrency=2), "concurrency= is for coroutine"),
    ("plain_sink_retry", lambda s, k: s.sink(sc.discard(), retry=sc.Retry()), "async def write"),
    ("plain_retry", lambda s, k: s.map(partial(str), retry=sc.Retry()), "write async def"),
    ("timer_kind", lambda s, k: k.process(process, state=Visits, on_timer=slow_timer), "plain"),
    ("generator", lambda s, k: s.map(many), "write flat_map"),
    ("async_generator", lambda s, k: s.filter(slow_many), "write flat_map"),
    ("for_each", lambda s, k: s.for_each(many), "a function that returns"),
    ("key_by", lambda s, k: s.key_by(slow), "plain function"),
    ("branch", lambda s, k: s.branch(slow), "plain function"),
    ("inspect", lambda s, k: s.inspect(slow), "plain function"),
    ("inspect_option", lambda s, k: s.inspect(print, concurrency=2), "no option 'concurrency'"),
    ("tap_sink", lambda s, k: s.tap(slow), "stream.sink(...)"),
    ("tap_sink_object", lambda s, k: s.tap(sc.discard()), "stream.sink(...)"),
    ("tap_of_records", lambda s, k: s.tap(id), r"write .inspect\(id\)"),
    ("reduce", lambda s, k: k.reduce(slow), "plain function"),
    ("scan_value", lambda s, k: k.scan(0, max), "not a value"),
    ("scan_start", lambda s, k: k.scan(slow, max), "plain function"),
    ("misspelt", lambda s, k: s.map(slow, concurency=2), "did you mean 'concurrency'"),
    ("unknown", lambda s, k: s.map(slow, colour=1), "no option 'colour'"),
    ("executor_kind", lambda s, k: s.map(slow, executor="thread"), "for plain functions"),
    ("executor_word", lambda s, k: s.map(str, executor="fiber"), "write 'thread', 'process'"),
    (
        "process_with_service",
        lambda s, k: s.map(max, uses=open_service, executor="process"),
        "the service of uses= lives in one process",
    ),
    (
        "process_with_state",
        lambda s, k: k.process(process, state=Visits, executor="process"),
        "the state of a key lives in one process",
    ),
    ("executor_of", lambda s, k: s.branch(str, executor="thread"), "no option 'executor'"),
    (
        "executor_timer",
        lambda s, k: k.process(process, state=Visits, on_timer=slow_timer, executor="thread"),
        "plain",
    ),
    ("ordered", lambda s, k: s.for_each(slow, ordered=True), "no option 'ordered'"),
    ("count", lambda s, k: k.count(on_error="drop"), "no option 'on_error'"),
    ("on_error", lambda s, k: s.map(str, on_error="ignore"), "choose one of fail, drop, divert"),
    ("name", lambda s, k: s.map(str, name=" "), "not empty"),
    ("parallelism", lambda s, k: s.map(str, parallelism=0), "from 1 to 128"),
    ("parallel_true", lambda s, k: s.map(str, parallelism=True), "from 1 to 128"),
    ("parallel_much", lambda s, k: s.map(str, parallelism=129), "from 1 to 128"),
    ("concurrency", lambda s, k: s.map(slow, concurrency=0), "write 1 or more"),
    ("timeout", lambda s, k: s.map(slow, timeout="0s"), "end every call at once"),
    ("retry", lambda s, k: s.map(slow, retry=3), "write Retry"),
    ("rate", lambda s, k: s.map(slow, rate=100), "write Rate"),
    ("rate_of_plain", lambda s, k: s.map(str, rate=sc.Rate(1)), "rate= is for coroutine"),
    (
        "two_keyed_rates",
        lambda s, k: s.map(slow, rate=[sc.Rate(1, key=str), sc.Rate(2, key=int)]),
        "only one of the rates",
    ),
    ("breaker", lambda s, k: s.map(slow, breaker=5), "write CircuitBreaker"),
    ("batch_size", lambda s, k: s.batch(0, "1s"), "1 or more"),
    ("batch_true", lambda s, k: s.batch(True, "1s"), "1 or more"),
    ("batch_option", lambda s, k: s.batch(5, "1s", on_error="drop"), "no option 'on_error'"),
    ("opened", lambda s, k: s.map(max, uses="db"), "not the opened service"),
    ("opener", lambda s, k: s.map(max, uses=slow), "asynccontextmanager"),
    ("opener_argument", lambda s, k: s.map(max, uses=process), "no arguments"),
    ("no_uses", lambda s, k: s.map(lambda record, db: record), "give its service with uses="),
    ("no_service", lambda s, k: s.map(slow, uses=open_service), "service of uses=open_service"),
    (
        "arity",
        lambda s, k: k.process(slow, state=Visits),
        r"is called as slow\(record, state, context\), which it does not accept$",
    ),
    (
        "no_uses_of_scan",
        lambda s, k: k.scan(lambda x: x, max),
        r"as lambda\(\), which it .* accept$",
    ),
    ("timer_arity", lambda s, k: k.process(process, state=Visits, on_timer=str.upper), "on_timer"),
    ("timer_value", lambda s, k: k.process(process, state=Visits, on_timer=5), "no function"),
    ("state_value", lambda s, k: k.process(process, state=Visits()), "a class, or"),
    ("state_int", lambda s, k: k.process(process, state=int), "cannot be changed"),
    ("union", lambda s, k: s.union([1]), "only streams"),
    ("sink_parallel", lambda s, k: s.sink(sc.discard(), parallelism=2), "give its class"),
    ("sink_function", lambda s, k: s.sink(str.upper), "for_each"),
]


@pytest.mark.parametrize(("wrong", "remedy"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_wrong_description_is_refused_at_its_line(
    stream: AnyStream, keyed: AnyKeyed, wrong: Callable[[Any, Any], object], remedy: str
) -> None:
    with pytest.raises(sc.DefinitionError, match=remedy):
        wrong(stream, keyed)


def test_refused_step_leaves_the_graph_as_it_was(job: sc.Job, stream: AnyStream) -> None:
    """A notebook goes on after the error."""
    with pytest.raises(sc.DefinitionError):
        stream.map(str, concurrency=2)  # type: ignore[arg-type]
    assert len(job.graph.nodes) == 1


def test_bare_number_is_no_timeout(stream: AnyStream) -> None:
    with pytest.raises(sc.SettingsError, match=r"map\(slow\): timeout=2 is not a duration"):
        stream.map(slow, timeout=2)  # type: ignore[call-overload]


async def test_take_refuses_what_is_no_number_of_records(stream: AnyStream) -> None:
    with pytest.raises(sc.DefinitionError, match="1 or more"):
        await stream.take(0)


@pytest.mark.parametrize(
    "verb",
    [verb for verb in vars(sc.KeyedStream) if verb[0] != "_" and not hasattr(sc.Stream, verb)],
)
def test_verb_of_keyed_streams_without_a_key_is_told_to_divide_first(
    stream: AnyStream, verb: str
) -> None:
    with pytest.raises(AttributeError, match=rf"{verb}\(\) works per key.*\.key_by\("):
        getattr(stream, verb)


def test_word_that_no_stream_has_is_an_attribute_error_as_ever(stream: AnyStream) -> None:
    with pytest.raises(AttributeError, match="'Stream' object has no attribute 'mapp'"):
        getattr(stream, "mapp")  # noqa: B009 (a type checker refuses it written out)
    assert not hasattr(stream, "process")
