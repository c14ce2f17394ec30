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

from beamweaver.graph._handlers import call_handler, call_on_failure
from beamweaver.graph._not_yet import not_supported_yet
from beamweaver.graph.builder import Graph, Node, Predicate, Router
from beamweaver.graph.changes import Appended, Change, KeysRemoved, KeysSet, Replaced
from beamweaver.graph.channels import MISSING, Channel, Folded, Missing, Reducer
from beamweaver.graph.compiled import CompiledGraph
from beamweaver.graph.copies import unshared
from beamweaver.graph.difference import difference
from beamweaver.graph.guards import Choice, call_guard, choose, guards_to_ask, judge_guard
from beamweaver.graph.kinds import Ephemeral, IsLastStep, RemainingSteps, Topic, Untracked
from beamweaver.graph.migrations import Migration, migrations_from
from beamweaver.graph.mutations import Watch, mutations, state_mutated, watch
from beamweaver.graph.options import CompileOptions, NodeDefaults, NodeOptions
from beamweaver.graph.outline import Outline, outline_from_json
from beamweaver.graph.reducers import add_messages, append, merge
from beamweaver.graph.schema import update_of
from beamweaver.graph.shapes import Shape
from beamweaver.graph.specs import Branch, FailurePolicy, Guard, Handler, Join, NodeSpec
from beamweaver.graph.subgraphs import entering, leaving
from beamweaver.graph.updates import (
    NodeReturn,
    Write,
    call_node,
    call_router,
    normalize,
    normalize_input,
    normalize_routing,
    overlay_channel,
)

__all__ = [
    "MISSING",
    "Appended",
    "Branch",
    "Change",
    "Channel",
    "Choice",
    "CompileOptions",
    "CompiledGraph",
    "Ephemeral",
    "FailurePolicy",
    "Folded",
    "Graph",
    "Guard",
    "Handler",
    "IsLastStep",
    "Join",
    "KeysRemoved",
    "KeysSet",
    "Migration",
    "Missing",
    "Node",
    "NodeDefaults",
    "NodeOptions",
    "NodeReturn",
    "NodeSpec",
    "Outline",
    "Predicate",
    "Reducer",
    "RemainingSteps",
    "Replaced",
    "Router",
    "Shape",
    "Topic",
    "Untracked",
    "Watch",
    "Write",
    "add_messages",
    "append",
    "call_guard",
    "call_handler",
    "call_node",
    "call_on_failure",
    "call_router",
    "choose",
    "difference",
    "entering",
    "guards_to_ask",
    "judge_guard",
    "leaving",
    "merge",
    "migrations_from",
    "mutations",
    "normalize",
    "normalize_input",
    "normalize_routing",
    "not_supported_yet",
    "outline_from_json",
    "overlay_channel",
    "state_mutated",
    "unshared",
    "update_of",
    "watch",
]
