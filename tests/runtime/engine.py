"""One process of a job without its coordinator: the test triggers, and reads what was written."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import streamcp as sc
from streamcp.checkpoint.failure_reason import FailureReason
from streamcp.checkpoint.plan import Trigger, make_plan
from streamcp.checkpoint.snapshot import Acknowledgement, Manifest, Section, SectionHandle
from streamcp.clock import Clock
from streamcp.errors import StorageError
from streamcp.graph.physical import PhysicalPlan, plan
from streamcp.identifiers import SubtaskId
from streamcp.observability.events import Event
from streamcp.operators.steps import SourceStep
from streamcp.runners.life import make_registry
from streamcp.runners.matching import check_fits, plan_for, task_shapes
from streamcp.runners.placing import restore
from streamcp.runners.restoring import Restorable
from streamcp.runners.wiring import wire
from streamcp.runtime.gateway import TaskContext
from streamcp.runtime.replay import Replay
from streamcp.runtime.snapshots import SnapshotWriter
from streamcp.runtime.subtask import Subtask
from streamcp.runtime.work_list import BarrierWorkList
from streamcp.serialization.deserializer import Deserializer
from streamcp.serialization.registry import TypeRegistry
from streamcp.serialization.serializer import Serializer
from streamcp.testing.clock import ManualClock
from streamcp.testing.loop import VirtualTimeLoop


class Upward:
    """What the tasks told."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, dict[SubtaskId, Acknowledgement]] = {}
        self.declined: list[tuple[str, int, FailureReason, str]] = []
        self.ended: list[str] = []
        self.commits: list[str] = []
        self.requests = 0
        self.looks = 0
        self.on_look: list[Any] = []

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        found = self.acknowledged.setdefault(acknowledgement.checkpoint_id, {})
        assert acknowledgement.subtask not in found, "acknowledged twice"
        found[acknowledgement.subtask] = acknowledgement

    def decline(
        self, subtask: SubtaskId, checkpoint_id: int, reason: FailureReason, detail: str
    ) -> None:
        self.declined.append((str(subtask), checkpoint_id, reason, detail))

    def subtask_ended(self, subtask: SubtaskId) -> None:
        self.ended.append(str(subtask))

    def committed(self, subtask: SubtaskId) -> None:
        self.commits.append(str(subtask))

    def request_checkpoint(self) -> None:
        self.requests += 1

    def look(self, now: float) -> None:
        self.looks += 1
        while self.on_look:
            self.on_look.pop(0)()


class Disk:
    """Keeps what was written; `fail` makes the next write fail. If all is `small`, it is deferred,
    and kept in `deferred`."""

    def __init__(self) -> None:
        self.written: dict[int, list[tuple[SubtaskId, Section]]] = {}
        self.deferred: dict[int, list[tuple[SubtaskId, Section]]] = {}
        self.fail = False
        self.small = False

    def write_data(
        self, checkpoint_id: int, sections: Sequence[tuple[SubtaskId, Section]]
    ) -> list[SectionHandle]:
        if self.fail:
            raise StorageError("the disk is full")
        self.written[checkpoint_id] = list(sections)
        return self._handles(checkpoint_id, sections)

    def defer_data(
        self, checkpoint_id: int, sections: Sequence[tuple[SubtaskId, Section]]
    ) -> list[SectionHandle] | None:
        if not self.small:
            return None
        if self.fail:
            raise StorageError("the checkpoint has ended already")
        self.deferred[checkpoint_id] = list(sections)
        return self._handles(checkpoint_id, sections)

    def _handles(
        self, checkpoint_id: int, sections: Sequence[tuple[SubtaskId, Section]]
    ) -> list[SectionHandle]:
        return [
            SectionHandle(
                section.kind,
                section.name,
                section.records,
                f"data-{checkpoint_id}",
                place,
                tuple(map(len, section.frames)),
                "",
                section.key_groups,
            )
            for place, (_, section) in enumerate(sections)
        ]


