"""Whether stored state fits the job that is restored, as far as its classes tell.

What a class of the same name can take over is decided where values are read; here a state must be
of the class that its step works with, and a key in the group whose records come to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from streamcp.errors import RestoreRefused
from streamcp.graph.physical import PhysicalPlan
from streamcp.operators.steps import ProcessStep
from streamcp.state.entries import Row, is_part, is_removal


def classes_of_states(plan: PhysicalPlan) -> Mapping[str, type]:
    """The class of what `state=` makes, by step: of those whose state is changed in place."""
    return {
        node.label: type(node.spec.state())
        for task in plan.tasks
        for node in task.members
        if isinstance(node.spec, ProcessStep)
    }


def check_class(step: str, fresh: type | None, rows: Sequence[Row]) -> None:
    """Refuse values that are of another class than `fresh`, which the step makes now."""
    if fresh is None or {type(row[1]) for row in rows if len(row) > 2} <= {fresh}:
        return  # looked at at once, since there may be millions
    for row in rows:
        if not is_removal(row) and not is_part(row) and type(row[1]) is not fresh:
            raise RestoreRefused(
                f"step {step!r} has state={fresh.__qualname__} now, and the checkpoint holds a "
                f"{type(row[1]).__qualname__} of it; keep the class, whose fields may change, or "
                "give the step another name and accept allow_unmatched_state=True"
            )


def check_keys(step: str, rows: Iterable[Row], group: int, group_of: Callable[[Any], int]) -> None:
    """Refuse keys that are not, any more, in the `group` that they were stored in."""
    for row in rows:
        if group_of(row[0]) != group:
            raise RestoreRefused(
                f"step {step!r}: the class of the key {row[0]!r} has changed so that its records "
                "would go elsewhere than its state; keep the fields of keys as they were, or key "
                "by a value that does not change"
            )
