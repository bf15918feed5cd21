"""One attempt of a job: build, restore, run until it ends or fails, close everything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from streamcp.channel.channel import Channel, NewChannel
from streamcp.clock import Clock
from streamcp.config import JobSettings
from streamcp.coordinator.coordinator import Coordinator
from streamcp.coordinator.gateway import JobFacts
from streamcp.errors import StepFailed
from streamcp.graph.physical import PhysicalPlan
from streamcp.identifiers import KeptTransactions, SubtaskId, transaction_prefix
from streamcp.observability import events
from streamcp.operators.steps import Call, Opener, SourceStep
from streamcp.runners.journaling import has_journaled, open_journal
from streamcp.runners.matching import task_shapes
from streamcp.runners.placing import restore
from streamcp.runners.restoring import Restorable
from streamcp.runners.tasks import LocalTasks
from streamcp.runners.wiring import wire
from streamcp.runtime.calling import failure_of
from streamcp.runtime.gateway import TaskContext
from streamcp.runtime.journal import Journal
from streamcp.runtime.replay import Replay
from streamcp.runtime.sink_subtask import SinkSubtask
from streamcp.runtime.snapshots import SnapshotWriter
from streamcp.runtime.strictness import Lenient, Strict
from streamcp.runtime.subtask import Subtask
from streamcp.runtime.work_list import BarrierWorkList
from streamcp.serialization.registry import TypeRegistry
from streamcp.serialization.serializer import Serializer
from streamcp.storage.contract import CheckpointStorage

# A staged sink holds up to so many channels full of records between two checkpoints.
STAGED_CHANNELS = 10


@dataclass(frozen=True, slots=True)
class Prepared:
    """What an attempt starts from. `fork` is in the names of its transactions; those of all
    `forks` that the job ever had are its own (rule P30). `life` is in the ids of its calls."""

    plan: PhysicalPlan
    settings: JobSettings
    registry: TypeRegistry
    storage: CheckpointStorage | None
    number: int
    next_checkpoint_id: int
    restorable: Restorable | None
    fork: str = ""
    forks: tuple[str, ...] = ("",)
    new_channel: NewChannel = Channel
    life: str = ""


class Attempt:
    """One attempt. `subtasks` and `coordinator` are there from the beginning of `run`."""

    def __init__(self, prepared: Prepared, clock: Clock, log: events.EventLog) -> None:
        self._prepared = prepared
        self._clock = clock
        self._log = log
        self.number = prepared.number
        self.subtasks: Sequence[Subtask] = ()
        self.serializer = Serializer(prepared.registry)
        self._journal: Journal | None = None
        self.coordinator = Coordinator(
            self._facts(),
            prepared.settings.checkpoints,
            prepared.storage,
            self.serializer.classes,
            clock,
            log,
            prepared.next_checkpoint_id,
        )

    def _facts(self) -> JobFacts:
        plan = self._prepared.plan
        subtasks = tuple(plan.subtasks())
        sources = frozenset(
            SubtaskId(task.name, index)
            for task in plan.tasks
            if isinstance(task.head.spec, SourceStep)
            for index in range(task.parallelism)
        )
        return JobFacts(
            plan.job,
            self._prepared.number,
            plan.max_parallelism,
            task_shapes(plan),
            subtasks,
            plan.senders(),
            sources,
            self._prepared.fork,
            self._prepared.life,
        )

    async def run(self, on_running: Callable[[], None]) -> str:
        """Run to the end; return "finished" or "stopped". Raises what ended it otherwise."""
        started = self._clock.monotonic()
        async with AsyncExitStack() as stack:
            context = await self._make_context(stack)
            await self._open_journal(context, stack)
            snapshots = SnapshotWriter(context, self._prepared.storage)
            work_list = BarrierWorkList(context, snapshots)
            plan = self._prepared.plan
            self.subtasks = wire(
                plan,
                context,
                snapshots,
                work_list,
                self._prepared.settings.channel_capacity,
                self._prepared.new_channel,
            )
            replay = Replay(self.subtasks, plan.downstream())
            self._restore(replay)
            await self._open_sinks(stack)
            self._tell_started(started)
            tasks = LocalTasks(plan, self.subtasks, work_list, context, replay)
            await self._run_tasks(snapshots, tasks, on_running)
        outcome = self.coordinator.outcome
        assert outcome is not None
        return outcome

    async def _make_context(self, stack: AsyncExitStack) -> TaskContext:
        prepared = self._prepared
        subtasks = sum(task.parallelism for task in prepared.plan.tasks)
        checkpoints = prepared.settings.checkpoints
        return TaskContext(
            job=prepared.plan.job,
            attempt=prepared.number,
            max_parallelism=prepared.plan.max_parallelism,
            clock=self._clock,
            serializer=self.serializer,
            coordinator=self.coordinator,
            task_count=subtasks,
            keep_records=prepared.storage is not None,
            staged_capacity=STAGED_CHANNELS * prepared.settings.channel_capacity,
            at_least_once=checkpoints is not None and checkpoints.mode == "at_least_once",
            incremental=checkpoints is not None and checkpoints.incremental,
            services={
                opener: await stack.enter_async_context(opener())
                for opener in _openers(prepared.plan)
            },
            fork=prepared.fork,
            life=prepared.life,
            strict=self._strict(),
            report=self._log.record,
        )

    def _strict(self) -> Lenient:
        prepared = self._prepared
        if not prepared.settings.strict:
            return Lenient()
        snapshots = prepared.storage is not None
        return Strict(prepared.registry, self.serializer, snapshots=snapshots)

    async def _open_journal(self, context: TaskContext, stack: AsyncExitStack) -> None:
        """Find the answers of calls that lie behind what is restored; write what comes."""
        prepared = self._prepared
        if prepared.storage is None or not has_journaled(prepared.plan):
            return
        journal = await open_journal(
            prepared.storage,
            context,
            prepared.restorable,
            prepared.registry,
        )
        context.journal = self._journal = journal
        stack.push_async_callback(self._close_journal, journal)

    async def _close_journal(self, journal: Journal) -> None:
        await journal.finish(is_over=self.coordinator.outcome == "finished")

    def _restore(self, replay: Replay) -> None:
        prepared = self._prepared
        if prepared.restorable is not None:
            assignment = restore(
                prepared.plan, self.subtasks, prepared.restorable, prepared.registry
            )
            if assignment.staged:
                replay.begin()

    async def _open_sinks(self, stack: AsyncExitStack) -> None:
        """Open every sink, and let it remove what no checkpoint names, before any one writes."""
        for subtask in self.subtasks:
            await subtask.open(stack)
        sinks = [subtask for subtask in self.subtasks if isinstance(subtask, SinkSubtask)]
        for sink in sinks:
            kept = {
                name
                for other in sinks
                if other.step == sink.step
                for name in other.kept_transactions()
            }
            for fork in self._prepared.forks:
                prefix = transaction_prefix(self._prepared.plan.job, sink.step, fork)
                await sink.abort_others(prefix, KeptTransactions(kept, self.number))

    def _tell_started(self, started: float) -> None:
        job, now = self._prepared.plan.job, self._clock.wall_ms()
        restorable = self._prepared.restorable
        if restorable is None:
            self._log.record(events.JobStarted(now, job, self.number))
            return
        self._log.record(
            events.JobRestored(
                now,
                job,
                self.number,
                restorable.manifest.checkpoint_id,
                self._clock.monotonic() - started,
                restorable.in_flight_records,
                restorable.savepoint,
            )
        )

    async def _run_tasks(
        self, snapshots: SnapshotWriter, tasks: LocalTasks, on_running: Callable[[], None]
    ) -> None:
        coordinator = self.coordinator
        coordinator.begin(tasks)
        try:
            async with asyncio.TaskGroup() as group:
                running = [
                    group.create_task(coordinator.run(), name="coordinator"),
                    group.create_task(coordinator.run_disk(), name="coordinator disk"),
                    group.create_task(snapshots.run(), name="snapshots"),
                ]
                if self._journal is not None:
                    running.append(group.create_task(self._journal.run(), name="journal"))
                running += [
                    group.create_task(_run(subtask), name=str(subtask.id))
                    for subtask in self.subtasks
                    if not subtask.finished
                ]
                if tasks.all_ended():
                    coordinator.subtask_ended(self.subtasks[0].id)
                on_running()
                await coordinator.ended.wait()
                for task in running:
                    task.cancel()
        finally:
            await coordinator.finish_disk_work()


async def _run(subtask: Subtask) -> None:
    """Run a subtask; a CancelledError of user code is a failure, else it would end unnoticed."""
    try:
        await subtask.run_guarded()
    except asyncio.CancelledError as error:
        raise StepFailed(f"task {subtask.id}: {failure_of(error)}") from error


def _openers(plan: PhysicalPlan) -> list[Opener]:
    """Every opener once, in the order of the steps."""
    openers: dict[Any, None] = {}
    for task in plan.tasks:
        for node in task.members:
            if isinstance(node.spec, Call) and node.spec.uses is not None:
                openers[node.spec.uses] = None
    return list(openers)
