"""The options of `add_node` and `set_node_defaults` in their stored form."""

from __future__ import annotations

from inspect import iscoroutinefunction
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import UNSET

from beamweaver.errors import InvalidGraph
from beamweaver.graph import _arguments as arguments
from beamweaver.graph._text import place
from beamweaver.graph.schema import SchemaFault, channels_of
from beamweaver.graph.shapes import shape_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from beamweaver.graph.compiled import CompiledGraph

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
        "isolation": arguments.isolation_option(given.get("isolation"), what),
        "shape": shape,
        "inputs": inputs,
    }


def subgraph_fault(graph: CompiledGraph | None, options: Mapping[str, Any]) -> str | None:
    """Why options do not fit a node's kind, or None."""
    key = options["key"]
    if key is not None and not options["persistent"]:
        return "key= tells the states of a persistent graph apart; give persistent=True too, or leave it out"
    if key is not None and not isinstance(key, str) and not callable(key):
        return f"key is {key!r}; give the name of a key of the state, or a function of the state"
    if iscoroutinefunction(key):
        return f"key is {key!r}, which is async; give a sync, quick function of the state"
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
