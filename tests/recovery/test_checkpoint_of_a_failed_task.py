"""A task that has failed, and has not ended yet, is in no checkpoint: it has lost what it had in
hand."""

from __future__ import annotations

import asyncio
from pathlib import Path

import streamcp as sc
from streamcp.runners.handle import JobHandle
from streamcp.testing.running import run_job


def test_checkpoint_while_a_failed_step_still_ends_its_calls_does_not_complete(
    tmp_path: Path,
) -> None:
    failures = iter([True])
    failed = asyncio.Event()

    async def ask(number: int) -> int:
        if number:
            try:
                await asyncio.sleep(0.5)
            finally:
                await asyncio.sleep(0.1)  # its end takes time
        return number

    def add(number: int) -> int:
        if number == 0 and next(failures, False):
            failed.set()
            raise ValueError("once")
        return number + 1

    out = sc.collect()
    job = sc.Job(
        "x",
        checkpoints=sc.Checkpoints(to=tmp_path, mode="unaligned"),
        restart=sc.Restart.fixed_delay(attempts=2, delay="1ms"),
    )
    asked = job.source(sc.items([0, 1]), name="numbers").map(ask, name="ask", concurrency=2)
    asked.map(add, name="add").sink(out, name="out")

    async def use(handle: JobHandle) -> None:
        await failed.wait()
        asking = asyncio.get_running_loop().create_task(handle.checkpoint())
        await asyncio.wait([asking])
        asking.exception()
        await handle.wait_finished()

    run_job(job, use=use)
    assert sorted(set(out.records)) == [1, 2]
