"""The state of a step, read from outside while the job runs.

Nothing is asked of a task: all of them are suspended between two slices, or in the middle of calls
whose effects are not committed, when anybody else has the event loop. So what is found is what a
snapshot taken now would hold. A copy is given out; nothing that is done to it reaches the job.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from streamcp.checkpoint.key_groups import key_group, receiver_of_group
from streamcp.errors import StreamcpError
from streamcp.graph.physical import PhysicalPlan, TaskPlan
from streamcp.operators.steps import CountStep, ProcessStep, ReduceStep, ScanStep
from streamcp.serialization.stable_hash import stable_hash

if TYPE_CHECKING:
    from streamcp.runners.life import JobLife

_KEYED = (CountStep, ScanStep, ReduceStep, ProcessStep)


class StateOfStep:
    """The state per key of one step of a running job; made by `running.state(step)`."""

    def __init__(self, life: JobLife, step: str) -> None:
        task_of(life.plan, step, life.job)
        self._life = life
        self._step = step

    async def get(self, key: Hashable) -> Any:
        """Return a copy of the state of `key` as it is between two slices of the step's work, or
        None if it has none. What outstanding calls of a coroutine function have changed is not in
        it: they have not committed.

        Waits while the job starts or restarts. Raises StreamcpError if it has ended, and
        SerializationError for a state that no snapshot could hold either."""
        attempt = await self._life.running_attempt(f"the state of step {self._step!r}")
        plan = self._life.plan
        task = task_of(plan, self._step, self._life.job)
        group = key_group(stable_hash(key), plan.max_parallelism)
        index = receiver_of_group(group, task.parallelism, plan.max_parallelism)
        own = (one for one in attempt.subtasks if one.id.task == task.name)
        owner = next(one for one in own if one.id.index == index)
        return owner.chain.states[self._step].copy_of(key)


def task_of(plan: PhysicalPlan, step: str, job: str) -> TaskPlan:
    """Find the task of a step with state per key; raises StreamcpError naming all such steps."""
    found = {
        node.label: task
        for task in plan.tasks
        for node in task.members
        if isinstance(node.spec, _KEYED)
    }
    if step not in found:
        names = ", ".join(sorted(found)) or "none"
        raise StreamcpError(
            f"job {job!r} has no step {step!r} with state per key; steps that have: {names}"
        )
    return found[step]
