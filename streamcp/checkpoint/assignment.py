"""Who gets what of a checkpoint when the job has changed since (rules P7, P17, P38 and P41).

Facts in (the manifest, the tasks and edges of the job as it is now), decisions out: the new
subtask of every section, the new channel of what was in flight. State is found by the name of its
step, since fusing may have put the step into another task; in-flight data by its edge. Invariant:
what one old subtask or channel held goes to one place, or to the owners of its keys, so that its
order per key is kept. Which parts of the job may run on while restored data is left is decided by
`replay`. It reads no data: whoever hands out the sections knows keys, this module key groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from streamcp.checkpoint.key_groups import receiver_of_group
from streamcp.checkpoint.snapshot import Manifest, SectionHandle, SectionKind, TaskShape
from streamcp.identifiers import ChannelId, SubtaskId

EdgeKind: TypeAlias = Literal["forward", "rebalance", "keyed", "broadcast"]


@dataclass(frozen=True, slots=True)
class EdgeShape:
    """An exchange between two tasks: `name` is that of the sending step and output."""

    name: str
    sender: str
    receiver: str
    kind: EdgeKind


@dataclass(frozen=True, slots=True)
class JobShape:
    """A job as it is now. `places` tells which kinds of sections each step takes back."""

    tasks: tuple[TaskShape, ...]
    edges: tuple[EdgeShape, ...]
    places: Mapping[str, frozenset[SectionKind]]
    max_parallelism: int


@dataclass(frozen=True, slots=True)
class Whole:
    """All records go to one channel, in their order."""

    channel: ChannelId


@dataclass(frozen=True, slots=True)
class ByKey:
    """Each record goes, in order, from one sender to the owner of its key."""

    sender: SubtaskId
    edge: EdgeShape

    def channel(self, receiver: SubtaskId) -> ChannelId:
        """The channel to the owner of a key."""
        return ChannelId(self.sender, receiver, self.edge.name)


@dataclass(frozen=True, slots=True)
class Copies:
    """All records go to each of these channels: none, if others have their copies."""

    channels: tuple[ChannelId, ...]


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A section for which the job has no place. `channel` and `head` (the first step of its
    receiver) are there for in-flight data of an edge only."""

    subtask: SubtaskId
    handle: SectionHandle
    channel: ChannelId | None = None
    head: str = ""


