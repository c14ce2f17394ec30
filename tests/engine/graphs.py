"""Graphs for the engine's tests, in few words."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from beamweaver.graph import Graph
from beamweaver.types import END, START


class State(TypedDict, total=False):
    """`log` and `n` have reducers; `x` and `y` keep their last value."""

    log: Annotated[list[Any], operator.add]
    n: Annotated[int, operator.add]
    x: Any
    y: Any


def wrote(name, **update):
    """A node that writes its name to the log, beside other keys."""

    def node(_state):
        return {"log": [name], **update}

    return node


def fails_once(name="bad", error=ValueError, **update):
    """A node that fails when it is first called."""
    return fails(1, name, error, **update)


def fails(times, name="bad", error=ValueError, **update):
    """A node that fails that many times."""
    left = [times]

    def node(_state):
        if left[0]:
            left[0] -= 1
            raise error("boom")
        return {"log": [name], **update}

    return node


def asks(name="ask", *questions, key=None):
    """A node that asks its questions one after the other, and logs the answers."""

    def node(_state, ctx):
        answers = [ctx.interrupt(q, key=key and f"{key}{q}") for q in questions or ("ok?",)]
        return {"log": [f"{name}:{','.join(map(str, answers))}"]}

    return node


def sees(key, name="see"):
    """A node that logs what it sees of a key."""

    def node(state):
        return {"log": [f"{name} sees {state.get(key)}"]}

    return node


def graph(
    edges="",
    *,
    schema=State,
    name="g",
    version=1,
    options=None,
    joins=(),
    routers=(),
    guards=(),
    **nodes,
):
    """A graph of these nodes; those that are None write their name.

    - `edges` are such as `"^>a a>b b>$"`: `^` is START, `$` is END.
    - `options` are those of `compile()`; a dict under a node's name has that node's options.
    - `joins` are `(sources, target)`, sources as `"a b"`.
    - `routers` are `(source, function)` or `(source, function, targets)`.
    - `guards` are `("a>b", options)`, options those of `add_edge()`.
    """
    options = dict(options or {})
    builder = Graph(schema, name=name, version=version)
    for node, fn in nodes.items():
        builder.add_node(node, fn or wrote(node), **options.pop(node, {}))
    for edge, given in [*((edge, {}) for edge in edges.split()), *guards]:
        source, target = edge.split(">")
        builder.add_edge({"^": START}.get(source, source), {"$": END}.get(target, target), **given)
    for sources, target in joins:
        builder.add_edge(sources.split(), target)
    for source, router, *targets in routers:
        builder.add_conditional_edges({"^": START}.get(source, source), router, *targets)
    return builder.compile(**{"allow_unreachable": True, **options})


def line(*names, **options):
    """Nodes one after the other."""
    edges = " ".join(f"{a}>{b}" for a, b in zip(("^", *names), (*names, "$"), strict=True))
    return graph(edges, options=options, **dict.fromkeys(names))


def fan(**nodes):
    """Nodes side by side, from START to END."""
    given = {key: nodes.pop(key) for key in ("options", "schema") if key in nodes}
    return graph(" ".join(f"^>{name}" for name in nodes), **given, **nodes)
