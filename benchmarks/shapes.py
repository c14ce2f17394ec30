"""The work that both sides of a graph comparison do: the same states, bodies, routers, results."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.comparison import Json, Options

__all__ = [
    "Fan",
    "Line",
    "fan_expected",
    "fan_result",
    "fan_router",
    "increment",
    "line_expected",
    "line_names",
    "plan",
    "square",
]


class Line(TypedDict):
    """The state of a line of nodes."""

    n: int


def increment(state: Line) -> dict[str, int]:
    """The body of each node of a line."""
    return {"n": state["n"] + 1}


def line_names(nodes: int) -> list[str]:
    """The node names of a line."""
    return [f"node{i}" for i in range(nodes)]


def line_expected(options: Options) -> Json:
    """Each of the runs counts one up a node."""
    nodes, runs = options["nodes"], options["invokes"]
    assert isinstance(nodes, int)
    assert isinstance(runs, int)
    return [nodes] * runs


class Fan(TypedDict):
    """The state of a fan-out; `item` is what each Send lays over it."""

    count: int
    item: int
    squares: Annotated[list[int], operator.add]


def plan(state: Fan) -> dict[str, int]:
    """The node before the fan-out."""
    return {"count": state["count"]}


def square(state: Fan) -> dict[str, list[int]]:
    """The body of each task of a fan-out."""
    return {"squares": [state["item"] ** 2]}


def fan_router(send: Callable[[str, dict[str, int]], Any]) -> Callable[[Fan], list[Any]]:
    """The router that makes the tasks, with one side's `Send`."""

    def route(state: Fan) -> list[Any]:
        return [send("square", {"item": i}) for i in range(state["count"])]

    return route


def fan_expected(options: Options) -> Json:
    """The squares in the order of the Sends: their sum, and the first and last few."""
    count = options["sends"]
    assert isinstance(count, int)
    return fan_result([i * i for i in range(count)])


def fan_result(squares: list[int]) -> Json:
    """What is compared: enough to see a lost, doubled or reordered result, and short."""
    weighted = sum(place * value for place, value in enumerate(squares))
    return {"tasks": len(squares), "sum": sum(squares), "in order": weighted}
