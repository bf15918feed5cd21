"""A job's graph for people: as text, and as a Mermaid flowchart.

With a physical plan the steps are grouped by the task that runs them. The same graph gives the
same text; nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from streamcp.graph.logical import (
    Broadcast,
    Connection,
    Exchange,
    Forward,
    HashByKey,
    LogicalGraph,
    Node,
    Rebalance,
)
from streamcp.graph.physical import PhysicalPlan, effective_parallelism
from streamcp.operators.steps import Call, ForEachStep, SinkStep, SourceStep


def render_text(graph: LogicalGraph, plan: PhysicalPlan | None = None) -> str:
    """List the steps in the order of their definition, one a line, with what each of them reads.

    With a `plan`, task by task."""
    lines = [f"job {graph.job}"]
    groups = _groups(graph, plan)
    widths = _widths(graph)
    for title, nodes in groups:
        if title:
            lines.append(f"  task {title}")
        lines += [
            ("    " if title else "  ") + _row(graph, node, widths).rstrip() for node in nodes
        ]
    return "\n".join(lines) + "\n"


def render_mermaid(graph: LogicalGraph, plan: PhysicalPlan | None = None) -> str:
    """Draw the steps as a Mermaid flowchart from left to right; with a `plan`, tasks as boxes."""
    lines = ["flowchart LR"]
    for number, (title, nodes) in enumerate(_groups(graph, plan)):
        boxes = [f"  {_box(graph, node)}" for node in nodes]
        if title:
            start = f'  subgraph t{number}["{_escaped(title)}"]'
            boxes = [start, *(f"  {box}" for box in boxes), "  end"]
        lines += boxes
    lines += [f"  {arrow}" for node in graph.nodes for arrow in _arrows(node)]
    return "\n".join(lines) + "\n"


def _groups(graph: LogicalGraph, plan: PhysicalPlan | None) -> list[tuple[str, Iterable[Node]]]:
    """The steps of each task with the task's title; without a plan all, without a title."""
    if plan is None:
        return [("", graph.nodes)]
    return [(f"{task.name} ×{task.parallelism}", task.members) for task in plan.tasks]


def _widths(graph: LogicalGraph) -> tuple[int, int]:
    return (
        max((len(node.label) for node in graph.nodes), default=0),
        max((len(_kind(node)) for node in graph.nodes), default=0),
    )


def _row(graph: LogicalGraph, node: Node, widths: tuple[int, int]) -> str:
    label, kind = node.label.ljust(widths[0]), _kind(node).ljust(widths[1])
    inputs = ", ".join(_input(connection) for connection in node.inputs)
    arrow = f"  ← {inputs}" if inputs else ""
    return f"{label}  {kind}  ×{effective_parallelism(graph, node)}{arrow}"


def _kind(node: Node) -> str:
    waits = isinstance(node.spec, Call) and node.spec.calls is not None
    return f"async {node.verb}" if waits else node.verb


def _input(connection: Connection) -> str:
    words = ", ".join(_words(connection))
    return _sender(connection) + (f" ({words})" if words else "")


def _sender(connection: Connection) -> str:
    label = connection.node.label
    return label if connection.output == "main" else f"{label}.{connection.output}"


def _words(connection: Connection) -> list[str]:
    """Whether it leads back, how the records are divided, and which input they come to where there
    are two."""
    port = f"input {connection.port + 1}" if connection.port else ""
    back = "back" if connection.back else ""
    return [word for word in (back, _exchange(connection.exchange), port) if word]


def _exchange(exchange: Exchange) -> str:
    match exchange:
        case Forward():
            return ""
        case HashByKey():
            return "by key"
        case Rebalance():
            return "rebalance"
        case Broadcast():
            return "broadcast"


def _box(graph: LogicalGraph, node: Node) -> str:
    words = f"{_escaped(node.label)}<br/>{_kind(node)} ×{effective_parallelism(graph, node)}"
    if isinstance(node.spec, SourceStep):
        return f'n{node.number}(["{words}"])'
    if isinstance(node.spec, SinkStep | ForEachStep):
        return f'n{node.number}[["{words}"]]'
    return f'n{node.number}["{words}"]'


def _arrows(node: Node) -> Iterator[str]:
    for connection in node.inputs:
        output = [] if connection.output == "main" else [connection.output]
        words = ", ".join(output + _words(connection))
        label = f'|"{words}"|' if words else ""
        arrow = "-.->" if connection.back else "-->"
        yield f"n{connection.node.number} {arrow}{label} n{node.number}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
