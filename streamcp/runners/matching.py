"""Is this a checkpoint of the job as it is drawn now? Steps are matched by name, edges by steps.

Everything that does not fit is told together, before anything is opened or started (rules P38 and
P41). What goes where is decided by `checkpoint.assignment`; this is where the graph is described
to it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, assert_never

from streamcp.checkpoint.assignment import Assignment, EdgeKind, EdgeShape, JobShape, Unplaced
from streamcp.checkpoint.snapshot import Manifest, SectionKind, TaskShape
from streamcp.errors import RestoreRefused
from streamcp.graph.logical import Broadcast, Forward, HashByKey, LogicalGraph, Node, Rebalance
from streamcp.graph.physical import EdgePlan, PhysicalPlan, plan
from streamcp.identifiers import SubtaskId
from streamcp.operators.steps import (
    BatchStep,
    BroadcastStep,
    Call,
    CountStep,
    KeyedBroadcastStep,
    ProcessStep,
    ReduceStep,
    ScanStep,
    SinkStep,
    SourceStep,
)

_logger = logging.getLogger(__name__)


def task_shapes(physical: PhysicalPlan) -> tuple[TaskShape, ...]:
    """Describe the tasks of a plan as a manifest records them."""
    return tuple(
        TaskShape(
            task.name,
            task.parallelism,
            tuple(node.label for node in task.members),
            tuple(node.label for node in task.members if _exactly_once(node.spec)),
        )
        for task in physical.tasks
    )


def job_shape(physical: PhysicalPlan) -> JobShape:
    """Describe a plan as `Assignment` needs it."""
    return JobShape(
        task_shapes(physical),
        tuple(_edge_shape(edge) for edge in physical.edges),
        {node.label: _places(node) for task in physical.tasks for node in task.members},
        physical.max_parallelism,
    )


def _exactly_once(spec: Any) -> bool:
    return isinstance(spec, SinkStep) and spec.exactly_once


def _edge_shape(edge: EdgePlan) -> EdgeShape:
    kind: EdgeKind
    match edge.connection.exchange:
        case Forward():
            kind = "forward"
        case Rebalance():
            kind = "rebalance"
        case HashByKey():
            kind = "keyed"
        case Broadcast():
            kind = "broadcast"
        case unknown:
            assert_never(unknown)
    return EdgeShape(edge.name, edge.sender, edge.receiver, kind)


def _places(node: Node) -> frozenset[SectionKind]:
    """Which sections a step takes back."""
    match node.spec:
        case SourceStep():
            return frozenset({"position", "rest"})
        case SinkStep(kind="at_least_once"):
            return frozenset({"pending"})
        case SinkStep(kind="transactional"):
            return frozenset({"transactions", "pending"})
        case SinkStep(kind="staged"):
            return frozenset({"transactions"})
        case BatchStep():
            return frozenset({"batch"})
        case BroadcastStep():
            return frozenset({"broadcast"})
        case KeyedBroadcastStep():
            return frozenset({"state", "broadcast"})
        case ProcessStep() if node.spec.calls is not None:
            return frozenset({"state", "pending", "calls"})
        case ProcessStep() | CountStep() | ReduceStep() | ScanStep():
            return frozenset({"state"})
        case Call() if node.spec.calls is not None:
            return frozenset({"pending", "calls"})
        case _:
            return frozenset()


def plan_for(graph: LogicalGraph, manifest: Manifest) -> PhysicalPlan:
    """Plan a job that continues from a checkpoint: steps to which records are on their way are
    not fused with the step before them, so that these records have a channel."""
    physical = plan(graph)
    labels = {node.label for node in graph.nodes}
    unplaced = Assignment(manifest, job_shape(physical)).unplaced()
    apart = {one.head for one in unplaced if one.channel is not None and one.head in labels}
    return plan(graph, apart) if apart else physical


def check_fits(
    physical: PhysicalPlan, manifest: Manifest, *, allow_unmatched_state: bool = False
) -> None:
    """Raise RestoreRefused with everything of a checkpoint that has no place in the job.

    With `allow_unmatched_state`, what belongs to steps is left behind with a warning each; records
    that were on their way, and another max_parallelism, are refused all the same."""
    unplaced = [*Assignment(manifest, job_shape(physical)).unplaced()]
    of_steps = [*_of_steps(unplaced, physical)]
    in_flight = [*_in_flight(unplaced)]
    problems: list[str] = []
    if physical.max_parallelism != manifest.max_parallelism:
        problems.append(
            f"max_parallelism is {physical.max_parallelism} and was {manifest.max_parallelism}; "
            "it is fixed for a job's life: set it back"
        )
    problems += in_flight
    if allow_unmatched_state:
        for sentence in of_steps:
            _logger.warning("checkpoint %s: left behind: %s", manifest.checkpoint_id, sentence)
    else:
        problems += of_steps
    if problems:
        refused = bool(of_steps) and not allow_unmatched_state
        raise RestoreRefused(_refusal(manifest, problems, of_steps=refused))


def _refusal(manifest: Manifest, problems: Sequence[str], *, of_steps: bool) -> str:
    lines = "\n".join(f"  - {problem}" for problem in problems)
    allow = (
        "give the steps their old names, leave what they held behind with "
        "allow_unmatched_state=True (--allow-unmatched-state), "
        if of_steps
        else ""
    )
    return (
        f"checkpoint {manifest.checkpoint_id} of job {manifest.job!r} does not fit the job as it "
        f"is now:\n{lines}\nUndo the change, {allow}or start anew with fresh=True (--fresh)"
    )


def _of_steps(unplaced: Sequence[Unplaced], physical: PhysicalPlan) -> Iterator[str]:
    """One sentence per step and kind: what it held, and why that has no place."""
    amounts: dict[tuple[SectionKind, str], int] = {}
    sections: Counter[tuple[SubtaskId, tuple[SectionKind, str]]] = Counter()
    for one in unplaced:
        if one.channel is None:
            handle, what = one.handle, (one.handle.kind, one.handle.name)
            count = len(handle.lengths) if handle.kind == "transactions" else handle.records
            amounts[what] = amounts.get(what, 0) + count
            sections[one.subtask, what] += 1
    nodes = {node.label: node for task in physical.tasks for node in task.members}
    for (kind, name), amount in amounts.items():
        node = nodes.get(name)
        why = "there is no such step" if node is None else _cannot_take(node)
        # A chain of changes holds some keys several times.
        chained = any(count > 1 for (_, what), count in sections.items() if what == (kind, name))
        about = f"up to {amount}" if chained else amount
        yield f"step {name!r}: {_CONTENTS[kind].format(about)}; now {why}"


def _cannot_take(node: Node) -> str:
    return f"{node.verb} ({node.place}) is another kind of step and cannot take that"


_CONTENTS: dict[SectionKind, str] = {
    "position": "positions of its splits",
    "rest": "{} records that were read and not worked off",
    "state": "state of {} keys",
    "batch": "{} records of a batch that was not full",
    "broadcast": "broadcast state",
    "calls": "ids of calls",
    "pending": "{} pending records",
    "transactions": "{} transactions that were not committed",
}


def _in_flight(unplaced: Sequence[Unplaced]) -> Iterator[str]:
    records: dict[tuple[str, str], int] = {}
    for one in unplaced:
        if one.channel is not None:
            steps = one.channel.edge, one.head
            records[steps] = records.get(steps, 0) + one.handle.records
    for (sender, receiver), count in records.items():
        yield (
            f"{count} records were on their way from step {sender!r} to step {receiver!r}, between "
            "which there is no edge now; restore from an aligned checkpoint or savepoint, which "
            "holds no such records"
        )
