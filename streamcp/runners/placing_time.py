"""Giving every subtask the event time that it, or those before it, had reached (rule P42)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamcp.checkpoint.key_groups import receiver_of_group
from streamcp.identifiers import ChannelId, SubtaskId
from streamcp.runtime.event_time import Announced, EventTime, fields
from streamcp.runtime.subtask import Subtask


class TimeParts:
    """What the subtasks of a checkpoint had reached, by the step at the head of their task."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[SubtaskId, Any]] = {}

    def add(self, step: str, old: SubtaskId, content: Any) -> None:
        """Take the part of one old subtask."""
        self._parts.setdefault(step, {})[old] = content

    def give_back(self, subtasks: Sequence[Subtask], parallelism: Mapping[str, int]) -> None:
        """Restore the event time of each subtask, and have it announced again, behind captured
        data. `parallelism` is that of the old tasks."""
        for subtask in subtasks:
            parts = self._parts.get(subtask.chain.head)
            if subtask.time is None or not parts:
                continue
            old = next(iter(parts)).task
            new = sum(one.id.task == subtask.id.task for one in subtasks)
            if parallelism[old] == new:
                watermark, idle, announced = fields(parts[SubtaskId(old, subtask.id.index)])
                subtask.time.restore(watermark, announced, idle=idle)
            else:
                _merge(subtask, parts, parallelism[old])
            subtask.note_time()
        for subtask in subtasks:
            if subtask.time is not None:
                subtask.time.announce_again()


def _merge(subtask: Subtask, parts: Mapping[SubtaskId, Any], parallelism: int) -> None:
    """Under another parallelism: begin with the least of all, so that nothing is newly late, and
    judge each key group by what its old owner had reached, so that nothing is newly on time."""
    time = subtask.time
    assert time is not None
    reached = {old.index: fields(content) for old, content in parts.items()}
    _raise_floors(time, {index: one[0] for index, one in reached.items()}, parallelism)
    watermark = min(one[0] for one in reached.values())
    idle = all(one[1] for one in reached.values())
    time.restore(watermark, _merged_channels(subtask, parts), idle=idle)


def _raise_floors(time: EventTime, reached: Mapping[int, int], parallelism: int) -> None:
    groups = len(time.floors)
    for group in range(groups):
        index = receiver_of_group(group, parallelism, groups)
        time.floors[group] = max(time.floors[group], reached[index])


def _merged_channels(subtask: Subtask, parts: Mapping[SubtaskId, Any]) -> list[Announced]:
    """What the channels of an edge had announced together: the least, idle if all were."""
    edges: dict[tuple[str, str], list[tuple[int, bool]]] = {}
    for old, content in parts.items():
        for name, watermark, idle in fields(content)[2]:
            channel = ChannelId.parse(name, old)
            edges.setdefault((channel.sender.task, channel.edge), []).append((watermark, idle))
    merged: list[Announced] = []
    for channel in (one.id for one in subtask.gate.channels):
        announced = edges.get((channel.sender.task, channel.edge))
        if announced:
            watermark = min(one for one, _ in announced)
            merged.append((str(channel), watermark, all(idle for _, idle in announced)))
    return merged
