"""Graphs: the builder, the compiled form, and the judgement of what nodes and routers return.

This package is pure: nothing runs here and nothing is stored.

Example:
    >>> from beamweaver.types import START
    >>> builder = Graph(name="hello").add_node("a", lambda state: {"n": 1})
    >>> graph = builder.add_edge(START, "a").compile()
    >>> normalize(graph, graph.nodes["a"], {"n": 1}).writes
    (('n', 1, False),)
"""

from __future__ import annotations

from beamweaver.graph.builder import Graph, Node, Router
from beamweaver.graph.channels import MISSING, Channel, Missing, Reducer
from beamweaver.graph.compiled import Branch, CompiledGraph, FailurePolicy, Join, NodeSpec
from beamweaver.graph.reducers import append, merge
from beamweaver.graph.updates import (
    NodeReturn,
    Write,
    call_node,
    call_router,
    normalize,
    normalize_input,
    normalize_routing,
)

__all__ = [
    "MISSING",
    "Branch",
    "Channel",
    "CompiledGraph",
    "FailurePolicy",
    "Graph",
    "Join",
    "Missing",
    "Node",
    "NodeReturn",
    "NodeSpec",
    "Reducer",
    "Router",
    "Write",
    "append",
    "call_node",
    "call_router",
    "merge",
    "normalize",
    "normalize_input",
    "normalize_routing",
]
