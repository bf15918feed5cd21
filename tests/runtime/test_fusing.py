"""The compiled loop of fused steps does what a plain loop over single records does."""

from __future__ import annotations

import asyncio
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamcp as sc
from streamcp.errors import JobFailed

Step = tuple[str, int]
Records = list[int]

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["map", "filter", "flat_map", "drop", "count", "scan", "process"]),
        st.integers(1, 4),
    ),
    max_size=8,
)


@dataclass
class Total:
    value: int = 0


def plus(n: int) -> Callable[[int], int]:
    return lambda record: record + n


def not_divisible(n: int) -> Callable[[int], bool]:
    return lambda record: record % (n + 1) != 0


def copies(n: int) -> Callable[[int], list[int] | None]:
    return lambda record: [record + i for i in range(record % (n + 1))] or None


def picky(n: int) -> Callable[[int], int]:
    def fn(record: int) -> int:
        if record % (n + 1) == 0:
            raise ValueError(record)
        return record

    return fn


def running_total(record: int, total: Total, context: sc.KeyContext[int]) -> tuple[int, ...]:
    total.value += record
    return (total.value, record) if record % 2 else ()


def draw(stream: sc.Stream[int], step: Step, name: str) -> sc.Stream[int]:
    verb, n = step
    match verb:
        case "map":
            return stream.map(plus(n))
        case "filter":
            return stream.filter(not_divisible(n))
        case "flat_map":
            return stream.flat_map(copies(n))
        case "drop":
            return stream.map(picky(n), on_error="drop")
        case "count":
            counts = stream.key_by(lambda record: record % n).count(name=name)
            return counts.map(lambda pair: pair[0] * 1000 + pair[1])
        case "scan":
            keyed = stream.key_by(lambda record: record % n)
            return keyed.scan(lambda: n, lambda value, record: value + record, name=name)
    keyed = stream.key_by(lambda record: record % n)
    return keyed.process(running_total, state=Total, name=name)


def plain(records: Records, step: Step) -> Records:
    """The same step, record by record."""
    verb, n = step
    values: dict[int, int] = {}
    out: Records = []
    for record in records:
        key = record % n
        match verb:
            case "map":
                out.append(record + n)
            case "filter" if record % (n + 1):
                out.append(record)
            case "flat_map":
                out += copies(n)(record) or []
            case "drop" if record % (n + 1):
                out.append(record)
            case "count":
                values[key] = values.get(key, 0) + 1
                out.append(key * 1000 + values[key])
            case "scan":
                values[key] = values.get(key, n) + record
                out.append(values[key])
            case "process":
                values[key] = values.get(key, 0) + record
                out += (values[key], record) if record % 2 else ()
    return out


def run(steps: list[Step], records: Records) -> Records:
    job = sc.Job("fused")
    stream: sc.Stream[int] = job.source(sc.items(records))
    for number, step in enumerate(steps):
        stream = draw(stream, step, f"step {number}")
    sink = sc.collect()
    stream.sink(sink)
    asyncio.run(job.run_async())
    return list(sink.records)


@settings(deadline=None, max_examples=60)
@given(STEPS, st.lists(st.integers(0, 50), max_size=30))
def test_any_chain_gives_what_the_plain_loop_gives(steps: list[Step], records: Records) -> None:
    expected = records
    for step in steps:
        expected = plain(expected, step)
    assert run(steps, records) == expected


def test_deeply_nested_steps_are_divided_into_several_loops() -> None:
    """CPython allows twenty nested blocks; twelve flat_maps would need more."""
    steps = [("flat_map", 3), ("map", 1)] * 12
    expected = list(range(5))
    for step in steps:
        expected = plain(expected, step)
    assert run(steps, list(range(5))) == expected


def test_both_outputs_of_a_branch_and_every_reader_get_their_records() -> None:
    job = sc.Job("branches")
    even, odd = job.source(sc.items(range(10))).branch(lambda record: record % 2 == 0)
    evens, doubled, odds = sc.collect(), sc.collect(), sc.collect()
    even.sink(evens)
    even.filter(lambda record: record > 3).map(lambda record: record * 2).sink(doubled)
    odd.map(plus(1)).sink(odds)
    asyncio.run(job.run_async())
    assert list(evens.records) == [0, 2, 4, 6, 8]
    assert list(doubled.records) == [8, 12, 16]
    assert list(odds.records) == [2, 4, 6, 8, 10]


