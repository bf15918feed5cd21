"""Between the failure of a subtask and the end of its attempt some turns pass; a checkpoint that is
triggered then must not complete: records of the slice that failed are nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import streamcp as sc
from tests.runtime.engine import Engine


def fail_at_five(record: int) -> int:
    if record == 5:
        raise ValueError("five")
    return record


async def hop(record: int) -> int:
    return record


def fused_behind_an_exchange(stream: Any) -> Any:
    return stream.rebalance().map(fail_at_five, name="fails", parallelism=1)


def fused_behind_calls(stream: Any) -> Any:
    return stream.map(hop, name="fails").map(fail_at_five)


def fused_behind_keyed_calls(stream: Any) -> Any:
    async def fn(record: int, state: list[int], ctx: sc.KeyContext[int]) -> list[int]:
        return [record]

    keyed = stream.key_by(lambda record: record % 3)
    return keyed.process(fn, state=list, name="fails").map(fail_at_five)


def in_the_source(stream: Any) -> Any:
    return stream.map(fail_at_five)


SHAPES = [fused_behind_an_exchange, fused_behind_calls, fused_behind_keyed_calls, in_the_source]


@pytest.mark.parametrize("add", SHAPES)
async def test_snapshot_after_a_failure_is_declined(add: Callable[[Any], Any]) -> None:
    async def write(records: Sequence[int]) -> None:
        """Take everything."""

    job = sc.Job("job")
    add(job.source(sc.items(range(10)), name="source")).sink(write, name="out")
    engine = Engine(job)
    by_name = {one.id.task: one for one in engine.subtasks}
    failed = by_name.get("fails", by_name["source"])

    async def trigger_when_it_has_failed() -> None:
        async with engine.running():
            [task] = [one for one in asyncio.all_tasks() if one.get_name() == str(failed.id)]
            task.add_done_callback(lambda task: engine.trigger(1))
            await asyncio.Event().wait()

    with pytest.raises(BaseExceptionGroup):
        await trigger_when_it_has_failed()
    assert (str(failed.id), 1) in [(str(one[0]), one[1]) for one in engine.upward.declined]
