"""The work that both sides of a graph comparison do: the same states, bodies, routers, results."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.comparison import Json, Options

__all__ = [
    "KIB",
    "Fan",
    "Line",
    "Log",
    "appender",
    "fan_expected",
    "fan_result",
    "fan_router",
    "grown_expected",
    "grown_result",
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


KIB = 1024
_TEXT = "x" * (KIB - 9)


class Log(TypedDict):
    """The state of a node that appends 1 KiB a step, and goes on until there are `stop` of them."""

    log: Annotated[list[str], operator.add]
    n: int
    stop: int


def appender(command: Any, end: str) -> Callable[[Log], Any]:
    """The body of the node `grow`, with one side's `Command` and `END`."""

    def grow(state: Log) -> Any:
        n = state["n"]
        goto = "grow" if n + 1 < state["stop"] else end
        return command(update={"log": [f"{n:06} {_TEXT}"], "n": n + 1}, goto=goto)

    return grow


def grown_expected(options: Options) -> Json:
    """All that was appended, in order."""
    steps = options["steps"]
    assert isinstance(steps, int)
    return {"texts": steps, "bytes": steps * KIB - 2 * steps, "in order": True}


def grown_result(log: list[str]) -> Json:
    """What is compared of a log."""
    right = [f"{n:06}" for n in range(len(log))] == [text[:6] for text in log]
    return {"texts": len(log), "bytes": sum(map(len, log)), "in order": right}
