"""From a physical plan to subtasks that are linked by channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from streamcp.channel.channel import UNLIMITED, Channel, NewChannel
from streamcp.channel.input_gate import InputGate
from streamcp.channel.loop_gate import LoopGate
from streamcp.channel.output_gate import (
    BroadcastEdge,
    ForwardEdge,
    KeyedEdge,
    OutputEdge,
    OutputGate,
    RebalanceEdge,
    Routes,
)
from streamcp.checkpoint.key_groups import key_group, receiver_of_group
from streamcp.graph.logical import Broadcast, Forward, HashByKey, Node, Rebalance
from streamcp.graph.physical import EdgePlan, PhysicalPlan, TaskPlan
from streamcp.identifiers import ChannelId, SubtaskId
from streamcp.operators.steps import Call, LookupStep, ProcessStep, SinkStep, SourceStep
from streamcp.runtime.async_subtask import AsyncSubtask
from streamcp.runtime.calling import key_failure
from streamcp.runtime.exactly_once_subtask import TransactionalSubtask
from streamcp.runtime.gateway import TaskContext
from streamcp.runtime.iteration import Iteration
from streamcp.runtime.keyed_async_subtask import KeyedAsyncSubtask
from streamcp.runtime.lookup_subtask import LookupSubtask
from streamcp.runtime.sink_subtask import AtLeastOnceSubtask
from streamcp.runtime.snapshots import SnapshotWriter
from streamcp.runtime.source_subtask import SourceSubtask
from streamcp.runtime.staged_subtask import StagedSubtask
from streamcp.runtime.step_subtask import StepSubtask
from streamcp.runtime.steps import Chain
from streamcp.runtime.strictness import Lenient
from streamcp.runtime.subtask import Subtask
from streamcp.runtime.work_list import BarrierWorkList
from streamcp.serialization.stable_hash import stable_hash


def wire(
    plan: PhysicalPlan,
    context: TaskContext,
    snapshots: SnapshotWriter,
    work_list: BarrierWorkList,
    capacity: int,
    new_channel: NewChannel = Channel,
) -> list[Subtask]:
    """Make every subtask of the plan, senders before receivers, and attach the work list."""
    channels = {
        channel_id: new_channel(channel_id, UNLIMITED if edge.is_back else capacity)
        for edge, channel_id in plan.channels()
    }
    parallelism = {task.name: task.parallelism for task in plan.tasks}
    routes = {  # by identity: a key function need not be hashable
        id(edge): Routes(receiver_by_key(parallelism[edge.receiver], plan.max_parallelism))
        for edge in plan.edges
        if isinstance(edge.connection.exchange, HashByKey)
    }
    ports = {channel_id: edge.connection.port for edge, channel_id in plan.channels()}
    subtasks: list[Subtask] = []
    for task in plan.tasks:
        for index in range(task.parallelism):
            subtask_id = SubtaskId(task.name, index)
            edges = _output_edges(plan, subtask_id, channels, routes, context.strict)
            own = [channel for channel in channels.values() if channel.id.receiver == subtask_id]
            gate = _gate(own, [ports[channel.id] for channel in own], capacity)
            output = OutputGate([edge for group in edges.values() for edge in group])
            chain = Chain(task, edges, context)
            kind = _kind(task)
            subtask = kind(context, subtask_id, gate, output, chain, snapshots, work_list)
            subtask.prepare()
            subtasks.append(subtask)
    work_list.attach(subtasks)
    _close_loops(plan, subtasks)
    _divide_splits(plan, subtasks)
    return subtasks


def _gate(channels: list[Channel], ports: list[int], capacity: int) -> InputGate:
    back = frozenset(n for n, channel in enumerate(channels) if channel.capacity == UNLIMITED)
    return LoopGate(channels, back, capacity) if back else InputGate(channels, ports)


def _close_loops(plan: PhysicalPlan, subtasks: list[Subtask]) -> None:
    """Let the subtasks of each loop know one another, so that it can end (P19)."""
    for tasks in plan.loops():
        iteration = Iteration()
        for subtask in subtasks:
            if subtask.id.task in tasks:
                senders = [channel.id.sender.task for channel in subtask.gate.channels]
                outer = frozenset(n for n, sender in enumerate(senders) if sender not in tasks)
                subtask.join(iteration, outer)


def _kind(task: TaskPlan) -> type[Subtask]:
    spec = task.head.spec
    match spec:
        case SourceStep():
            return SourceSubtask
        case SinkStep(kind="at_least_once"):
            return AtLeastOnceSubtask
        case SinkStep(kind="transactional"):
            return TransactionalSubtask
        case SinkStep(kind="staged"):
            return StagedSubtask
        case ProcessStep() if spec.calls is not None:
            return KeyedAsyncSubtask
        case LookupStep():
            return LookupSubtask
        case Call() if spec.calls is not None:
            return AsyncSubtask
        case _:
            return StepSubtask


def _output_edges(
    plan: PhysicalPlan,
    sender: SubtaskId,
    channels: Mapping[ChannelId, Channel],
    routes: Mapping[int, Routes],
    strict: Lenient,
) -> dict[tuple[Node, str], list[OutputEdge]]:
    edges: dict[tuple[Node, str], list[OutputEdge]] = {}
    for edge in plan.edges:
        if edge.sender == sender.task:
            own = [
                channel
                for channel_id, channel in channels.items()
                if channel_id.sender == sender and channel_id.receiver.task == edge.receiver
                if channel_id.edge == edge.name
            ]
            output = (edge.connection.node, edge.connection.output)
            edges.setdefault(output, []).append(
                _output_edge(edge, sender.index, own, routes, strict)
            )
    return edges


def _output_edge(
    edge: EdgePlan,
    sender_index: int,
    channels: list[Channel],
    routes: Mapping[int, Routes],
    strict: Lenient,
) -> OutputEdge:
    exchange = edge.connection.exchange
    match exchange:
        case Forward():
            return ForwardEdge(channels[0])
        case Rebalance():
            return RebalanceEdge(channels, first=sender_index)
        case Broadcast():
            return BroadcastEdge(channels)
        case HashByKey(key):
            node = edge.connection.node
            key = strict.exchanged(node, key)
            to = routes[id(edge)]
            return KeyedEdge(channels, key, to, key_failure(node), timed=node.timed)


def receiver_by_key(parallelism: int, max_parallelism: int) -> Callable[[Any], int]:
    """Map keys to receiving subtasks: the owners of their key groups."""

    def receiver(key: Any) -> int:
        group = key_group(stable_hash(key), max_parallelism)
        return receiver_of_group(group, parallelism, max_parallelism)

    return receiver


def _divide_splits(plan: PhysicalPlan, subtasks: list[Subtask]) -> None:
    """Deal the splits of each source to its subtasks, in turn."""
    splits = {
        task.name: list(task.head.spec.source.splits())
        for task in plan.tasks
        if isinstance(task.head.spec, SourceStep) and task.head.spec.source.splits is not None
    }
    parallelism = {task.name: task.parallelism for task in plan.tasks}
    for subtask in subtasks:
        if isinstance(subtask, SourceSubtask):
            task, index = subtask.id.task, subtask.id.index
            own = splits[task][index :: parallelism[task]] if task in splits else [None]
            subtask.set_splits(own)
