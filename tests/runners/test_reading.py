"""The state of a step, read while the job runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.runners.handle import JobHandle
from streamcp.testing.running import run_job


@dataclass
class Seen:
    numbers: list[int] = field(default_factory=list)


def note(number: int, seen: Seen, ctx: sc.KeyContext[int]) -> None:
    seen.numbers.append(number)


async def note_slowly(number: int, seen: Seen, ctx: sc.KeyContext[int]) -> None:
    seen.numbers.append(number)
    if number == 9:
        await asyncio.sleep(50)


def key_of(number: int) -> int:
    return number % 3


@sc.source
async def numbers(position: int = 0) -> AsyncIterator[tuple[int, int]]:
    for number in range(position, 10):
        yield number, number + 1
    await asyncio.sleep(100)


def make(fn: Any = note, p: int = 1, **options: Any) -> sc.Job:
    job = sc.Job("job", types=[Seen])
    keyed = job.source(numbers(), name="numbers").key_by(key_of)
    keyed.process(fn, state=Seen, name="seen", parallelism=p, **options).sink(
        sc.discard, name="out", parallelism=p
    )
    keyed.count(name="counted", parallelism=p).sink(sc.discard, name="end", parallelism=p)
    return job


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("executor", [None, "thread"])
def test_state_of_each_key_is_found_at_any_parallelism(
    parallelism: int, executor: str | None
) -> None:
    found: dict[int, Any] = {}
    counted: dict[int, Any] = {}

    async def use(running: JobHandle) -> None:
        state = running.state("seen")
        await asyncio.sleep(10)
        for key in range(4):
            found[key] = await state.get(key)
            counted[key] = await running.state("counted").get(key)

    run_job(make(p=parallelism, executor=executor), use=use)
    expected = {key: Seen([*range(key, 10, 3)]) for key in range(3)}
    assert found == expected | {3: None}
    assert counted == {0: 4, 1: 3, 2: 3, 3: None}


def test_what_an_outstanding_call_has_changed_is_not_seen() -> None:
    found: list[Any] = []

    async def use(running: JobHandle) -> None:
        for _ in range(2):
            await asyncio.sleep(30)
            found.append(await running.state("seen").get(0))

    run_job(make(note_slowly, concurrency=4), use=use)
    assert found == [Seen([0, 3, 6]), Seen([0, 3, 6, 9])]


def test_what_is_done_to_the_copy_does_not_reach_the_job() -> None:
    found: list[Any] = []

    async def use(running: JobHandle) -> None:
        await asyncio.sleep(10)
        (await running.state("seen").get(0)).numbers.clear()
        found.append(await running.state("seen").get(0))

    run_job(make(), use=use)
    assert found == [Seen([0, 3, 6, 9])]


def test_state_that_has_expired_is_none() -> None:
    found: list[Any] = []

    async def use(running: JobHandle) -> None:
        for _ in range(2):
            await asyncio.sleep(10)
            found.append(await running.state("seen").get(0))

    run_job(make(ttl="15s"), use=use)
    assert found == [Seen([0, 3, 6, 9]), None]


def test_wrong_step_is_refused_and_the_steps_with_state_are_named() -> None:
    async def use(running: JobHandle) -> None:
        running.state("numbers")

    with pytest.raises(sc.StreamcpError, match=r"no step 'numbers'.*: counted, seen"):
        run_job(make(), use=use)


def test_job_that_restarts_is_waited_for_and_one_that_has_ended_says_where_its_state_is(
    tmp_path: Path,
) -> None:
    found: list[Any] = []
    failed: list[str] = []

    def fail_once(number: int, seen: Seen, ctx: sc.KeyContext[int]) -> None:
        note(number, seen, ctx)
        if number == 9 and not failed:
            failed.append("once")
            raise ValueError("once")

    job = make(fail_once)
    handles: list[JobHandle] = []

    async def use(running: JobHandle) -> None:
        handles.append(running)
        await asyncio.sleep(0.5)  # the job has failed, and is restarting
        assert failed
        await running.state("seen").get(0)
        await asyncio.sleep(1)
        found.append(await running.state("seen").get(0))
        await running.wait_finished()

    run_job(job, use=use, checkpoints=sc.Checkpoints(to=tmp_path))
    assert found == [Seen([0, 3, 6, 9])]
    with pytest.raises(sc.StreamcpError, match=r"has ended.*streamcp checkpoints show"):
        asyncio.run(handles[0].state("seen").get(0))
