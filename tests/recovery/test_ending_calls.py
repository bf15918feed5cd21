"""What becomes of outstanding calls when a job stops or fails, and what calls see of whoever
started the job."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from streamcp.runners.handle import JobHandle
from tests.recovery.world import Target, run_job, staged

REQUEST: ContextVar[str] = ContextVar("request", default="nobody")


class Service:
    """Calls that return only when they may, and note how they end."""

    def __init__(self) -> None:
        self.began: list[int] = []
        self.ended: list[tuple[int, str]] = []
        self.may_return = False

    async def ask(self, number: int) -> None:
        self.began.append(number)
        try:
            await asyncio.sleep(0.001 if self.may_return else 3600)
        except asyncio.CancelledError:
            await asyncio.sleep(0.5)  # cleaning up takes its time
            self.ended.append((number, "cancelled"))
            raise
        self.ended.append((number, "returned"))


def job(directory: Path, kind: str, service: Service, target: Target) -> sc.Job:
    async def call(number: int) -> list[int]:
        await service.ask(number)
        return [number]

    async def keyed(number: int, state: list[int], ctx: sc.KeyContext[int]) -> list[list[int]]:
        state.append(number)
        await service.ask(number)
        return [[number, len(state)]]

    made = sc.Job("calls", checkpoints=sc.Checkpoints(to=directory))
    stream: Any = made.source(sc.items(range(6)), name="numbers")
    if kind == "keyed":
        stream = stream.key_by(lambda n: n).process(keyed, state=list, name="call", concurrency=3)
    else:
        stream = stream.map(call, name="call", concurrency=3, ordered=kind == "ordered")
    stream.sink(staged(target), name="out")
    return made


@pytest.mark.parametrize("kind", ["ordered", "unordered", "keyed"])
def test_stop_cancels_outstanding_calls_once_and_a_later_run_makes_them_again(
    tmp_path: Path, kind: str
) -> None:
    service, target = Service(), Target()

    async def stop(handle: JobHandle) -> None:
        await asyncio.sleep(1)
        assert (await handle.stop()).outcome == "stopped"

    run_job(job(tmp_path, kind, service, target), use=stop)
    assert service.began == [0, 1, 2], "no further call was started"
    assert sorted(service.ended) == [(0, "cancelled"), (1, "cancelled"), (2, "cancelled")]
    assert target.records("out") == []

    service.began.clear()
    service.may_return = True
    run_job(job(tmp_path, kind, service, target))
    assert sorted(service.began) == [0, 1, 2, 3, 4, 5]
    assert sorted(record[0] for record in target.records("out")) == [0, 1, 2, 3, 4, 5]
    if kind == "keyed":
        assert {record[1] for record in target.records("out")} == {1}


@pytest.mark.parametrize("kind", ["ordered", "keyed"])
def test_drain_waits_for_outstanding_calls(tmp_path: Path, kind: str) -> None:
    service, target = Service(), Target()
    service.may_return = True

    async def drain(handle: JobHandle) -> None:
        await handle.stop(drain=True)

    run_job(job(tmp_path, kind, service, target), use=drain)
    assert {how for _, how in service.ended} <= {"returned"}
    assert len(target.records("out")) == len(service.ended)


def test_failure_elsewhere_cancels_outstanding_calls_before_the_job_restarts(
    tmp_path: Path,
) -> None:
    service = Service()
    attempts: list[list[tuple[int, str]]] = []

    async def call(number: int) -> int:
        await service.ask(number)
        return number

    async def fail_once(number: int) -> None:
        await asyncio.sleep(1)
        attempts.append([*service.ended])
        if len(attempts) == 1:
            service.may_return = True
            raise ValueError("once")

    made = sc.Job("calls", restart=sc.Restart.fixed_delay(attempts=1, delay="1s"))
    made.source(sc.items([1, 2]), name="numbers").map(call, name="call").sink(sc.discard())
    made.source(sc.items([0]), name="other").for_each(fail_once, name="fail")
    run_job(made)
    assert attempts[0] == []
    assert [(number, "cancelled") for number in (1, 2)] == attempts[1][:2]
    assert sorted(service.ended[2:]) == [(1, "returned"), (2, "returned")]


def reading(seen: list[str]) -> sc.Job:
    """A job whose functions of every kind note a context variable, and set it."""

    def look(record: Any) -> Any:
        seen.append(REQUEST.get())
        return record

    async def call(record: int) -> int:
        look(record)
        REQUEST.set(f"of {record}")
        await asyncio.sleep(0)
        assert REQUEST.get() == f"of {record}"
        return record

    async def write(records: Any) -> None:
        look(records)
        REQUEST.set("of a write")

    made = sc.Job("reads")
    stream = made.source(sc.items(range(20)), name="in").map(call, concurrency=3)
    stream = stream.map(look, executor="thread").flat_map(lambda record: [look(record)])
    stream.key_by(lambda n: n % 3).process(
        lambda record, state, ctx: [look(record)], state=list, name="keyed"
    ).sink(write)
    return made


def test_functions_see_the_context_variables_of_run() -> None:
    REQUEST.set("the caller's")
    seen: list[str] = []
    reading(seen).run()
    assert set(seen) == {"the caller's"}
    assert REQUEST.get() == "the caller's"


async def test_functions_see_the_context_variables_of_start() -> None:
    REQUEST.set("the caller's")
    seen: list[str] = []
    async with reading(seen).start() as running:
        REQUEST.set("set later")
        await running.wait_finished()
    assert set(seen) == {"the caller's"}
