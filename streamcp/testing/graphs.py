"""Copies of a user's graph, in which steps can be replaced: the user's own one stays as it is."""

from __future__ import annotations

import dataclasses

from streamcp.graph.logical import LogicalGraph


def copied_graph(graph: LogicalGraph) -> LogicalGraph:
    """Copy a graph; the copies of its steps are in the same order, and joined in the same way."""
    copies = {node: dataclasses.replace(node) for node in graph.nodes}
    for node in copies.values():
        node.inputs = tuple(
            dataclasses.replace(connection, node=copies[connection.node])
            for connection in node.inputs
        )
    return dataclasses.replace(graph, nodes=[*copies.values()])
