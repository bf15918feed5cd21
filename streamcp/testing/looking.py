"""Looking into the keyed state of a job that stands still."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from streamcp.runtime.keyed_async_subtask import KeyedAsyncSubtask
from streamcp.runtime.keyed_steps import NOTHING
from streamcp.runtime.subtask import Subtask
from streamcp.state.keyed import KeyedState


def keyed_values(subtasks: Iterable[Subtask]) -> dict[str, dict[Any, Any]]:
    """The values by key of each step that keeps some, of all its subtasks. They are not copied."""
    found: dict[str, dict[Any, Any]] = {}
    for subtask in subtasks:
        for state in _states(subtask):
            values = found.setdefault(state.step, {})
            for key, entry in state.entries.items():
                if entry.value is not NOTHING:
                    values[key] = entry.value
    return found


def _states(subtask: Subtask) -> Iterator[KeyedState]:
    for run in subtask.chain._keyed.values():
        yield run.state
    if isinstance(subtask, KeyedAsyncSubtask):
        yield subtask._state
