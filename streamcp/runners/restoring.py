"""Choosing a checkpoint to restore, reading it, and giving every subtask its part (rule P40)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamcp.checkpoint.snapshot import IN_FLIGHT, Manifest, SectionHandle, TaskShape
from streamcp.elements import Batch, EndOfInput
from streamcp.errors import CheckpointDamaged, RestoreRefused
from streamcp.graph.physical import PhysicalPlan, TaskPlan
from streamcp.identifiers import SubtaskId
from streamcp.operators.steps import SinkStep
from streamcp.runtime.source_subtask import SourceSubtask
from streamcp.runtime.subtask import Subtask
from streamcp.serialization.deserializer import Deserializer
from streamcp.serialization.registry import TypeRegistry
from streamcp.storage.contract import CheckpointStorage, CompletedCheckpoint
from streamcp.storage.savepoints import StoredSavepoint

_logger = logging.getLogger(__name__)

Frames = dict[tuple[SubtaskId, SectionHandle], list[bytes]]


@dataclass(frozen=True, slots=True)
class Restorable:
    """A checkpoint that was read whole, before anything is started; `savepoint` is its path, if
    it was read from one."""

    manifest: Manifest
    frames: Frames
    savepoint: str | None = None

    @property
    def names_transactions(self) -> bool:
        """Some sink may still have to commit what it wrote (rule P30)."""
        return any(handle.kind == "transactions" for _, handle in self.frames)

    @property
    def in_flight_records(self) -> int:
        """Records that were on their way."""
        return sum(handle.records for _, handle in self.frames if handle.kind in IN_FLIGHT)


def task_shapes(plan: PhysicalPlan) -> tuple[TaskShape, ...]:
    """Describe the tasks of a plan as a manifest records them."""
    return tuple(
        TaskShape(
            task.name,
            task.parallelism,
            tuple(node.label for node in task.members),
            tuple(node.label for node in task.members if _exactly_once(node.spec)),
        )
        for task in plan.tasks
    )


def _exactly_once(spec: Any) -> bool:
    return isinstance(spec, SinkStep) and spec.exactly_once


def choose(
    storage: CheckpointStorage,
    completed: Sequence[CompletedCheckpoint],
    plan: PhysicalPlan,
    *,
    accept_duplicates: bool,
) -> Restorable | None:
    """Read the newest complete checkpoint; None if there is none. Blocks.

    If it is damaged, the one before it is taken where that is safe: no exactly-once sink can have
    committed since, or `accept_duplicates` says that it does not matter (rule P35). Raises
    RestoreRefused otherwise, and CheckpointDamaged if none is left."""
    damaged: list[tuple[CompletedCheckpoint, CheckpointDamaged]] = []
    sinks = [name for task in task_shapes(plan) for name in task.exactly_once]
    for checkpoint in reversed(completed):
        try:
            restorable = _read(storage, checkpoint.checkpoint_id)
        except CheckpointDamaged as error:
            damaged.append((checkpoint, error))
            continue
        if damaged:
            _fall_back(restorable.manifest, damaged, sinks, accept_duplicates=accept_duplicates)
        return restorable
    if damaged:
        raise damaged[0][1]
    return None


def _fall_back(
    manifest: Manifest,
    damaged: Sequence[tuple[CompletedCheckpoint, CheckpointDamaged]],
    sinks: Sequence[str],
    *,
    accept_duplicates: bool,
) -> None:
    """Warn that an older checkpoint is restored, or refuse to."""
    newest, error = damaged[0]
    then = manifest.checkpoint_id
    names = sorted({*sinks, *(name for task in manifest.tasks for name in task.exactly_once)})
    if names and not accept_duplicates:
        raise RestoreRefused(
            f"checkpoint {newest.checkpoint_id} is damaged: {error}. The one before it, {then}, "
            f"is whole, but exactly-once output may have been committed since: what "
            f"{', '.join(map(repr, names))} wrote between checkpoint {then} and checkpoint "
            f"{newest.checkpoint_id} would be written twice. Restore the file from a backup, or "
            "accept that with accept_duplicates=True (--accept-duplicates)"
        )
    _logger.warning(
        "checkpoint %s is damaged (%s); restoring checkpoint %s instead",
        newest.checkpoint_id,
        error,
        then,
    )


def _read(storage: CheckpointStorage, checkpoint_id: int) -> Restorable:
    manifest = storage.load_manifest(checkpoint_id)
    frames = {
        (acknowledgement.subtask, handle): storage.read_section(checkpoint_id, handle)
        for acknowledgement in manifest.acknowledgements
        for handle in acknowledgement.sections
    }
    return Restorable(manifest, frames)


def read_savepoint(path: str | Path) -> Restorable:
    """Read a savepoint whole. Blocks.

    Raises StorageError if there is none or it was never finished, CheckpointDamaged if it is."""
    savepoint = StoredSavepoint(Path(path))
    manifest = savepoint.load_manifest()
    frames = {
        (acknowledgement.subtask, handle): savepoint.read_section(handle)
        for acknowledgement in manifest.acknowledgements
        for handle in acknowledgement.sections
    }
    return Restorable(manifest, frames, str(path))


def check_same_job(plan: PhysicalPlan, manifest: Manifest) -> None:
    """Raise RestoreRefused if the checkpoint is not one of this job as it is drawn now."""
    problems = [*_shape_problems(plan, manifest)]
    if plan.max_parallelism != manifest.max_parallelism:
        problems.append(
            f"max_parallelism is {plan.max_parallelism} and was {manifest.max_parallelism}; it "
            "is fixed for a job's life"
        )
    if problems:
        lines = "\n".join(f"  - {problem}" for problem in problems)
        raise RestoreRefused(
            f"checkpoint {manifest.checkpoint_id} of job {manifest.job!r} does not fit the job as "
            f"it is now:\n{lines}\nUndo the change, or start anew with fresh=True (--fresh)"
        )


def _shape_problems(plan: PhysicalPlan, manifest: Manifest) -> Iterable[str]:
    now = {task.name: task for task in plan.tasks}
    then = {task.name: task for task in manifest.tasks}
    for name in then.keys() - now.keys():
        yield f"task {name!r} (steps {', '.join(then[name].steps)}) is no longer there"
    for name in now.keys() - then.keys():
        yield f"task {name!r} is new"
    for name in now.keys() & then.keys():
        yield from _task_problems(now[name], then[name])


def _task_problems(now: TaskPlan, then: TaskShape) -> Iterable[str]:
    if now.parallelism != then.parallelism:
        yield (
            f"the parallelism of task {now.name!r} is {now.parallelism} and was "
            f"{then.parallelism}; a job cannot be rescaled yet"
        )


def restore(subtasks: Sequence[Subtask], restorable: Restorable, registry: TypeRegistry) -> None:
    """Give every subtask its part: states, captured data in its order, ended inputs behind it.

    Raises RestoreRefused for a section that has no place, SerializationError for one that cannot
    be read."""
    by_id = {subtask.id: subtask for subtask in subtasks}
    channels = {
        str(channel.id): channel for subtask in subtasks for channel in subtask.gate.channels
    }
    reader = Deserializer(restorable.manifest.classes, registry)
    for (subtask_id, handle), frames in restorable.frames.items():
        values = [reader.loads(frame) for frame in frames]
        if handle.kind == "channel":
            if handle.name not in channels:
                raise RestoreRefused(
                    f"checkpoint {restorable.manifest.checkpoint_id} holds {handle.records} "
                    f"in-flight records of {handle.name}, which is no edge of the job now; undo "
                    "the change, or start anew with fresh=True (--fresh)"
                )
            for records in values:
                channels[handle.name].refill(Batch(records))
        else:
            _check_step(by_id[subtask_id], handle)
            if handle.kind == "position":
                _return_splits(by_id[subtask_id], subtasks, values[0])
            by_id[subtask_id].restore(handle.kind, handle.name, values)
    for acknowledgement in restorable.manifest.acknowledgements:
        if acknowledgement.finished:
            _restore_finished(by_id[acknowledgement.subtask])
    for subtask in subtasks:
        if subtask.iteration is not None:
            subtask.iteration.look()


def _check_step(subtask: Subtask, handle: SectionHandle) -> None:
    steps = [node.label for node in subtask.chain.meters]
    if handle.name not in steps:
        raise RestoreRefused(
            f"the checkpoint holds {handle.kind} of step {handle.name!r} in task "
            f"{subtask.id.task!r}, which has the steps {', '.join(steps)} now; give the step its "
            "old name, or start anew with fresh=True (--fresh)"
        )


def _return_splits(
    subtask: Subtask, subtasks: Sequence[Subtask], positions: Sequence[tuple[Any, Any, bool]]
) -> None:
    """Let splits be read on by the subtask that read them, wherever they were dealt to now: what
    is on its way of a split comes from there (rule I3)."""
    assert isinstance(subtask, SourceSubtask)
    for other in subtasks:
        if isinstance(other, SourceSubtask) and other.id.task == subtask.id.task:
            for split, _, _ in positions:
                reader = other.reader_of(split)
                if reader is not None and other is not subtask:
                    other.readers.remove(reader)
                    subtask.readers.append(reader)


def _restore_finished(subtask: Subtask) -> None:
    """It ends its outputs again, behind captured data (rule P7)."""
    subtask.finished = True
    subtask.ended = True
    for channel in subtask.output.channels:
        channel.push(EndOfInput())
