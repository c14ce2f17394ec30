"""The options of `add_node` and `set_node_defaults` in their stored form."""

from __future__ import annotations

from inspect import iscoroutinefunction
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import UNSET

from beamweaver.errors import InvalidGraph
from beamweaver.graph import _arguments as arguments
from beamweaver.graph._text import place, shown
from beamweaver.graph.compiled import CompiledGraph
from beamweaver.graph.schema import SchemaFault, channels_of
from beamweaver.graph.shapes import shape_of

if TYPE_CHECKING:
    from collections.abc import Mapping


__all__ = ["default_options", "node_options", "runs_as_subgraph", "subgraph_fault"]


def default_options(given: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Options that have a default for all nodes; UNSET where one is not given."""
    retry = arguments.retry_option(given.get("retries"), given.get("retry", UNSET), what)
    return {
        "retry": retry,
        "timeout": arguments.timeout_option(given.get("timeout", UNSET), what),
        "error_handler": arguments.handler_option(given.get("error_handler", UNSET), what),
        "cache": given.get("cache"),
    }


def node_options(given: Mapping[str, Any], what: str) -> dict[str, Any]:
    """All options of a node, for `DeclaredNode`.

    Raises:
        InvalidGraph: One of them is unfit.
    """
    schema = given.get("input_schema")
    try:
        shape = None if schema is None else shape_of(schema)
        inputs = None if schema is None else channels_of(schema)
    except SchemaFault as error:
        raise InvalidGraph(f"{what}: input_schema: {error}", faults=(str(error),)) from None
    metadata = given.get("metadata") or {}
    return {
        **default_options(given, what),
        "metadata": MappingProxyType(dict(metadata)),
        "destinations": arguments.names(given.get("destinations", ()), "destinations", what),
        "place": place(),
        "defer": arguments.flag(given.get("defer", False), "defer", what),
        "persistent": arguments.flag(given.get("persistent", False), "persistent", what),
        "key": given.get("key"),
        "calls": _calls(given.get("calls", ()), what),
        "isolation": arguments.isolation_option(given.get("isolation"), what),
        "shape": shape,
        "inputs": inputs,
    }


def _calls(given: Any, what: str) -> tuple[CompiledGraph, ...]:
    """The graphs that a function is said to call.

    Raises:
        InvalidGraph: One is none, is kept by itself, or has the name of another one.
    """
    fault = None
    graphs = tuple(given) if isinstance(given, (list, tuple)) else ()
    unfit = next((graph for graph in graphs if not isinstance(graph, CompiledGraph)), None)
    if not isinstance(given, (list, tuple)) or unfit is not None:
        one = given if unfit is None else unfit
        fault = f"calls names {shown(one)}; give a list of compiled graphs: [Graph(…).compile()]"
    elif len({graph.name for graph in graphs}) < len(graphs):
        names = sorted(graph.name for graph in graphs)
        fault = f"two of the graphs in calls have one name ({', '.join(names)}); give each its own"
    else:
        kept = next((graph.name for graph in graphs if graph.checkpointer is not None), None)
        if kept is not None:
            fault = f"calls names graph {kept!r}, which has a checkpointer: compile it without one"
    if fault is not None:
        raise InvalidGraph(f"{what}: {fault}", faults=(fault,))
    return graphs


def subgraph_fault(graph: CompiledGraph | None, options: Mapping[str, Any]) -> str | None:
    """Why options do not fit a node's kind, or None."""
    key = options["key"]
    if key is not None and not options["persistent"]:
        return "key= tells the states of a persistent graph apart; give persistent=True too, or leave it out"
    if key is not None and not isinstance(key, str) and not callable(key):
        return f"key is {key!r}; give the name of a key of the state, or a function of the state"
    if iscoroutinefunction(key):
        return f"key is {key!r}, which is async; give a sync, quick function of the state"
    if graph is not None and options["calls"]:
        return "calls= names what a function calls, and a graph as a node has nodes of its own; leave it out"
    if graph is None:
        return (
            "persistent=True is for a compiled graph as a node; leave it out"
            * bool(options["persistent"])
            or None
        )
    if options["inputs"] is not None:
        return "a graph as a node has an input_schema of its own; leave input_schema= out"
    if options["isolation"] is not None:
        return "a graph as a node runs with its parent; give isolation= to its nodes"
    if graph.checkpointer is not None:
        return (
            f"graph {graph.name!r} has a checkpointer, and as a node it is kept with its parent; "
            "compile it without one"
        )
    return None


def runs_as_subgraph(_state: object) -> NoReturn:
    """Stands for the function of a node that is a graph.

    Raises:
        NotImplementedError: Always: an engine runs `NodeSpec.subgraph`.
    """
    raise NotImplementedError("a node that is a graph has no function to call; run its subgraph")
