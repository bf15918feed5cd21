"""The outside world of a job under test: targets that outlive it, and running it in virtual time.

Threads run inline, so that a run is a function of its seed and the disk is at rest between two
callbacks: copying it then, with the targets, gives exactly what a killed process leaves behind.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import anyio.to_thread
from typing_extensions import TypeVarTuple

import streamcp as sc
from streamcp.observability import events
from streamcp.runners.handle import JobHandle, JobResult
from streamcp.runners.life import JobLife
from streamcp.testing.clock import ManualClock
from streamcp.testing.loop import VirtualTimeLoop

Use = Callable[[JobHandle], Awaitable[None]]
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Target:
    """A system outside: what was written lies in `open` until its transaction is committed."""

    def __init__(self) -> None:
        self.open: dict[str, list[Any]] = {}
        self.prepared: set[str] = set()
        self.committed: dict[str, list[Any]] = {}
        self.plain: list[Any] = []

    def copy(self) -> Target:
        twin = Target()
        twin.open = {name: list(records) for name, records in self.open.items()}
        twin.prepared = set(self.prepared)
        twin.committed = dict(self.committed)
        twin.plain = list(self.plain)
        return twin

    def records(self, sink: str) -> list[Any]:
        """What readers of committed data of one sink see."""
        return [
            record
            for name, records in self.committed.items()
            if name.split(".")[1] == sink
            for record in records
        ]


class TargetSink:
    """A sink into a target; `world` is told of every call, and may fail it."""

    def __init__(self, target: Target, call: Callable[[], None], turns: int = 0) -> None:
        self.target = target
        self._call = call
        self._turns = turns

    async def write(self, records: Sequence[Any], transaction: sc.Transaction, /) -> None:
        self._call()
        for _ in range(self._turns):
            await asyncio.sleep(0)
        assert transaction.id not in self.target.prepared, "a prepared transaction was written to"
        self.target.open.setdefault(transaction.id, []).extend(records)

    async def prepare(self, transaction: sc.Transaction, /) -> str:
        self._call()
        await asyncio.sleep(0)
        self.target.prepared.add(transaction.id)
        return transaction.id

    async def commit(self, transaction: sc.Transaction, token: str, /) -> None:
        self._call()
        assert token == transaction.id
        await asyncio.sleep(0)
        if transaction.id not in self.target.committed:
            self.target.committed[transaction.id] = self.target.open.pop(transaction.id, [])


class TransactionalTargetSink(TargetSink):
    """Written directly: what no checkpoint names must be removed."""

    async def abort(self, transaction: sc.Transaction, /) -> None:
        self.target.open.pop(transaction.id, None)
        self.target.prepared.discard(transaction.id)

    async def abort_others(self, prefix: str, kept: Collection[str]) -> None:
        for name in [*self.target.open]:
            if name.startswith(prefix) and name not in kept:
                await self.abort(sc.Transaction(name))

    async def commit(self, transaction: sc.Transaction, token: str, /) -> None:
        known = transaction.id in self.target.prepared or transaction.id in self.target.committed
        assert known, f"{transaction.id} was committed, but never prepared, or aborted"
        await super().commit(transaction, token)


class StagedTargetSink(TargetSink):
    """Delivered after completion, in one go; a second delivery replaces the first."""

    async def write(self, records: Sequence[Any], transaction: sc.Transaction, /) -> None:
        self._call()
        for _ in range(self._turns):
            await asyncio.sleep(0)
        self.target.open[transaction.id] = list(records)


class JitterClock(ManualClock):
    """Every reading costs a random time, so that slices and turns have random lengths."""

    __slots__ = ("_random",)

    def __init__(self, rnd: random.Random) -> None:
        super().__init__()
        self._random = rnd

    def monotonic(self) -> float:
        self.advance(self._random.choice((1e-6, 1e-6, 1e-5, 2e-4)))
        return super().monotonic()


class InlineLoop(VirtualTimeLoop):
    """Virtual time, and threads that run inline; `on_turn` is called between two turns."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.on_turn: Callable[[], None] = lambda: None

    def _run_once(self) -> None:
        super()._run_once()  # type: ignore[misc]
        self.on_turn()

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        return asyncio.ensure_future(_called(partial(func, *args)), loop=self)


