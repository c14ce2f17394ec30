"""Paths of nodes that lead to graphs inside of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamweaver.errors import InvalidCall
from beamweaver.graph._text import listed, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from beamweaver.graph.compiled import CompiledGraph

__all__ = ["check_namespace", "graph_at"]


def check_namespace(graph: CompiledGraph, namespace: Sequence[str]) -> tuple[str, ...]:
    """A path of nodes that are graphs, the outermost first.

    Raises:
        InvalidCall: It is none of this graph.
    """
    if isinstance(namespace, str) or not all(isinstance(name, str) for name in namespace):
        raise InvalidCall(
            f"namespace is {namespace!r}; give a tuple of nodes, the outermost first, such as ('child',)"
        )
    for name in namespace:
        node = graph.nodes.get(name.partition(":")[0])
        if node is not None and node.subgraph is None and ":" in name:
            raise InvalidCall(
                f"namespace names {name!r}, and node {node.name!r} of graph {graph.name!r} is a function: "
                "what it calls by ctx.call() is not read or edited by namespace. Its questions are in "
                "get_state(…).interrupts, and its result is what the call returns"
            )
        if node is None or node.subgraph is None:
            known = [each.name for each in graph.nodes.values() if each.subgraph is not None]
            raise InvalidCall(
                f"namespace names {name!r}, and graph {graph.name!r} has no such node that is a graph."
                f"{nearest(name, known)} Those that are: {listed(known)}"
            )
        graph = node.subgraph
    return tuple(namespace)


def graph_at(graph: CompiledGraph, namespace: Sequence[str]) -> CompiledGraph:
    """The graph at a path that was checked."""
    for name in namespace:
        subgraph = graph.nodes[name.partition(":")[0]].subgraph
        assert subgraph is not None, "the namespace was checked"
        graph = subgraph
    return graph
