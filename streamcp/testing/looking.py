"""Looking into the keyed state of a job that stands still."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streamcp.runtime.keyed_steps import NOTHING
from streamcp.runtime.subtask import Subtask


def keyed_values(subtasks: Iterable[Subtask]) -> dict[str, dict[Any, Any]]:
    """The values by key of each step that keeps some, of all its subtasks. They are not copied."""
    found: dict[str, dict[Any, Any]] = {}
    for subtask in subtasks:
        for state in subtask.chain.states.values():
            values = found.setdefault(state.step, {})
            for key, entry in state.entries.items():
                if entry.value is not NOTHING and state.is_visible(entry):
                    values[key] = entry.value
    return found