def failing_job(build: Callable[[sc.Stream[int]], sc.Stream[Any]]) -> str:
    job = sc.Job("failing")
    build(job.source(sc.items([1, 2, 3]))).sink(sc.discard())
    with pytest.raises(JobFailed) as failed:
        asyncio.run(job.run_async())
    return str(failed.value)


def test_failure_names_step_place_and_record() -> None:
    text = failing_job(lambda s: s.map(plus(1)).map(picky(2), name="picky").map(plus(1)))
    assert "step 'picky'" in text
    assert "test_fusing.py" in text
    assert "record 3" in text


@pytest.mark.parametrize("verb", ["map", "filter", "for_each"])
def test_awaitable_result_of_a_plain_function_names_the_remedy(verb: str) -> None:
    async def later(record: int) -> int:
        return record

    def plain_function(record: int) -> object:
        return later(record)

    job = sc.Job("awaitable")
    step = getattr(job.source(sc.items([1])), verb)(plain_function, name="late")
    if verb != "for_each":
        step.sink(sc.discard())
    with pytest.raises(JobFailed, match=r"step 'late'.*async def"):
        asyncio.run(job.run_async())


@pytest.mark.parametrize("result", ["text", b"bytes", {"a": 1}, 7])
def test_result_that_would_fall_into_pieces_is_refused(result: object) -> None:
    text = failing_job(lambda s: s.flat_map(lambda _: result, name="pieces"))  # type: ignore[arg-type, return-value]
    assert "step 'pieces'" in text
    assert "return a list" in text


def test_emitted_state_is_refused() -> None:
    def emit(record: int, total: Total, context: sc.KeyContext[int]) -> list[Total]:
        return [total]

    text = failing_job(lambda s: s.key_by(lambda r: r).process(emit, state=Total, name="sums"))
    assert "step 'sums'" in text
    assert "return a copy" in text


def test_value_changed_in_place_by_a_scan_is_refused() -> None:
    def append(value: list[int], record: int) -> list[int]:
        value.append(record)
        return value

    text = failing_job(lambda s: s.key_by(lambda r: 0).scan(list, append, name="lists"))
    assert "step 'lists'" in text
    assert "new value" in text


def test_failing_key_function_names_the_step_before_it() -> None:
    job = sc.Job("keys")
    source = job.source(sc.items([1, 0]), name="numbers")
    keyed = source.map(plus(0), name="same").key_by(lambda record: 1 // record)
    keyed.count(name="counts", parallelism=2).sink(sc.discard, parallelism=2)
    with pytest.raises(JobFailed, match=r"key_by behind step 'same'.*ZeroDivisionError"):
        asyncio.run(job.run_async())


def test_failed_call_leaves_no_trace_where_errors_are_dropped() -> None:
    def fn(record: int, total: Total, context: sc.KeyContext[int]) -> list[int]:
        total.value += record
        if record == 2:
            raise ValueError
        return [total.value]

    job = sc.Job("dropped")
    keyed = job.source(sc.items([1, 2, 3])).key_by(lambda record: 0)
    sink = sc.collect()
    keyed.process(fn, state=Total, on_error="drop", name="sums").sink(sink)
    asyncio.run(job.run_async())
    assert list(sink.records) == [1, 4]


def test_traceback_shows_the_line_of_the_loop() -> None:
    job = sc.Job("shown")
    job.source(sc.items([1])).map(picky(0), name="picky").sink(sc.discard())
    with pytest.raises(JobFailed) as failed:
        asyncio.run(job.run_async())
    text = "".join(traceback.format_exception(failed.value))
    assert "<fused steps from picky>" in text
    assert "r1 = f1(r)" in text


def test_meters_count_what_passed() -> None:
    async def main() -> Counter[str]:
        job = sc.Job("meters")
        stream = job.source(sc.items(range(10)), name="numbers")
        kept = stream.filter(not_divisible(1), name="odd").flat_map(lambda r: [r, r], name="twice")
        kept.sink(sc.discard(), name="nowhere")
        async with job.start() as running:
            await running.wait_finished()
            steps = [step for task in running.view().tasks for step in task.steps]
            return Counter({step.name: step.records_out for step in steps})

    assert asyncio.run(main()) == Counter({"numbers": 10, "odd": 5, "twice": 10})
