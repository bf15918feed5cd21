"""From steps to tasks: which steps are fused, and which channels link the subtasks.

A source, an asynchronous step or sink and every exchange start a new task; synchronous steps run
in the task of the step before them. The plan is plain data and the same for every run of
the same graph.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from streamcp.graph.logical import (
    Broadcast,
    Connection,
    Forward,
    HashByKey,
    LogicalGraph,
    Node,
    Rebalance,
)
from streamcp.identifiers import ChannelId, SubtaskId
from streamcp.operators.steps import BatchStep, Call, SinkStep, SourceStep

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class EdgePlan:
    """An exchange between two tasks; one channel per pair of subtasks that it links."""

    name: str
    sender: str
    connection: Connection
    receiver: str

    def pairs(self, senders: int, receivers: int) -> list[tuple[int, int]]:
        """List (sender index, receiver index) of every channel, by sender, then by receiver."""
        if isinstance(self.connection.exchange, Forward):
            return [(i, i) for i in range(senders)]
        return [(i, j) for i in range(senders) for j in range(receivers)]

    @property
    def is_back(self) -> bool:
        """It leads back to the head of a loop."""
        return self.connection.back


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """Steps that run together: `head` takes the input, `members` are all of them in order."""

    name: str
    parallelism: int
    head: Node
    members: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """Tasks in an order in which every sender comes before its receivers (back edges of loops left
    out), and their edges."""

    job: str
    max_parallelism: int
    tasks: tuple[TaskPlan, ...]
    edges: tuple[EdgePlan, ...]

    def subtasks(self) -> Iterator[SubtaskId]:
        """Name every subtask, task by task."""
        for task in self.tasks:
            for index in range(task.parallelism):
                yield SubtaskId(task.name, index)

    def channels(self) -> Iterator[tuple[EdgePlan, ChannelId]]:
        """Name every channel, edge by edge."""
        parallelism = {task.name: task.parallelism for task in self.tasks}
        for edge in self.edges:
            for i, j in edge.pairs(parallelism[edge.sender], parallelism[edge.receiver]):
                sender, receiver = SubtaskId(edge.sender, i), SubtaskId(edge.receiver, j)
                yield edge, ChannelId(sender, receiver, edge.name)

    def senders(self) -> dict[SubtaskId, frozenset[SubtaskId]]:
        """Map every subtask to those that send to it, back edges of loops left out (P7, P19)."""
        found: dict[SubtaskId, set[SubtaskId]] = {subtask: set() for subtask in self.subtasks()}
        for edge, channel in self.channels():
            if not edge.is_back:
                found[channel.receiver].add(channel.sender)
        return {subtask: frozenset(senders) for subtask, senders in found.items()}

    def loops(self) -> list[frozenset[str]]:
        """Name the tasks of each loop: those on a way from its head and back."""
        heads = {edge.receiver for edge in self.edges if edge.is_back}
        behind: dict[str, set[str]] = {}
        before: dict[str, set[str]] = {}
        for edge in self.edges:
            behind.setdefault(edge.sender, set()).add(edge.receiver)
            before.setdefault(edge.receiver, set()).add(edge.sender)
        return [_circle(head, behind, before) for head in sorted(heads)]

    def downstream(self) -> dict[str, frozenset[str]]:
        """Map every task to those that its records can reach and that do not reach it."""
        behind: dict[str, set[str]] = {task.name: set() for task in self.tasks}
        for edge in self.edges:
            behind[edge.sender].add(edge.receiver)
        reached = {name: reachable(name, behind) for name in behind}
        return {
            name: frozenset(other for other in others if name not in reached[other])
            for name, others in reached.items()
        }


def _circle(
    head: str, behind: Mapping[str, set[str]], before: Mapping[str, set[str]]
) -> frozenset[str]:
    after, ahead = reachable(head, behind), reachable(head, before)
    return frozenset(after & ahead)


def reachable(start: T, neighbours: Mapping[T, Iterable[T]]) -> set[T]:
    """Everything that `start` leads to, itself included, along `neighbours`."""
    found: set[T] = set()
    waiting = [start]
    while waiting:
        here = waiting.pop()
        if here not in found:
            found.add(here)
            waiting += neighbours.get(here, ())
    return found


def effective_parallelism(graph: LogicalGraph, node: Node) -> int:
    """The number of subtasks of a step: its own, else the job's; a source without splits has 1."""
    if node.parallelism is not None:
        return node.parallelism
    if isinstance(node.spec, SourceStep) and node.spec.source.splits is None:
        return 1
    return graph.parallelism


def plan(graph: LogicalGraph, apart: Collection[str] = ()) -> PhysicalPlan:
    """Divide a valid graph into tasks (see `validation` for what makes one valid).

    The steps labelled `apart` start a task although they could be fused: a checkpoint holds
    records that are on their way to them."""
    head_of: dict[Node, Node] = {}
    members: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        upstream = None if node.label in apart else _fused_with(graph, node)
        head = head_of[upstream] if upstream is not None else node
        head_of[node] = head
        members.setdefault(head, []).append(node)
    names = {head: _task_name(steps) for head, steps in members.items()}
    tasks = tuple(
        TaskPlan(names[head], effective_parallelism(graph, head), head, tuple(steps))
        for head, steps in members.items()
    )
    edges = tuple(_edges(graph, head_of, names))
    return PhysicalPlan(graph.job, graph.max_parallelism, tasks, edges)


def _fused_with(graph: LogicalGraph, node: Node) -> Node | None:
    """Return the step in whose task `node` runs, or None if it starts a task."""
    if len(node.inputs) != 1 or starts_task(node):
        return None
    connection = node.inputs[0]
    if isinstance(connection.node.spec, SinkStep) and starts_task(connection.node):
        return None  # a sink waits for its target: what reads its errors does not wait with it
    here, there = effective_parallelism(graph, node), effective_parallelism(graph, connection.node)
    match connection.exchange:
        case Forward():
            return connection.node
        case HashByKey():
            return connection.node if here == there == 1 else None
        case Rebalance() | Broadcast():
            return None


def starts_task(node: Node) -> bool:
    """Sources, sinks and coroutine functions wait: each has a task of its own. So has a `batch`
    with event time, which holds watermarks back: those of steps before it go on."""
    if isinstance(node.spec, SinkStep):
        return node.spec.kind != "plain"
    if isinstance(node.spec, SourceStep):
        return True
    if isinstance(node.spec, BatchStep):
        return node.timed
    return isinstance(node.spec, Call) and node.spec.calls is not None


def _task_name(steps: list[Node]) -> str:
    """Prefer a name of the user's: it survives changes of the unnamed steps around it."""
    return next((step.name for step in steps if step.name is not None), steps[0].label)


def _edges(
    graph: LogicalGraph, head_of: dict[Node, Node], names: dict[Node, str]
) -> Iterator[EdgePlan]:
    used: dict[str, int] = {}
    for node in graph.nodes:
        if head_of[node] is not node:
            continue
        for connection in node.inputs:
            name = _edge_name(connection)
            key = f"{name} -> {names[node]}"
            used[key] = used.get(key, 0) + 1
            suffix = f"#{used[key]}" if used[key] > 1 else ""
            yield EdgePlan(name + suffix, names[head_of[connection.node]], connection, names[node])


def _edge_name(connection: Connection) -> str:
    """Name an edge after what it reads, and after the input that it feeds: records in flight come
    back to the same one (rule P18)."""
    output = "" if connection.output == "main" else f".{connection.output}"
    port = f", input {connection.port + 1}" if connection.port else ""
    return f"{connection.node.label}{output}{port}"