class Engine:
    """All subtasks of a job, wired; `running()` runs them."""

    def __init__(
        self,
        job: sc.Job,
        *,
        capacity: int = 1000,
        clock: Clock | None = None,
        keep_records: bool = True,
        durable: bool = True,
        staged_capacity: int = 10_000,
        attempt: int = 1,
        services: Any = None,
        physical: PhysicalPlan | None = None,
    ) -> None:
        self.job = job
        self.plan = physical if physical is not None else plan(job.graph)
        self.registry = make_registry(self.plan, job.types)
        self.serializer = Serializer(self.registry)
        self.upward = Upward()
        self.disk = Disk()
        self.events: list[Event] = []
        self.clock: Clock = clock if clock is not None else ManualClock(tick=1e-6)
        self.context = TaskContext(
            job=self.plan.job,
            attempt=attempt,
            max_parallelism=self.plan.max_parallelism,
            clock=self.clock,
            serializer=self.serializer,
            coordinator=self.upward,
            task_count=1,
            keep_records=keep_records,
            staged_capacity=staged_capacity,
            services=services or {},
            report=self.events.append,
        )
        self.snapshots = SnapshotWriter(self.context, self.disk if durable else None)
        self.work_list = BarrierWorkList(self.context, self.snapshots)
        self.subtasks: Sequence[Subtask] = wire(
            self.plan, self.context, self.snapshots, self.work_list, capacity
        )
        self.replay = Replay(self.subtasks, self.plan.downstream())
        self.finished_in_plan: dict[int, frozenset[SubtaskId]] = {}

    def __getitem__(self, name: str) -> Any:
        """The subtask `name[0]`, or `name` with an index."""
        wanted = name if name.endswith("]") else f"{name}[0]"
        return next(subtask for subtask in self.subtasks if str(subtask.id) == wanted)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Engine]:
        """Run all subtasks; at the end those that still run are cancelled."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.snapshots.run(), name="snapshots")]
            tasks += [
                group.create_task(subtask.run_guarded(), name=str(subtask.id))
                for subtask in self.subtasks
                if not subtask.finished
            ]
            yield self
            for task in tasks:
                task.cancel()

    def trigger(
        self, checkpoint_id: int, *, unaligned: bool = True, stopping: bool = False
    ) -> Trigger:
        """Begin a checkpoint as the coordinator does."""
        sources = {
            subtask.id
            for subtask in self.subtasks
            if isinstance(next(iter(subtask.chain.meters)).spec, SourceStep)
        }
        everyone = tuple(self.plan.subtasks())
        finished = frozenset(subtask.id for subtask in self.subtasks if subtask.finished)
        parts = make_plan(everyone, self.plan.senders(), sources, finished)
        trigger = Trigger(
            checkpoint_id,
            unaligned,
            parts.finished,
            frozenset(parts.triggered),
            self.clock.monotonic(),
            stopping,
        )
        self.work_list.start(trigger)
        return trigger

    def whole(self, checkpoint_id: int) -> bool:
        """Every subtask has acknowledged."""
        return len(self.upward.acknowledged.get(checkpoint_id, ())) == len(self.subtasks)

    async def until_acknowledged(self, checkpoint_id: int) -> None:
        """Wait until every subtask has acknowledged."""
        declined = self.upward.declined
        await until(lambda: self.whole(checkpoint_id) or checkpoint_id in (d[1] for d in declined))
        assert self.whole(checkpoint_id), declined

    async def until_whole(self, checkpoint_id: int) -> None:
        """Wait until every subtask has acknowledged, and tell that the checkpoint is complete."""
        await self.until_acknowledged(checkpoint_id)
        self.work_list.notify_complete(checkpoint_id)

    def contents(self, checkpoint_id: int) -> dict[tuple[str, str], list[Any]]:
        """What was written of (subtask, kind), frame by frame, read back."""
        reader = Deserializer(self.serializer.classes(), self.registry)
        found: dict[tuple[str, str], list[Any]] = {}
        for subtask, section in self.disk.written[checkpoint_id]:
            values = found.setdefault((str(subtask), section.kind), [])
            values += [reader.loads(frame) for frame in section.frames]
        return found

    def restorable(self, checkpoint_id: int) -> Restorable:
        """The checkpoint as a restore reads it."""
        acknowledgements = tuple(self.upward.acknowledged[checkpoint_id].values())
        frames = {
            (one.subtask, handle): list(self.disk.written[checkpoint_id][handle.offset][1].frames)
            for one in acknowledgements
            for handle in one.sections
        }
        manifest = Manifest(
            job=self.plan.job,
            checkpoint_id=checkpoint_id,
            attempt=1,
            mode="unaligned",
            triggered_at=0,
            completed_at=0,
            max_parallelism=self.plan.max_parallelism,
            tasks=task_shapes(self.plan),
            acknowledgements=acknowledgements,
            classes=self.serializer.classes(),
        )
        return Restorable(manifest, frames)

    def restored(self, checkpoint_id: int, job: sc.Job | None = None, **options: Any) -> Engine:
        """A new engine, of the same job or of one that is built anew, from a checkpoint."""
        job, restorable = job if job is not None else self.job, self.restorable(checkpoint_id)
        physical = plan_for(job.graph, restorable.manifest)
        check_fits(physical, restorable.manifest)
        new = Engine(job, attempt=2, physical=physical, **options)
        if restore(new.plan, new.subtasks, restorable, new.registry).staged:
            new.replay.begin()
        return new


def bare_context(clock: Clock, report: Callable[[Event], object]) -> TaskContext:
    """What a part of a task needs that writes no snapshot and tells no coordinator."""
    return TaskContext(
        job="job",
        attempt=1,
        max_parallelism=128,
        clock=clock,
        serializer=Serializer(TypeRegistry()),
        coordinator=Upward(),
        task_count=1,
        keep_records=False,
        staged_capacity=1,
        report=report,
    )


async def settle(turns: int = 100) -> None:
    """Let every task run until it waits."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def until(condition: Any, turns: int = 20_000) -> None:
    """Give the tasks their turns until `condition()` holds; threads get time too, whole
    milliseconds: a shorter wait is none on uvloop."""
    for turn in range(turns):
        if condition():
            return
        await asyncio.sleep(0 if turn < 200 else 0.001)
    raise AssertionError(f"it never came true: {condition}")


