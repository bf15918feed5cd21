"""The outside world of a job under test: targets that outlive it, and running it in virtual time.

The disk is at rest between two callbacks: copying it then, with the targets, gives exactly what a
killed process leaves behind.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import streamcp as sc
from streamcp.observability import events
from streamcp.runners.handle import JobHandle, JobResult
from streamcp.testing import running
from streamcp.testing.running import Use, VirtualRuns


class Target:
    """A system outside: what was written lies in `open` until its transaction is committed."""

    def __init__(self) -> None:
        self.open: dict[str, list[Any]] = {}
        self.prepared: set[str] = set()
        self.committed: dict[str, list[Any]] = {}

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


@contextmanager
def no_fsync() -> Iterator[None]:
    """Nothing here takes the power away."""
    with mock.patch.object(os, "fsync", autospec=True):
        yield


def run_job(
    job: sc.Job, *, seed: int = 0, use: Use | None = None, **arguments: Any
) -> JobResult | None:
    """As `running.run_job`."""
    with no_fsync():
        return running.run_job(job, seed=seed, use=use, **arguments)


class Copies(VirtualRuns):
    """Runs several copies of a job in one loop in virtual time."""

    def run(self, main: Callable[[], Any]) -> Any:
        with no_fsync():
            return super().run(main)


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
