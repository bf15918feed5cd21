"""Opening the journal of an attempt: what was answered behind the restored checkpoint.

Read before anything is restored, since which answers are left depends on all snapshots together
(see `checkpoint.journal`). An answer that cannot be read any more is left out, with a warning: its
call is made again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

from streamcp.checkpoint.journal import (
    Answer,
    JournalHead,
    RestoredCut,
    left_answers,
    restored_cut,
)
from streamcp.errors import SerializationError
from streamcp.graph.physical import PhysicalPlan
from streamcp.operators.steps import Call
from streamcp.runners.restoring import Restorable
from streamcp.runtime.gateway import TaskContext
from streamcp.runtime.journal import Journal
from streamcp.serialization.deserializer import Deserializer
from streamcp.serialization.registry import TypeRegistry
from streamcp.storage.contract import CheckpointStorage, StoredJournal
from streamcp.storage.in_thread import in_thread

_logger = logging.getLogger(__name__)


def has_journaled(plan: PhysicalPlan) -> bool:
    """Say whether a job has a step with `journal=True`."""
    specs = (node.spec for task in plan.tasks for node in task.members)
    return any(isinstance(spec, Call) and spec.is_journaled for spec in specs)


async def open_journal(
    storage: CheckpointStorage,
    context: TaskContext,
    restorable: Restorable | None,
    registry: TypeRegistry,
) -> Journal:
    """Read what is left, and begin the journal of the attempt.

    Raises StorageError if the journal of an earlier attempt cannot be read or has a newer
    format, or if what is left cannot be written."""
    own = storage.journal()
    base = 0 if restorable is None else restorable.manifest.checkpoint_id
    head = JournalHead(context.attempt, base, context.fork, context.life)
    found = await in_thread(own.read)
    cut = _cut_of(restorable, registry)
    left = [] if found is None else list(_left(found, cut, head, context, registry))
    journal = Journal(
        own,
        head,
        left,
        classes=context.serializer.classes,
        clock=context.clock,
        report=context.report,
    )
    await journal.begin()
    return journal


def _cut_of(restorable: Restorable | None, registry: TypeRegistry) -> RestoredCut:
    if restorable is None:
        return RestoredCut()
    manifest = restorable.manifest
    reader = Deserializer(manifest.classes, registry)
    contents = [
        reader.loads(frame)
        for (_, handle), frames in restorable.frames.items()
        if handle.kind == "journal"
        for frame in frames
    ]
    return restored_cut(manifest.checkpoint_id, manifest.attempt, contents)


def _left(
    found: StoredJournal,
    cut: RestoredCut,
    head: JournalHead,
    context: TaskContext,
    registry: TypeRegistry,
) -> Iterator[Answer]:
    """Give the answers that are left, numbered anew and with the class numbers of this attempt."""
    serial = 0
    for classes, answers in found.pieces:
        reader = Deserializer(classes, registry)
        at = context.clock.wall_ms()
        for answer in left_answers(found.head, answers, cut, head, at=at):
            value = _rewritten(answer, reader, context)
            if value is not None:
                serial += 1
                yield replace(answer, serial=serial, cut=None, value=value)


def _rewritten(answer: Answer, reader: Deserializer, context: TaskContext) -> bytes | None:
    try:
        return context.serializer.dumps(reader.loads(answer.value), step=answer.step)
    except SerializationError as error:
        _logger.warning(
            "step %r: an answer in the journal cannot be read any more, so its call is made again "
            "if it is still to be made: %s",
            answer.step,
            error,
        )
        return None