def moments(first: int, end: int, step: int) -> range:
    """When to cut a job, in turns of its tasks. Both loops give these in one order, so that a
    moment is the same on both: each loop has every other one."""
    if isinstance(asyncio.get_running_loop(), VirtualTimeLoop):
        return range(first, end, 2 * step)
    return range(first + step, end, 2 * step)


async def cut(engine: Engine, turns: int, *, unaligned: bool = True) -> None:
    """Run a job for so many turns, and on until checkpoint 1 is acknowledged."""
    async with engine.running():
        await settle(turns)
        engine.trigger(1, unaligned=unaligned)
        await engine.until_acknowledged(1)


async def finish(engine: Engine) -> None:
    """Run a job until every subtask has ended."""
    async with engine.running():
        await until(lambda: all(subtask.ended for subtask in engine.subtasks))


class Gate:
    """An awaitable place at which calls wait until the test lets them pass."""

    def __init__(self) -> None:
        self.waiting: dict[Any, asyncio.Future[Any]] = {}
        self.order: list[Any] = []

    async def pass_(self, name: Any) -> None:
        """Wait until `open(name)`; those that wait under one name pass together."""
        self.order.append(name)
        future = self.waiting.get(name)
        if future is None or future.done():
            future = self.waiting[name] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.shield(future)
        finally:
            if self.waiting.get(name) is future:
                del self.waiting[name]

    def open(self, *names: Any) -> None:
        """Let calls pass; all that wait if no name is given."""
        for name in names or tuple(self.waiting):
            future = self.waiting[name]
            if not future.done():
                future.set_result(None)


class Outputs:
    """What comes out of a step, and its diverted errors; `gate`, if there is one, holds writes."""

    def __init__(self) -> None:
        self.out: list[Any] = []
        self.errors: list[Any] = []
        self.gate: Gate | None = None

    def collect(self, step: sc.Step[Any, Any], *, diverts: bool) -> None:
        """End the stream of `step`, and that of its errors if it diverts them."""
        step.rebalance().sink(self.write, name="out")
        if diverts:
            step.errors.rebalance().sink(self.write_errors, name="errors")

    async def write(self, records: Sequence[Any]) -> None:
        if self.gate is not None:
            await self.gate.pass_("write")
        self.out += records

    async def write_errors(self, records: Sequence[Any]) -> None:
        self.errors += records
