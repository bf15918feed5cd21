"""What can be diverted, and what fails the job: each row of the page on dead letters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.testing.running import run_job
from tests.cases.small_jobs import killed_after

Stream = Any


def odd_fails(record: int, *others: Any) -> Any:
    if record % 2:
        raise ValueError(f"odd {record}")
    return record


def odd_fails_in_a_list(record: int, *others: Any) -> list[int]:
    return [odd_fails(record)]


async def odd_fails_later(record: int, *others: Any) -> Any:
    await asyncio.sleep(0.001)
    return odd_fails(record)


async def odd_fails_later_in_a_list(record: int, *others: Any) -> list[int]:
    return [await odd_fails_later(record)]


async def post(records: Sequence[int]) -> None:
    for record in records:
        odd_fails(record)


class Inline:
    def write(self, records: Sequence[int]) -> None:
        for record in records:
            odd_fails(record)


def keyed(stream: Stream) -> Stream:
    return stream.key_by(lambda record: record % 3)


DIVERT: dict[str, Any] = {"name": "step", "on_error": "divert"}

DIVERTED: dict[str, Callable[[Stream], Any]] = {
    "map": lambda s: s.map(odd_fails, **DIVERT),
    "filter": lambda s: s.filter(odd_fails, **DIVERT),
    "flat_map": lambda s: s.flat_map(odd_fails_in_a_list, **DIVERT),
    "inspect": lambda s: s.inspect(odd_fails, **DIVERT),
    "for_each": lambda s: s.for_each(odd_fails, **DIVERT),
    "process": lambda s: keyed(s).process(odd_fails_in_a_list, state=dict, **DIVERT),
    "map coroutine": lambda s: s.map(odd_fails_later, **DIVERT),
    "filter coroutine": lambda s: s.filter(odd_fails_later, **DIVERT),
    "flat_map coroutine": lambda s: s.flat_map(odd_fails_later_in_a_list, **DIVERT),
    "for_each coroutine": lambda s: s.for_each(odd_fails_later, **DIVERT),
    "process coroutine": lambda s: keyed(s).process(
        odd_fails_later_in_a_list, state=dict, **DIVERT
    ),
    "map in a thread": lambda s: s.map(odd_fails, executor="thread", **DIVERT),
    "lookup": lambda s: s.lookup(
        lambda record: record, odd_fails_later, lambda record, answer: answer, **DIVERT
    ),
}


def numbers(job: sc.Job, *, timed: bool) -> Stream:
    marks = sc.Watermarks[int](lambda at: at) if timed else None
    return job.source(sc.items(range(6)), name="numbers", watermarks=marks)


def failures_of(draw: Callable[[Stream], Any], *, timed: bool = False) -> list[sc.Failure[Any]]:
    found: list[sc.Failure[Any]] = []
    job = sc.Job("job")
    step = draw(numbers(job, timed=timed))
    if isinstance(step, sc.Stream):
        step.sink(sc.discard(), name="out")
    step.errors.for_each(found.append)
    run_job(job)
    return found


@pytest.mark.parametrize("timed", [False, True], ids=["untimed", "timed"])
@pytest.mark.parametrize("kind", DIVERTED)
def test_record_at_which_a_function_fails_can_be_diverted(kind: str, timed: bool) -> None:
    found = failures_of(DIVERTED[kind], timed=timed)
    assert sorted((one.record, one.step, one.error) for one in found) == [
        (n, "step", f"ValueError: odd {n}") for n in (1, 3, 5)
    ]


@pytest.mark.parametrize("timed", [False, True], ids=["untimed", "timed"])
@pytest.mark.parametrize("sink", [post, Inline()], ids=["coroutine", "plain"])
def test_every_record_of_a_write_that_failed_can_be_diverted(sink: Any, timed: bool) -> None:
    found = failures_of(lambda s: s.sink(sink, **DIVERT), timed=timed)
    assert {one.record for one in found} >= {1, 3, 5}
    assert len(found) == len({one.record for one in found})
    assert {one.step for one in found} == {"step"}


def set_timer(record: int, state: Any, ctx: sc.KeyContext[int]) -> None:
    ctx.set_timer(0)


def fail(*arguments: Any) -> Any:
    raise ValueError("no")


FAILING: dict[str, Callable[[Stream], Any]] = {
    "key_by": lambda s: s.key_by(fail).process(odd_fails_in_a_list, state=dict, **DIVERT),
    "key_by at an exchange": lambda s: s.key_by(fail).process(
        odd_fails_in_a_list, state=dict, parallelism=2, **DIVERT
    ),
    "on_timer": lambda s: keyed(s).process(set_timer, state=dict, on_timer=fail, **DIVERT),
    "reduce": lambda s: keyed(s).reduce(fail, name="step"),
    "scan": lambda s: keyed(s).scan(int, fail, name="step"),
    "branch": lambda s: s.branch(fail, name="step")[0],
    "window": lambda s: keyed(s).window(sc.Tumbling("1s"), name="step").aggregate(sc.Sum(fail)),
}


@pytest.mark.parametrize("kind", FAILING)
def test_what_cannot_be_diverted_fails_the_job(kind: str) -> None:
    job = sc.Job("job")
    step = FAILING[kind](numbers(job, timed=True))
    step.rebalance().sink(sc.discard(), name="out")
    if kind.startswith(("key_by", "on_timer")):
        step.errors.rebalance().sink(sc.discard(), name="errors")
    with pytest.raises(sc.JobFailed, match="ValueError: no"):
        run_job(job)


def test_timestamps_fail_the_job() -> None:
    job = sc.Job("job")
    marks = sc.Watermarks[int](fail)
    job.source(sc.items([1]), name="numbers", watermarks=marks).sink(sc.discard(), name="out")
    with pytest.raises(sc.JobFailed, match="ValueError: no"):
        run_job(job)


def test_dead_letters_are_in_their_file_once_also_after_a_crash(tmp_path: Path) -> None:
    letters, out = tmp_path / "letters", tmp_path / "out"

    @sc.source
    async def slowly(position: int = 0) -> AsyncIterator[tuple[int, int]]:
        for number in range(position, 40):
            await asyncio.sleep(0.1)
            yield number, number + 1

    def job() -> sc.Job:
        checkpoints = sc.Checkpoints(to=tmp_path / "checkpoints", every="500ms")
        job = sc.Job("letters", checkpoints=checkpoints)
        step = job.source(slowly(), name="numbers").map(odd_fails_later, **DIVERT)
        step.sink(sc.files.json_lines(out), name="out")
        told = step.errors.map(lambda failure: {"record": failure.record, "error": failure.error})
        told.sink(sc.files.json_lines(letters), name="letters")
        return job

    assert run_job(job(), use=killed_after(1.7, checkpoints=0)) is None
    run_job(job())
    lines = [line for file in letters.glob("*.jsonl") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["record"] for line in lines) == list(range(1, 40, 2))


def test_options_that_would_divert_are_refused_where_nothing_can_be() -> None:
    job = sc.Job("job")
    stream = numbers(job, timed=True)
    refused: tuple[Callable[[], Any], ...] = (
        lambda: keyed(stream).reduce(fail, on_error="divert"),
        lambda: keyed(stream).scan(int, fail, on_error="divert"),
        lambda: stream.branch(fail, on_error="divert"),
        lambda: keyed(stream).window(sc.Tumbling("1s"), on_error="divert"),
    )
    for draw in refused:
        with pytest.raises(sc.DefinitionError, match="no option 'on_error'"):
            draw()
