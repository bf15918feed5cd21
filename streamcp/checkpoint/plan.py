"""Who takes part in a checkpoint, fixed at its trigger (rule P7).

Invariant: every subtask of the job is either finished in the plan or must acknowledge, and the
barrier reaches each of the latter: from the coordinator, or from a sender that gets it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from streamcp.identifiers import SubtaskId


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """The part of every subtask.

    - `finished`: ended before the trigger; not asked, and recorded as finished.
    - `acknowledging`: all others; the checkpoint is complete only with all of them.
    - `triggered`: those of the latter whom the coordinator triggers, in order.
    """

    finished: frozenset[SubtaskId]
    acknowledging: frozenset[SubtaskId]
    triggered: tuple[SubtaskId, ...]


def make_plan(
    subtasks: Iterable[SubtaskId],
    senders: Mapping[SubtaskId, frozenset[SubtaskId]],
    sources: Collection[SubtaskId],
    finished: Collection[SubtaskId],
) -> CheckpointPlan:
    """Fix the parts of `subtasks` at a trigger.

    `senders` are those of each subtask's input channels, back edges of loops left out; a subtask
    without an entry has none. The coordinator triggers the unfinished sources, and every
    unfinished subtask all of whose senders are finished: no barrier would reach it otherwise."""
    everyone = frozenset(subtasks)
    done = everyone.intersection(finished)
    acknowledging = everyone - done
    triggered = (
        subtask
        for subtask in acknowledging
        if subtask in sources or senders.get(subtask, frozenset()) <= done
    )
    return CheckpointPlan(done, acknowledging, tuple(sorted(triggered)))