class Assignment:
    """The parts of one checkpoint, given to the subtasks of a job.

    `changed`: tasks, their steps or their parallelism are not those of the checkpoint. Else
    everything goes back to where it was."""

    def __init__(self, manifest: Manifest, job: JobShape) -> None:
        """Compare a checkpoint with the job as it is now."""
        self._manifest = manifest
        self._job = job
        self._then = {task.name: task for task in manifest.tasks}
        self._now = {task.name: task for task in job.tasks}
        self._task_of = {step: task for task in job.tasks for step in task.steps}
        self.changed = _essence(manifest.tasks) != _essence(job.tasks)
        self._finished = {one.subtask for one in manifest.acknowledgements if one.finished}
        sections = [(a.subtask, one) for a in manifest.acknowledgements for one in a.sections]
        self._with_pending = {subtask for subtask, one in sections if one.kind == "pending"}
        self._with_state = {one.name for _, one in sections if one.kind == "state"}

    @property
    def staged(self) -> bool:
        """The restored data must be worked off stage by stage, before anything new is read: the
        job has changed, or data is left of a restore in which it had (rule P41)."""
        return self.changed or self._manifest.replaying

    def unplaced(self) -> Iterator[Unplaced]:
        """List the sections that hold something for which the job has no place."""
        for one in self._manifest.acknowledgements:
            for handle in one.sections:
                if handle.kind == "channel":
                    channel = ChannelId.parse(handle.name, one.subtask)
                    if handle.records and self._edge_of(channel) is None:
                        yield Unplaced(one.subtask, handle, channel, self._head(channel))
                elif handle.kind == "event_time":
                    continue  # it comes anew with the next watermark
                elif not self.has_place(handle) and not _is_empty(handle):
                    yield Unplaced(one.subtask, handle)

    def has_place(self, handle: SectionHandle) -> bool:
        """Say whether a step takes a section that is no channel's. What is pending in a keyed step,
        an exactly-once sink and others are different things."""
        if handle.kind not in self._job.places.get(handle.name, ()):
            return False
        return handle.kind != "pending" or self._is_same_kind(handle.name)

    def _is_same_kind(self, step: str) -> bool:
        was_exact, is_exact = (
            any(step in task.exactly_once for task in tasks)
            for tasks in (self._manifest.tasks, self._job.tasks)
        )
        is_keyed = "state" in self._job.places[step]
        return (step in self._with_state, was_exact) == (is_keyed, is_exact)

    # ---- sections of steps

    def parallelism(self, step: str) -> int:
        """The number of subtasks of a step now."""
        return self._task_of[step].parallelism

    def rescaled(self, subtask: SubtaskId, step: str) -> bool:
        """Say whether a step of an old subtask has another parallelism now."""
        return self._then[subtask.task].parallelism != self.parallelism(step)

    def divided_by_key(self, handle: SectionHandle) -> bool:
        """Say whether a section is divided among the owners of its keys: state always, and what is
        pending in a keyed step, with the ids of its calls, if the job has changed."""
        if handle.kind in ("pending", "calls"):
            return self.changed and "state" in self._job.places[handle.name]
        return handle.kind == "state"

    def owner(self, step: str, group: int) -> SubtaskId:
        """The subtask of a keyed step that has a key group now."""
        task = self._task_of[step]
        index = receiver_of_group(group, task.parallelism, self._job.max_parallelism)
        return SubtaskId(task.name, index)

    def heir(self, step: str, subtask: SubtaskId) -> SubtaskId:
        """The subtask that gets, whole, what a step of an old subtask held: one and the same
        index for all steps joined by forward edges."""
        task = self._task_of[step]
        return SubtaskId(task.name, subtask.index % task.parallelism)

    def copies(self, step: str, subtask: SubtaskId) -> tuple[SubtaskId, ...]:
        """The subtasks that get the broadcast state of a step of an old subtask: each new one from
        one old one, whose captured broadcast records it gets too (rule P17)."""
        return self._copies(self._task_of[step], subtask)

    def _copies(self, task: TaskShape, old: SubtaskId) -> tuple[SubtaskId, ...]:
        before = self._then[old.task].parallelism
        return tuple(SubtaskId(task.name, i) for i in range(old.index, task.parallelism, before))

    # ---- in-flight data of edges

    def channel(self, name: str, receiver: SubtaskId) -> Whole | ByKey | Copies:
        """Where the captured data of an old channel goes. KeyError if no edge takes it."""
        old = ChannelId.parse(name, receiver)
        edge = self._edge_of(old)
        if edge is None:
            raise KeyError(name)
        sender = SubtaskId(edge.sender, old.sender.index % self._now[edge.sender].parallelism)
        if edge.kind == "keyed":  # also in the same tasks: it may have been another exchange
            return ByKey(sender, edge)
        if not self.changed:
            return Whole(old)
        if edge.kind == "broadcast":
            receivers = self._copies(self._now[edge.receiver], receiver)
            return Copies(tuple(ChannelId(sender, one, edge.name) for one in receivers))
        index = self._new_receiver(edge, old)
        if edge.kind == "forward":
            sender = SubtaskId(edge.sender, index)
        return Whole(ChannelId(sender, SubtaskId(edge.receiver, index), edge.name))

    def _new_receiver(self, edge: EdgeShape, old: ChannelId) -> int:
        """Rebalanced channels are dealt out, so that new subtasks get some; but behind what their
        old receiver holds of them."""
        parallelism = self._now[edge.receiver].parallelism
        if edge.kind == "forward" or old.receiver in self._with_pending:
            return old.receiver.index % parallelism
        receivers = self._then[old.receiver.task].parallelism
        return (old.sender.index * receivers + old.receiver.index) % parallelism

    def owner_behind(self, edge: EdgeShape, group: int) -> SubtaskId:
        """The receiver that has a key group now."""
        parallelism = self._now[edge.receiver].parallelism
        index = receiver_of_group(group, parallelism, self._job.max_parallelism)
        return SubtaskId(edge.receiver, index)

    def _edge_of(self, channel: ChannelId) -> EdgeShape | None:
        """Find an edge by its two steps, else by the names of its two tasks if that is clear."""
        head = self._head(channel)
        by_tasks = []
        for edge in self._job.edges:
            if edge.name == channel.edge and self._now[edge.receiver].steps[0] == head:
                return edge
            if (edge.sender, edge.receiver) == (channel.sender.task, channel.receiver.task):
                by_tasks.append(edge)
        return by_tasks[0] if len(by_tasks) == 1 else None

    def _head(self, channel: ChannelId) -> str:
        return self._then[channel.receiver.task].steps[0]

    # ---- finished subtasks

    def was_finished(self, subtask: SubtaskId) -> bool:
        """Say whether everything that a subtask continues had finished (rule P7)."""
        if not self.changed:
            return subtask in self._finished
        steps = set(self._now[subtask.task].steps)
        before = [
            SubtaskId(task.name, index)
            for task in self._then.values()
            if steps.intersection(task.steps)
            for index in range(task.parallelism)
        ]
        return bool(before) and self._finished.issuperset(before)


def _is_empty(handle: SectionHandle) -> bool:
    """Whether nothing is lost without it. Ids of calls are of use only with these calls; what is
    said of the journal is read with the journal, and belongs to no subtask."""
    if handle.kind in ("calls", "journal"):
        return True
    return handle.kind in ("state", "pending", "rest", "batch") and not handle.records


def _essence(tasks: tuple[TaskShape, ...]) -> set[tuple[str, int, tuple[str, ...]]]:
    return {(task.name, task.parallelism, task.steps) for task in tasks}
