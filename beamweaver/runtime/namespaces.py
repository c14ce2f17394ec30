"""Paths of nodes that lead to graphs inside of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamweaver.engine.ids import name_in
from beamweaver.errors import InvalidCall
from beamweaver.graph._text import listed, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from beamweaver.graph.compiled import CompiledGraph

__all__ = ["check_namespace", "declared_call", "graphs_at", "unknown_call"]


def check_namespace(graph: CompiledGraph, namespace: Sequence[str]) -> tuple[str, ...]:
    """A path of nodes that are graphs or call some, the outermost first.

    What lies inside of a call of which it is not known what graph it is is not judged.

    Raises:
        InvalidCall: It is none of this graph.
    """
    if isinstance(namespace, str) or not all(isinstance(name, str) for name in namespace):
        raise InvalidCall(
            f"namespace is {namespace!r}; give a tuple of nodes, the outermost first, such as ('child',)"
        )
    at: CompiledGraph | None = graph
    for name in namespace:
        if at is not None:
            _check_name(at, name)
            at = _graph_in(at, name)
    return tuple(namespace)


def _check_name(graph: CompiledGraph, name: str) -> None:
    node = graph.nodes.get(name.partition(":")[0])
    if node is None or (node.subgraph is None and ":" not in name):
        known = [each.name for each in graph.nodes.values() if each.subgraph is not None]
        call = (
            ""
            if node is None
            else f" A graph that the function {name!r} calls is at {name + ':<its name>'!r}, as the "
            "namespace of its questions says."
        )
        raise InvalidCall(
            f"namespace names {name!r}, and graph {graph.name!r} has no such node that is a graph."
            f"{nearest(name, known)} Those that are: {listed(known)}.{call}"
        )


def declared_call(graph: CompiledGraph, node: str, key: str) -> CompiledGraph | None:
    """The graph that a function of a node calls under a key, if `calls=` of the node names it."""
    spec, name = graph.nodes.get(node), name_in(key)
    calls = () if spec is None else spec.calls
    return next((called for called in calls if called.name == name), None)


def _graph_in(graph: CompiledGraph, name: str) -> CompiledGraph | None:
    node, _, part = name.partition(":")
    subgraph = graph.nodes[node].subgraph
    return declared_call(graph, node, part) if subgraph is None else subgraph


def graphs_at(graph: CompiledGraph, namespace: Sequence[str]) -> tuple[CompiledGraph, ...]:
    """The graphs along a path that was checked, as far as they are known."""
    found: list[CompiledGraph] = []
    for name in namespace:
        inner = _graph_in(found[-1] if found else graph, name)
        if inner is None:
            break
        found.append(inner)
    return tuple(found)


def unknown_call(namespace: tuple[str, ...]) -> InvalidCall:
    """The refusal of an edit in a graph of which nobody said what it is."""
    node, _, key = namespace[-1].partition(":")
    return InvalidCall(
        f"namespace leads to {namespace!r}, a call of graph {name_in(key)!r} by the function {node!r}, and "
        f"which graph that is is not known here: say it at the node: add_node({node!r}, …, calls=[…])"
    )
