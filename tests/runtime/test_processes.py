"""`executor="process"`: functions are found, not pickled; records and results go there and back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import streamcp as sc
from tests.runtime.engine import Engine, Outputs, finish, until

# Processes are slow to begin; one loop is enough.
one_loop = pytest.mark.asyncio(loop_factories=["fastest"])


@dataclass
class Item:
    number: int
    tags: list[str] = field(default_factory=list)


class Odd(Exception):
    """Cannot be read back: its arguments are not those of its constructor."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"{number}: {why}")


class Bench(Outputs):
    def __init__(
        self, fn: Any, records: Sequence[Any] = range(4), verb: str = "map", **options: Any
    ) -> None:
        super().__init__()
        self.job = sc.Job("job", types=[Item])
        stream: Any = self.job.source(sc.items(records), name="source").rebalance()
        options = {"concurrency": 2, **options}
        step = getattr(stream, verb)(fn, name="step", executor="process", **options)
        self.collect(step, diverts=options.get("on_error") == "divert")


@one_loop
async def test_local_functions_run_in_other_processes() -> None:
    factor = 3
    bench = Bench(lambda number: (number * factor, os.getpid()))
    await finish(Engine(bench.job))
    assert [number for number, _ in bench.out] == [0, 3, 6, 9]
    assert os.getpid() not in {pid for _, pid in bench.out}


@one_loop
async def test_generators_are_worked_off_there() -> None:
    def many(number: int) -> Iterator[tuple[int, bool]]:
        parent = os.getppid()
        yield number, parent == here
        yield -number, parent == here

    here = os.getpid()
    bench = Bench(many, range(1, 3), verb="flat_map")
    await finish(Engine(bench.job))
    assert bench.out == [(1, True), (-1, True), (2, True), (-2, True)]


@one_loop
async def test_errors_come_back_as_they_are_or_as_text() -> None:
    def fails(number: int) -> int:
        if number == 0:
            raise ValueError("no")
        if number == 1:
            raise Odd(number, "odd")
        if number == 2:
            raise StopIteration
        return number

    bench = Bench(fails, on_error="divert")
    await finish(Engine(bench.job))
    assert bench.out == [3]
    assert [failure.error for failure in bench.errors] == [
        "ValueError: no",
        "RuntimeError: Odd: 1: odd (an error that cannot be pickled)",
        "RuntimeError: it raised StopIteration",
    ]


@one_loop
async def test_results_that_cannot_be_pickled_are_failures() -> None:
    bench = Bench(lambda number: lambda: number, range(1), on_error="divert")
    await finish(Engine(bench.job))
    assert "pickle" in bench.errors[0].error


@one_loop
async def test_process_that_dies_fails_its_call_and_another_one_is_made() -> None:
    def dies(item: Item) -> Item:
        if item.number == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    records = [Item(0), Item(1), Item(2)]
    bench = Bench(dies, records, on_error="divert", concurrency=1)
    await finish(Engine(bench.job))
    assert bench.out == [Item(1), Item(2)]
    [failure] = bench.errors
    assert failure.record == Item(0)
    assert "a process of its executor has ended" in failure.error


@one_loop
async def test_outstanding_functions_are_called_again_after_a_restore(tmp_path: Path) -> None:
    gate, entered = tmp_path / "open", tmp_path / "entered"
    entered.mkdir()

    def wait(item: Item) -> Item:
        item.tags.append("changed")
        (entered / str(item.number)).touch()
        while not gate.exists():
            os.sched_yield()
        return item

    bench = Bench(wait, [Item(0), Item(1), Item(2)])
    engine = Engine(bench.job)
    async with engine.running():
        await until(lambda: len(list(entered.iterdir())) == 2)
        engine.trigger(1, unaligned=False)
        await engine.until_whole(1)
        gate.touch()
    bench.out.clear()
    await finish(engine.restored(1))
    assert bench.out == [Item(i, ["changed"]) for i in range(3)]


PROGRAM = """
import os, sys
import streamcp as sc

def work(number):
    os.write(1, b"%d\\n" % os.getpid())  # in one piece
    return number

@sc.source
async def stays(position: int = 0):
    import asyncio
    for i in range(2):
        yield i, i + 1
    await asyncio.Event().wait()

job = sc.Job("program")
job.source(stays()).map(work, executor="process", concurrency=2).sink(sc.discard())
job.run()
"""


def test_processes_end_with_the_jobs_own_also_if_that_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, str(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        pids = {int(job.stdout.readline()), int(job.stdout.readline())}
        assert job.pid not in pids
        job.kill()
        job.wait(timeout=30)
        assert job.stdout.read() == ""  # comes to its end when the last process has closed it
