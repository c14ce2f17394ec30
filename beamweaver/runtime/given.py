"""What callers give to a runtime: its graphs, and what nodes find in `ctx.context`, which is never stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from beamweaver.errors import InvalidCall
from beamweaver.graph._fields import fields_of, form_of
from beamweaver.graph._text import shown
from beamweaver.graph._typecheck import checker, type_name
from beamweaver.types import Invoke

if TYPE_CHECKING:
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.runtime.hub import Hub

__all__ = [
    "MISSING",
    "check_context",
    "check_contexts",
    "context_of_call",
    "default_context",
    "refuse_namesakes",
    "several",
]

MISSING: Final = object()
"""Stands for the context of a run that has none, though its graph declares one."""


def several(graphs: Any) -> tuple[CompiledGraph, ...]:
    """The graphs of a runtime.

    Raises:
        InvalidCall: It is one graph alone, or nothing of which there are several.
    """
    if isinstance(graphs, str) or not isinstance(graphs, Iterable):
        raise InvalidCall(
            f"graphs is {shown(graphs)}; give a list of compiled graphs: graphs=[app]"
        )
    return tuple(graphs)


def refuse_namesakes(graphs: Iterable[CompiledGraph]) -> None:
    """Refuse two graphs of one name: a thread knows its graph by name.

    Raises:
        InvalidCall: There are two.
    """
    seen: dict[str, CompiledGraph] = {}
    for graph in graphs:
        if seen.setdefault(graph.name, graph) is not graph:
            raise InvalidCall(
                f"graphs has two graphs named {graph.name!r}, and threads know theirs by its name; give each "
                "a name of its own: Graph(name=…)"
            )


def check_context(graph: CompiledGraph, value: Any, what: str = "context") -> Any:
    """A context, judged by the graph's `context_schema`; a dict becomes an instance of a class schema.

    Raises:
        InvalidCall: It is none of that type.
    """
    schema = graph.context_schema
    if schema is None:
        return value
    of_class = form_of(schema) not in (None, "typed dict")
    if of_class and isinstance(value, Mapping):
        try:
            return schema(**value)
        except Exception as error:  # the class is user code
            raise InvalidCall(
                f"{what} of graph {graph.name!r}: no {type_name(schema)} can be made of {shown(value)}: "
                f"{type(error).__name__}: {error}"
            ) from error
    fault = checker(schema).fault(value)
    if fault is not None:
        raise InvalidCall(
            f"{what} of graph {graph.name!r} is {shown(value)}; give a {type_name(schema)}, which is its "
            "context_schema"
        )
    return value


def check_contexts(graphs: Iterable[CompiledGraph], contexts: Mapping[str, Any]) -> dict[str, Any]:
    """The contexts that a runtime has for runs without one of their own, by graph.

    Raises:
        InvalidCall: One is of no graph of the runtime, or does not fit.
    """
    known = {graph.name: graph for graph in graphs}
    for name in contexts:
        if name not in known:
            names = ", ".join(known) or "none"
            raise InvalidCall(
                f"contexts names the graph {name!r}, and graphs= has: {names}; give a graph that comes "
                "later its context in register(graph, context=…)"
            )
    return {
        name: check_context(known[name], value, f"contexts[{name!r}]")
        for name, value in contexts.items()
    }


def default_context(hub: Hub, graph: CompiledGraph) -> Any:
    """The context of a run whose callers gave none; `MISSING` if there is none."""
    schema = graph.context_schema
    found = hub.contexts.get(graph.name, MISSING)
    if found is not MISSING:
        return found
    if schema is None:
        return None
    form = form_of(schema)
    if form is None or any(field.required for field in fields_of(schema)):
        return MISSING
    return {} if form == "typed dict" else schema()


def context_of_call(hub: Hub, graph: CompiledGraph, message: Any) -> Any:
    """The context that a message brings; UNSET if it brings none.

    Raises:
        InvalidCall: It does not fit, or an input comes without one, and the graph needs one.
    """
    value = getattr(message, "context", msgspec.UNSET)
    if value is not msgspec.UNSET:
        return check_context(graph, value)
    if (
        graph.context_schema is not None
        and isinstance(message, Invoke)
        and message.input is not None
        and default_context(hub, graph) is MISSING
    ):
        raise InvalidCall(
            f"graph {graph.name!r} declares context_schema={type_name(graph.context_schema)}, and the call "
            "brings none: give context=…, or open Runtime(contexts={name: …})"
        )
    return value
