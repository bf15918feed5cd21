"""Fused steps: every record once through every step, whatever fails in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamcp as sc
from streamcp.errors import StepFailed
from streamcp.runners.life import first_cause
from streamcp.testing.loop import run_virtual
from tests.runtime.engine import Engine, until


class Job:
    """A source, the steps that `build` adds, and a sink that keeps what comes."""

    def __init__(self, records: Sequence[Any], build: Callable[[Any], Any]) -> None:
        self.out: list[Any] = []
        self.errors: list[Any] = []
        self.job = sc.Job("job")
        step = build(self.job.source(sc.items(records), name="source"))
        step.sink(self.write, name="out")
        if getattr(step, "errors", None) is not None and self._diverts():
            step.errors.sink(self.write_errors, name="errors")

    def _diverts(self) -> bool:
        return getattr(self.job.graph.nodes[-2].spec, "on_error", "fail") == "divert"

    async def write(self, records: Sequence[Any]) -> None:
        self.out += records

    async def write_errors(self, records: Sequence[Any]) -> None:
        self.errors += records

    def run(self) -> Engine:
        engine = Engine(self.job)

        async def main() -> None:
            async with engine.running():
                await until(lambda: all(subtask.ended for subtask in engine.subtasks))

        run_virtual(main())
        return engine


def odd_fails(record: int) -> int:
    if record % 2:
        raise ValueError(f"odd {record}")
    return record


VERBS: dict[str, tuple[Callable[[int], Any], list[int]]] = {
    "map": (odd_fails, [0, 2, 4]),
    "filter": (odd_fails, [2, 4]),
    "flat_map": (lambda record: [odd_fails(record)] * 2, [0, 0, 2, 2, 4, 4]),
    "inspect": (odd_fails, [0, 2, 4]),
}


@pytest.mark.parametrize("verb", VERBS)
def test_dropped_failures_leave_the_others_in_order(verb: str) -> None:
    fn, expected = VERBS[verb]
    job = Job(range(6), lambda s: getattr(s, verb)(fn, name="step", on_error="drop"))
    engine = job.run()
    assert job.out == expected
    meters = {node.label: meter for node, meter in engine["source"].chain.meters.items()}
    assert (meters["step"].records_in, meters["step"].dropped) == (6, 3)
    assert meters["step"].records_out == len(expected)


@pytest.mark.parametrize("verb", VERBS)
def test_diverted_failures_hold_record_step_and_error(verb: str) -> None:
    fn, expected = VERBS[verb]
    job = Job(range(6), lambda s: getattr(s, verb)(fn, name="step", on_error="divert"))
    job.run()
    assert job.out == expected
    assert [(one.record, one.step, one.error) for one in job.errors] == [
        (n, "step", f"ValueError: odd {n}") for n in (1, 3, 5)
    ]
    assert "odd_fails" in job.errors[0].traceback


@pytest.mark.parametrize("verb", VERBS)
def test_first_failure_fails_the_job_and_names_record_and_step(verb: str) -> None:
    fn, _ = VERBS[verb]
    with pytest.RaisesGroup(StepFailed, flatten_subgroups=True) as caught:
        Job(range(6), lambda s: getattr(s, verb)(fn, name="step")).run()
    assert "step 'step'" in str(first_cause(caught.value))
    assert "record 1" in str(first_cause(caught.value))


@pytest.mark.parametrize("verb", ["map", "filter", "flat_map"])
def test_stop_iteration_of_a_function_is_a_failure_and_ends_nothing(verb: str) -> None:
    def stop(record: int) -> Any:
        if record == 1:
            next(iter(()))
        return [record] if verb == "flat_map" else record

    job = Job(range(4), lambda s: getattr(s, verb)(stop, name="step", on_error="drop"))
    job.run()
    assert [record for record in job.out if record] == [2, 3]


@pytest.mark.parametrize("verb", ["map", "filter", "flat_map", "inspect"])
def test_first_result_that_must_be_awaited_fails_and_names_the_remedy(verb: str) -> None:
    async def wait(record: int) -> int:
        return record

    with pytest.RaisesGroup(StepFailed, flatten_subgroups=True) as caught:
        Job([1], lambda s: getattr(s, verb)(lambda record: wait(record), name="step")).run()
    assert "async def" in str(first_cause(caught.value))


def test_inspected_records_go_on_as_they_are_each_seen_once_in_order() -> None:
    seen: list[int] = []
    job = Job(range(6), lambda s: s.filter(lambda n: n != 3).inspect(seen.append).map(str))
    job.run()
    assert seen == [0, 1, 2, 4, 5]
    assert job.out == ["0", "1", "2", "4", "5"]


def test_generator_that_fails_while_it_is_read_emits_nothing_of_its_record() -> None:
    def some(record: int) -> Any:
        yield record
        if record == 1:
            raise ValueError
        yield -record

    job = Job([0, 1, 2], lambda s: s.flat_map(some, name="step", on_error="drop"))
    job.run()
    assert job.out == [0, 0, 2, -2]


def test_failing_key_function_names_the_record() -> None:
    with pytest.RaisesGroup(StepFailed, flatten_subgroups=True) as caught:
        Job([1], lambda s: s.key_by(lambda record: record.missing).count()).run()
    assert "record 1" in str(first_cause(caught.value))


@pytest.mark.parametrize("key", [lambda record: record.missing, lambda record: [record]])
@pytest.mark.parametrize("on_error", ["drop", "divert"])
def test_failing_key_function_of_a_fused_step_fails_the_job_as_that_of_an_exchange_does(
    on_error: str, key: Callable[[int], Any]
) -> None:
    def build(stream: Any) -> Any:
        keyed = stream.key_by(key)
        return keyed.process(lambda record, state, ctx: [record], state=dict, on_error=on_error)

    job = Job([1], build)
    with pytest.RaisesGroup(StepFailed, flatten_subgroups=True) as caught:
        job.run()
    text = str(first_cause(caught.value))
    assert "key_by behind step 'source'" in text
    assert "record 1" in text
    assert job.out == job.errors == []


# What a verb draws, and what it makes of a list.
IN_A_CHAIN: dict[str, tuple[Callable[[Any], Any], Callable[[list[int]], list[int]]]] = {
    "map": (lambda s: s.map(lambda n: n + 1), lambda records: [n + 1 for n in records]),
    "filter": (lambda s: s.filter(lambda n: n % 3), lambda records: [n for n in records if n % 3]),
    "flat_map": (
        lambda s: s.flat_map(lambda n: [n] * (n % 3)),
        lambda records: [n for n in records for _ in range(n % 3)],
    ),
    "drop": (
        lambda s: s.map(lambda n: 12 // n, on_error="drop"),
        lambda records: [12 // n for n in records if n],
    ),
    "inspect": (
        lambda s: s.inspect(lambda n: 12 // n, on_error="drop"),
        lambda records: [n for n in records if n],
    ),
}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(-5, 5), max_size=30),
    st.sampled_from([1, 20]),
    st.lists(st.sampled_from(sorted(IN_A_CHAIN)), max_size=9),
)
def test_any_chain_of_steps_does_and_counts_what_a_plain_loop_does(
    records: list[int], times: int, verbs: list[str]
) -> None:
    """Also behind the first batch, when it is known of which records there are few."""

    def build(stream: Any) -> Any:
        for verb in verbs:
            stream = IN_A_CHAIN[verb][0](stream)
        return stream

    expected = records * times
    counts = []
    for verb in verbs:
        before, expected = len(expected), IN_A_CHAIN[verb][1](expected)
        counts.append((before, len(expected)))
    job = Job(records * times, build)
    engine = job.run()
    assert job.out == expected
    meters = list(engine["source"].chain.meters.values())[1:]
    assert [(meter.records_in, meter.records_out) for meter in meters] == counts


def test_failure_behind_a_flat_map_leaves_the_other_values_of_its_record() -> None:
    def build(stream: Any) -> Any:
        values = stream.flat_map(lambda n: [n, n + 1, n + 2])
        return values.map(odd_fails, name="step", on_error="divert")

    job = Job([0, 1], build)
    job.run()
    assert job.out == [0, 2, 2]
    assert [error.record for error in job.errors] == [1, 1, 3]


def test_failure_of_a_later_step_names_the_record_as_that_step_got_it() -> None:
    def build(stream: Any) -> Any:
        tens = stream.map(lambda n: n * 10, name="tens")
        return tens.filter(lambda n: n < 100, name="small").map(
            lambda n: 1 // (n - 30), name="last"
        )

    with pytest.RaisesGroup(StepFailed, flatten_subgroups=True) as caught:
        Job(range(500), build).run()
    text = str(first_cause(caught.value))
    assert "step 'last'" in text
    assert "record 30" in text


def test_branches_and_several_readers_get_each_record_once() -> None:
    out: dict[str, list[int]] = {"yes": [], "no": [], "both": []}

    def keep(name: str) -> Any:
        async def write(records: Sequence[int]) -> None:
            await asyncio.sleep(0)
            out[name].extend(records)

        return write

    job = sc.Job("job")
    mapped = job.source(sc.items(range(6)), name="source").map(lambda n: n * 10)
    yes, no = mapped.branch(lambda n: n >= 30)
    yes.sink(keep("yes"), name="yes")
    no.map(lambda n: -n).sink(keep("no"), name="no")
    mapped.sink(keep("both"), name="both")
    engine = Engine(job)

    async def main() -> None:
        async with engine.running():
            await until(lambda: all(subtask.ended for subtask in engine.subtasks))

    run_virtual(main())
    assert out == {"yes": [30, 40, 50], "no": [0, -10, -20], "both": [0, 10, 20, 30, 40, 50]}
