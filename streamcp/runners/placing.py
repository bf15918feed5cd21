"""Giving every subtask its part of a checkpoint, as `checkpoint.assignment` decides (rule P40).

Frames are read back one by one and let go of as soon as their subtask has the values, so that a
restore needs room for one frame beside the bytes that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from streamcp.channel.channel import Channel
from streamcp.checkpoint.assignment import Assignment, ByKey, Copies, Whole
from streamcp.checkpoint.key_groups import Runs, by_group, key_group
from streamcp.checkpoint.snapshot import (
    IN_FLIGHT,
    Acknowledgement,
    SectionHandle,
    SectionKind,
)
from streamcp.elements import Batch
from streamcp.errors import RestoreRefused, SerializationError
from streamcp.graph.logical import HashByKey
from streamcp.graph.physical import EdgePlan, PhysicalPlan
from streamcp.identifiers import ChannelId, SubtaskId
from streamcp.runners.matching import job_shape
from streamcp.runners.matching_rows import check_class, check_keys, classes_of_states
from streamcp.runners.placing_time import TimeParts
from streamcp.runners.restoring import Restorable
from streamcp.runtime.async_subtask import AsyncSubtask
from streamcp.runtime.event_time import mark_of
from streamcp.runtime.keyed_async_subtask import KeyedAsyncSubtask
from streamcp.runtime.pending import JUDGED, MARKS, Status
from streamcp.runtime.source_subtask import SourceSubtask
from streamcp.runtime.subtask import Subtask
from streamcp.serialization.deserializer import Deserializer
from streamcp.serialization.registry import TypeRegistry
from streamcp.serialization.stable_hash import stable_hash
from streamcp.state.entries import Row, without_timers

KeyOf: TypeAlias = Callable[[Any], Any]


def restore(
    plan: PhysicalPlan,
    subtasks: Sequence[Subtask],
    restorable: Restorable,
    registry: TypeRegistry,
) -> Assignment:
    """Give every subtask its part: states, captured data in its order, ended inputs behind it.

    The job must fit the checkpoint (`matching.check_fits`); what belongs to no step is left out.
    Takes the frames out of `restorable`. Raises RestoreRefused for what does not fit the job:
    classes that are gone or have changed too much, state and keys of another class than the job's;
    SerializationError where reading itself fails."""
    assignment = Assignment(restorable.manifest, job_shape(plan))
    placing = _Placing(plan, subtasks, restorable, registry, assignment)
    for acknowledgement in sorted(
        restorable.manifest.acknowledgements, key=lambda one: one.subtask
    ):
        placing.place(acknowledgement)
    placing.finish()
    return assignment


class _Placing:
    def __init__(
        self,
        plan: PhysicalPlan,
        subtasks: Sequence[Subtask],
        restorable: Restorable,
        registry: TypeRegistry,
        assignment: Assignment,
    ) -> None:
        self._plan = plan
        self._subtasks = subtasks
        self._assignment = assignment
        self._frames = restorable.frames
        self._reader = Deserializer(restorable.manifest.classes, registry)
        self._by_id = {subtask.id: subtask for subtask in subtasks}
        self._channels: dict[ChannelId, Channel] = {
            channel.id: channel for subtask in subtasks for channel in subtask.gate.channels
        }
        self._keys: dict[tuple[str, str, str], KeyOf] = {
            (edge.name, edge.sender, edge.receiver): _key_of(edge)
            for edge in plan.edges
            if isinstance(edge.connection.exchange, HashByKey)
        }
        # Joined before they are given back: one subtask may get those of several old ones.
        self._joined: dict[tuple[SubtaskId, SectionKind, str], list[Any]] = {}
        self._fresh = classes_of_states(plan)
        self._times = TimeParts()
        self._timed = {subtask.id.task: subtask.time is not None for subtask in subtasks}
        self._tasks = restorable.manifest.tasks

    def place(self, acknowledgement: Acknowledgement) -> None:
        """Hand out the sections of one old subtask."""
        subtask = acknowledgement.subtask
        self._check_timed(acknowledgement)
        sections = acknowledgement.sections
        for handle in sorted(sections, key=lambda one: one.kind != "event_time"):
            frames = self._frames.pop((subtask, handle), [])
            if handle.kind == "event_time":
                [content] = self._values(handle, frames)
                self._times.add(handle.name, subtask, content)
            elif handle.kind == "channel":
                self._place_channel(subtask, handle, frames)
            elif not self._assignment.has_place(handle):
                continue  # left behind, with a warning
            elif handle.kind == "state":
                self._place_state(handle, frames, finished=acknowledgement.finished)
            elif handle.kind == "broadcast":
                self._copy_state(subtask, handle, frames)
            else:
                self._place_values(subtask, handle, self._values(handle, frames))

    def finish(self) -> None:
        """Give back what was joined; end the outputs of subtasks that stay finished."""
        for (subtask, kind, name), values in self._joined.items():
            self._by_id[subtask].restore(kind, name, values)
        for one in self._subtasks:
            one.output.flush()  # a sink may have diverted failures again
        self._times.give_back(self._subtasks, self._tasks)
        self._end_finished()
        for one in self._subtasks:
            if one.iteration is not None:
                one.iteration.look()

    def _values(self, handle: SectionHandle, frames: Sequence[bytes]) -> list[Any]:
        """Read frames; what does not fit the job is told with what it belongs to."""
        try:
            return list(map(self._reader.loads, frames))
        except SerializationError as error:
            if error.__cause__ is not None:  # code of the job failed: another try may go well
                raise
            what = "records on their way along" if handle.kind == "channel" else "what it holds of"
            raise RestoreRefused(
                f"the checkpoint cannot be read: {what} {handle.name!r}: {error}"
            ) from error

    def _check_timed(self, acknowledgement: Acknowledgement) -> None:
        """Records on their way have timestamps or none; they cannot be given any now."""
        task, sections = acknowledgement.subtask.task, acknowledgement.sections
        was_timed = any(handle.kind == "event_time" for handle in sections)
        kinds = IN_FLIGHT | {"batch"}
        in_flight = sum(handle.records for handle in sections if handle.kind in kinds)
        if in_flight and self._timed.get(task, was_timed) != was_timed:
            have = "have timestamps" if was_timed else "have no timestamps"
            raise RestoreRefused(
                f"the checkpoint holds {in_flight} records on their way to or in {task!r}, which "
                f"{have}; since then the watermarks= of a source were added or removed. Restore "
                "from a savepoint that was taken with nothing in flight (aligned mode), or with "
                "the sources as they were"
            )

    # ---- sections of steps

    def _place_state(
        self, handle: SectionHandle, frames: Sequence[bytes], *, finished: bool
    ) -> None:
        for frame, runs in zip(frames, handle.key_groups, strict=True):
            [rows] = self._values(handle, [frame])
            check_class(handle.name, self._fresh.get(handle.name), rows)
            if finished:  # timers that were left when a step ended never fire
                rows = without_timers(rows)
            for group, own in self._divided(handle, rows, runs):
                if self._reader.adapted:
                    check_keys(handle.name, own, group, self._group)
                owner = self._assignment.owner(handle.name, group)
                self._by_id[owner].restore("state", handle.name, [own])

    def _divided(
        self, handle: SectionHandle, rows: list[Row], runs: Runs
    ) -> list[tuple[int, list[Row]]]:
        try:
            divided = [*by_group(rows, runs)]
            if max(group for group, _ in divided) >= self._plan.max_parallelism:
                raise ValueError(f"there are only {self._plan.max_parallelism} key groups")
        except ValueError as error:
            raise RestoreRefused(
                f"the checkpoint cannot be read: state of {handle.name!r}: {error}"
            ) from error
        return divided

    def _copy_state(self, old: SubtaskId, handle: SectionHandle, frames: Sequence[bytes]) -> None:
        for copy in self._assignment.copies(handle.name, old):
            values = self._values(handle, frames)  # each has an object of its own
            self._by_id[copy].restore("broadcast", handle.name, values)

    def _place_values(self, old: SubtaskId, handle: SectionHandle, values: list[Any]) -> None:
        step = handle.name
        if handle.kind == "position":
            for positions in values:
                self._place_positions(old, step, positions)
        elif self._assignment.divided_by_key(handle):
            divide = self._divide_calls if handle.kind == "calls" else self._divide_pending
            for value in values:
                divide(old, step, value)
        else:
            heir = self._assignment.heir(step, old)
            if isinstance(self._by_id[heir], AsyncSubtask) and self._assignment.changed:
                values = [[one for one in entries if one[0] not in MARKS] for entries in values]
            self._joined.setdefault((heir, handle.kind, step), []).extend(values)

    def _place_positions(
        self, old: SubtaskId, step: str, positions: Sequence[tuple[Any, ...]]
    ) -> None:
        """Splits are read on by the subtask that read them, wherever they were dealt to now; under
        another parallelism they are dealt anew."""
        sources = self._sources(step)
        home = None if self._assignment.rescaled(old, step) else sources[old.index]
        for one in positions:
            split = one[0]
            reading = next((s for s in sources if s.reader_of(split) is not None), sources[0])
            owner = home or reading
            reader = reading.reader_of(split)
            if reader is not None and owner is not reading:
                reading.readers.remove(reader)
                owner.readers.append(reader)
            owner.restore("position", step, [[one]])

    def _sources(self, step: str) -> list[SourceSubtask]:
        return [
            subtask
            for subtask in self._subtasks
            if isinstance(subtask, SourceSubtask)
            and any(node.label == step for node in subtask.chain.meters)
        ]

    def _divide_calls(self, old: SubtaskId, step: str, value: Any) -> None:
        """Give the ids of outstanding calls of a keyed step to the owners of their keys, and the
        next numbers to one subtask: only the largest of all counts."""
        pages, open_calls = value
        divided: dict[SubtaskId, list[Any]] = {self._assignment.heir(step, old): []}
        for call in open_calls:
            owner = self._assignment.owner(step, self._group(call[0]))
            divided.setdefault(owner, []).append(call)
        for owner, own in divided.items():
            self._joined.setdefault((owner, "calls", step), []).append((pages, own))
            pages = ()

    def _divide_pending(
        self, old: SubtaskId, step: str, entries: Sequence[tuple[int, Any]]
    ) -> None:
        """Give each pending entry of a keyed step to the owner of its key, in their order; records
        with the watermark that they were behind, since that was of one old subtask only."""
        reached = self._times.reached(step, old)
        any_subtask = self._by_id[self._assignment.owner(step, 0)]
        assert isinstance(any_subtask, KeyedAsyncSubtask)
        divided: dict[SubtaskId, list[tuple[int, Any]]] = {}
        for status, content in entries:
            if status == Status.WATERMARK:
                reached = content
            if status in MARKS:
                continue
            group = self._group(_checked_key(step, any_subtask.key_of_entry, status, content))
            if reached is not None and status in JUDGED:
                judged = max(reached, self._times.judged(step, old, group))
                status, content = JUDGED[status], (content, judged)
            owner = self._assignment.owner(step, group)
            divided.setdefault(owner, []).append((status, content))
        self._times.raise_to(step, old, reached)
        for owner, own in divided.items():
            self._joined.setdefault((owner, "pending", step), []).append(own)

    # ---- in-flight data of edges

    def _place_channel(
        self, receiver: SubtaskId, handle: SectionHandle, frames: Sequence[bytes]
    ) -> None:
        if not handle.records and self._assignment.changed:
            return
        target = self._assignment.channel(handle.name, receiver)
        for frame in frames:
            [records] = self._values(handle, [frame])
            if type(records) is not list:
                self._place_mark(receiver, handle, records)
                continue
            match target:
                case Whole(channel):
                    self._channels[channel].refill(Batch(records))
                case ByKey():
                    self._divide_records(target, records)
                case Copies(channels):
                    for channel in channels:
                        self._channels[channel].refill(Batch([*records]))

    def _place_mark(self, receiver: SubtaskId, handle: SectionHandle, content: Any) -> None:
        """Put a mark back between the records. Where channels have been joined or divided it would
        say too much; senders announce again how far they had come."""
        if not self._assignment.changed:
            self._channels[ChannelId.parse(handle.name, receiver)].refill(mark_of(content))

    def _divide_records(self, target: ByKey, records: Sequence[Any]) -> None:
        edge = target.edge
        key_of = self._keys[edge.name, edge.sender, edge.receiver]
        divided: dict[SubtaskId, list[Any]] = {}
        for record in records:
            group = self._group(_checked_key(edge.name, key_of, record))
            owner = self._assignment.owner_behind(edge, group)
            divided.setdefault(owner, []).append(record)
        for owner, own in divided.items():
            self._channels[target.channel(owner)].refill(Batch(own))

    def _group(self, key: Any) -> int:
        return key_group(stable_hash(key), self._plan.max_parallelism)

    # ---- finished subtasks

    def _end_finished(self) -> None:
        """A subtask stays finished if all that it continues had finished and nothing new can come:
        no unread split, no sender that goes on. It ends its outputs again, behind captured data
        (rule P7)."""
        finished: set[SubtaskId] = set()
        senders = self._plan.senders()
        for subtask in self._subtasks:  # senders first
            unread = isinstance(subtask, SourceSubtask) and not subtask.all_read
            if unread or not senders[subtask.id] <= finished:
                continue
            if self._assignment.was_finished(subtask.id):
                finished.add(subtask.id)
                subtask.stay_finished()


def _key_of(edge: EdgePlan) -> KeyOf:
    exchange = edge.connection.exchange
    assert isinstance(exchange, HashByKey)
    if not edge.connection.node.timed:
        return exchange.key
    key = exchange.key
    return lambda pair: key(pair[0])


def _checked_key(step: str, key_of: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return key_of(*arguments)
    except Exception as error:  # whatever a user's function raises
        raise RestoreRefused(
            f"the key function behind step {step!r} failed for a restored record "
            f"({type(error).__name__}: {error}); restore with the function that took the record, "
            "or from an aligned checkpoint or savepoint"
        ) from error