async def _called(call: Callable[[], T]) -> T:
    return call()


@contextmanager
def inline_threads(rnd: random.Random) -> Iterator[None]:
    """Run what is meant for threads inline, after and before some turns of the loop."""

    async def run_sync(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        for _ in range(rnd.randint(0, 3)):
            await asyncio.sleep(0)
        result = function(*args)
        for _ in range(rnd.randint(0, 3)):
            await asyncio.sleep(0)
        return result

    no_sync = mock.patch.object(os, "fsync", autospec=True)
    with mock.patch.object(anyio.to_thread, "run_sync", run_sync), no_sync:
        yield


def life_of(job: sc.Job, clock: ManualClock, **arguments: Any) -> JobLife:
    """What `job.start(**arguments)` runs, with a clock of ours."""
    settings = job.settings(**arguments)
    job.validate(settings)
    return JobLife(job.graph, settings, job.types, clock=clock)


def run_job(
    job: sc.Job,
    *,
    seed: int = 0,
    use: Use | None = None,
    on_turn: Callable[[JobLife], None] | None = None,
    **arguments: Any,
) -> JobResult | None:
    """Run `job` in virtual time until it ends; `use` acts on its handle meanwhile.

    `on_turn` and `use` may raise asyncio.CancelledError: then the job is cancelled, and None
    returned."""
    rnd = random.Random(seed)
    clock = JitterClock(rnd)
    loop = InlineLoop(clock)

    async def main() -> JobResult | None:
        life = life_of(job, clock, **arguments)
        task = asyncio.ensure_future(life.run())

        def turn() -> None:
            try:
                if on_turn is not None and not task.done():
                    on_turn(life)
            except asyncio.CancelledError:
                task.cancel()

        loop.on_turn = turn
        using = asyncio.ensure_future(_used(use, JobHandle(life, task)))
        await asyncio.wait([task, using], return_when=asyncio.FIRST_COMPLETED)
        if using.done() and (using.cancelled() or using.exception() is not None):
            task.cancel()
        await asyncio.wait([task])
        if not using.done():
            using.cancel()
            await asyncio.wait([using])
        elif not using.cancelled():
            using.result()
        return None if task.cancelled() else task.result()

    with inline_threads(rnd), asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main())


class Copies:
    """Runs several copies of a job in one loop in virtual time."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._clock = JitterClock(self._random)

    def run(self, main: Any) -> Any:
        with (
            inline_threads(self._random),
            asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(self._clock)) as runner,
        ):
            return runner.run(main())

    def start(self, job: sc.Job, **arguments: Any) -> tuple[JobHandle, asyncio.Task[JobResult]]:
        life = life_of(job, self._clock, **arguments)
        task = asyncio.ensure_future(life.run())
        return JobHandle(life, task), task


async def _used(use: Use | None, handle: JobHandle) -> None:
    if use is not None:
        await use(handle)


async def happened(handle: JobHandle, kind: type[events.Event]) -> None:
    """Wait for an event of that kind, unless there was one."""
    seen = asyncio.Event()

    def look(event: events.Event) -> None:
        if isinstance(event, kind):
            seen.set()

    unsubscribe = handle.events.subscribe(look)
    if not any(isinstance(event, kind) for event in handle.events.events()):
        await seen.wait()
    unsubscribe()


def copy_directory(source: Path, target: Path) -> Path:
    """Copy what a killed process leaves behind."""
    if source.exists():
        shutil.copytree(source, target)
    return target


def json_records(directory: Path) -> list[Any]:
    """What readers of a directory of JSON lines see."""
    return [
        json.loads(line)
        for file in sorted(directory.glob("[!.]*.jsonl"))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]


def transactional(target: Target, call: Callable[[], None] = lambda: None, turns: int = 0) -> Any:
    """Make a sink factory."""
    return partial(TransactionalTargetSink, target, call, turns)


def staged(target: Target, call: Callable[[], None] = lambda: None, turns: int = 0) -> Any:
    """Make a sink factory."""
    return partial(StagedTargetSink, target, call, turns)
