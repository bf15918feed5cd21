"""The picture of a running job tells how far event time has come, step by step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson

import streamcp as sc
from streamcp.runners.handle import JobHandle
from streamcp.testing.running import run_job


@sc.source
async def ticks(position: int = 0) -> AsyncIterator[tuple[int, int]]:
    for number in range(position, 100):
        yield number * 1000, number + 1
        await asyncio.sleep(1)


async def slowly(tick: int) -> int:
    await asyncio.sleep(3.5)
    return tick


def seen_at(seconds: float, **options: Any) -> dict[str, Any]:
    """What the view tells of a job after so long, as JSON gives it."""
    seen: dict[str, Any] = {}

    async def use(handle: JobHandle) -> None:
        await asyncio.sleep(seconds)
        seen.update(orjson.loads(orjson.dumps(handle.view().as_dict())))
        raise asyncio.CancelledError

    job = sc.Job("ticks")
    read = job.source(ticks(), name="ticks", **options)
    read.map(slowly, name="slow").map(str, name="text").sink(sc.discard(), name="out")
    run_job(job, use=use)
    return seen


def watermarks(view: dict[str, Any]) -> dict[str, int | None]:
    return {step["name"]: step["watermark"] for task in view["tasks"] for step in task["steps"]}


def test_each_step_tells_how_far_event_time_has_come_there() -> None:
    view = seen_at(6.2, watermarks=sc.Watermarks(lambda tick: tick))
    assert watermarks(view) == {"ticks": 5999, "slow": 1999, "text": 1999, "out": 1999}
    assert view["time"] > 1_000_000_000_000


def test_without_event_time_none_is_told() -> None:
    assert set(watermarks(seen_at(6.2)).values()) == {None}


def test_before_the_first_watermark_none_is_told() -> None:
    view = seen_at(0.5, watermarks=sc.Watermarks(lambda tick: tick))
    assert watermarks(view) == {"ticks": -1, "slow": None, "text": None, "out": None}
