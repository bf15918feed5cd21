"""What makes event time impossible in a logical graph (see `validation`)."""

from __future__ import annotations

from collections.abc import Iterator

from streamcp.graph.logical import LogicalGraph, Node, told
from streamcp.operators.steps import MachineStep, ProcessStep, SourceStep, WindowStep


def find_time_problems(graph: LogicalGraph) -> Iterator[str]:
    """Give the problems one by one, in the order of the steps within each kind."""
    yield from _half_timed(graph)
    yield from _untimed_machines(graph)
    yield from _untimed_ttl(graph)
    yield from _lonely_groups(graph)


def _half_timed(graph: LogicalGraph) -> Iterator[str]:
    """Records with and without timestamps cannot be put into one stream."""
    for node in graph.nodes:
        inputs = [one.node for one in node.inputs if not one.beside and not one.back]
        without = [one for one in inputs if not one.timed]
        if node.timed and without:
            timed = next(one for one in inputs if one.timed)
            yield (
                f"{told(node)} reads {told(timed)}, whose records have timestamps, and "
                f"{told(without[0])}, whose records have none; give the source of the latter "
                "watermarks=sc.Watermarks(...) as well"
            )


def _untimed_machines(graph: LogicalGraph) -> Iterator[str]:
    for node in graph.nodes:
        if _needs_time(node) and not node.timed:
            yield (
                f"{told(node)} needs event time, and its records have no timestamps; give the "
                "source watermarks=sc.Watermarks(lambda record: record.ts)"
            )


def _needs_time(node: Node) -> bool:
    spec = node.spec
    return spec.needs_time if isinstance(spec, WindowStep) else isinstance(spec, MachineStep)


def _untimed_ttl(graph: LogicalGraph) -> Iterator[str]:
    for node in graph.nodes:
        ttl = node.spec.ttl if isinstance(node.spec, ProcessStep) else None
        if ttl is not None and ttl.in_event_time(timed=node.timed) and not node.timed:
            yield (
                f"{told(node)} has a ttl in event time, and its records have no timestamps; give "
                "the source watermarks=sc.Watermarks(lambda record: record.ts), or write "
                'Ttl(..., clock="processing")'
            )


def _lonely_groups(graph: LogicalGraph) -> Iterator[str]:
    """One source that is not divided has nobody to keep together with: a misspelt name."""
    groups: dict[str, list[Node]] = {}
    for node in graph.nodes:
        spec = node.spec
        if isinstance(spec, SourceStep) and spec.watermarks is not None and spec.watermarks.align:
            groups.setdefault(spec.watermarks.align, []).append(node)
    for name, (node, *others) in groups.items():
        if not others and isinstance(node.spec, SourceStep) and node.spec.source.splits is None:
            known = ", ".join(repr(other) for other in groups if other != name)
            yield (
                f"{told(node)} is alone in the group align={name!r} of its watermarks, and has no "
                "splits: write the same name at another source"
                + (f" (there are: {known})" if known else "")
                + ", or leave align= out"
            )
