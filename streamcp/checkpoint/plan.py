"""Who takes part in a checkpoint, fixed at its trigger (rule P7).

Invariant: every subtask of the job must acknowledge, and the barrier reaches each one that is not
finished in the plan: from the coordinator, or from a sender that gets it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from streamcp.identifiers import SubtaskId


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """The part of every subtask.

    - `finished`: ended before the trigger; they contribute their final state at once.
    - `acknowledging`: everyone; the checkpoint is complete only with all of them.
    - `triggered`: the unfinished ones whom the coordinator triggers, in order.
    """

    finished: frozenset[SubtaskId]
    acknowledging: frozenset[SubtaskId]
    triggered: tuple[SubtaskId, ...]


@dataclass(frozen=True, slots=True)
class Trigger:
    """A checkpoint that begins: what the coordinator tells the tasks.

    `finished` are the subtasks finished in the plan, `triggered` those that the coordinator
    triggers itself (P7). With `stopping` every subtask holds still from its cut on (P33).
    `at` is the monotonic time of the trigger."""

    checkpoint_id: int
    unaligned: bool
    finished: frozenset[SubtaskId]
    triggered: frozenset[SubtaskId]
    at: float
    stopping: bool = False


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
    triggered = (
        subtask
        for subtask in everyone - done
        if subtask in sources or senders.get(subtask, frozenset()) <= done
    )
    return CheckpointPlan(done, everyone, tuple(sorted(triggered)))
