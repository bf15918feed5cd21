"""Giving every subtask the event time that it, or those before it, had reached (rule P42)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from streamcp.checkpoint.key_groups import receiver_of_group
from streamcp.checkpoint.snapshot import TaskShape
from streamcp.elements import MAX_TIMESTAMP
from streamcp.identifiers import ChannelId, SubtaskId
from streamcp.runtime.event_time import Announced, EventTime, Reached
from streamcp.runtime.subtask import Subtask


class TimeParts:
    """What the subtasks of a checkpoint had reached, by the step at the head of their task."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[SubtaskId, Reached]] = {}
        self._raised: dict[tuple[str, SubtaskId], int] = {}

    def add(self, step: str, old: SubtaskId, content: Any) -> None:
        """Take the part of one old subtask."""
        self._parts.setdefault(step, {})[old] = Reached(*content)

    def reached(self, step: str, old: SubtaskId) -> int | None:
        """What an old subtask with `step` at its head had worked off; None without event time."""
        part = self._parts.get(step, {}).get(old)
        return None if part is None else part.watermark

    def judged(self, step: str, old: SubtaskId, group: int) -> int:
        """By what else an old subtask judged a key group of a step."""
        return self._parts[step][old].floor(step, group)

    def raise_to(self, step: str, old: SubtaskId, reached: int | None) -> None:
        """What was admitted behind a watermark was judged by it, before it was worked off."""
        if reached is not None:
            self._raised[step, old] = reached

    def give_back(self, subtasks: Sequence[Subtask], tasks: Sequence[TaskShape]) -> None:
        """Restore the event time of each subtask, and have it announced again, behind captured
        data. `tasks` are the old ones."""
        now = Counter(subtask.id.task for subtask in subtasks)
        same = {task.name for task in tasks if now[task.name] == task.parallelism}
        for subtask in subtasks:
            if subtask.time is None:
                continue
            parts = self._parts.get(subtask.chain.head)
            if parts:
                old = next(iter(parts)).task
                most = self._reached_behind_head(subtask, tasks)
                if old in same and old == subtask.id.task:
                    _restore_own(subtask, SubtaskId(old, subtask.id.index), parts, same, most)
                else:
                    _merge(subtask, parts, most)
            self._judge(subtask.time, tasks)
            subtask.note_time()
        for subtask in subtasks:
            if subtask.time is not None:
                subtask.time.announce_again()

    def _reached_behind_head(self, subtask: Subtask, tasks: Sequence[TaskShape]) -> int:
        """What those of a subtask's steps had reached that were tasks of their own: what is at the
        head now may have been further, and their timers are still to fire."""
        heads = {task.steps[0] for task in tasks} & (subtask.chain.steps - {subtask.chain.head})
        reached = (part.watermark for head in heads for part in self._parts.get(head, {}).values())
        return min(reached, default=MAX_TIMESTAMP)

    def _judge(self, time: EventTime, tasks: Sequence[TaskShape]) -> None:
        """Let each keyed step judge its key groups by what their old owners had reached."""
        for step in time.floors:
            task = next((one for one in tasks if step in one.steps), None)
            parts = self._parts.get(task.steps[0]) if task is not None else None
            if task is not None and parts:
                groups = len(time.floors_of(step))
                owners = [receiver_of_group(g, task.parallelism, groups) for g in range(groups)]
                by_index = {old.index: (old, part) for old, part in parts.items()}
                floors = (self._floor(step, g, *by_index[o]) for g, o in enumerate(owners))
                time.judge_by(step, list(floors))

    def _floor(self, step: str, group: int, owner: SubtaskId, part: Reached) -> int:
        """What the old owner of a key group had judged its records by, or would have."""
        return max(self._raised.get((step, owner), part.watermark), part.floor(step, group))


def _restore_own(
    subtask: Subtask,
    old: SubtaskId,
    parts: Mapping[SubtaskId, Reached],
    same: Collection[str],
    most: int,
) -> None:
    """A subtask gets back what it had, at `most`. Only of senders as many as before: what another
    number of them sends is from all of the old ones."""
    assert subtask.time is not None
    part = parts[old]
    merged = _merged_channels(subtask, {old: part})
    kept = [one for one in part.announced if ChannelId.parse(one[0], old).sender.task in same]
    subtask.time.restore(min(part.watermark, most), [*merged, *kept], idle=part.idle)


def _merge(subtask: Subtask, parts: Mapping[SubtaskId, Reached], most: int) -> None:
    """Under another parallelism: begin with the least of all, at `most`, so that nothing is newly
    late."""
    assert subtask.time is not None
    watermark = min(most, *(part.watermark for part in parts.values()))
    idle = all(part.idle for part in parts.values())
    subtask.time.restore(watermark, _merged_channels(subtask, parts), idle=idle)


def _merged_channels(subtask: Subtask, parts: Mapping[SubtaskId, Reached]) -> list[Announced]:
    """What the channels of an edge had announced together: the least, idle if all were."""
    edges: dict[tuple[str, str], list[tuple[int, bool]]] = {}
    for old, part in parts.items():
        for name, watermark, idle in part.announced:
            channel = ChannelId.parse(name, old)
            edges.setdefault((channel.sender.task, channel.edge), []).append((watermark, idle))
    merged: list[Announced] = []
    for channel in (one.id for one in subtask.gate.channels):
        announced = edges.get((channel.sender.task, channel.edge))
        if announced:
            watermark = min(one for one, _ in announced)
            merged.append((str(channel), watermark, all(idle for _, idle in announced)))
    return merged
