"""The values of `update_state`, judged: what counts as written by a node that did not run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from beamweaver.errors import InvalidCall
from beamweaver.graph._text import listed, nearest
from beamweaver.graph.updates import collect, normalize_input
from beamweaver.types import END, START

if TYPE_CHECKING:
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.graph.updates import NodeReturn

__all__ = ["normalize_update"]

_TASK_ID: Final = re.compile("[0-9a-f]{24}")


def normalize_update(graph: CompiledGraph, as_node: object, values: object) -> NodeReturn:
    """Judge the values of an update.

    Args:
        graph: The graph.
        as_node: The node that they count as written by, `START` (as an input), `END` (the run ends), the id
            of a task, or None (an amendment).
        values: None, or what a node may return.

    Returns:
        The writes, goto and Sends.

    Raises:
        InvalidCall: There is no such node.
        InvalidUpdate, UnknownChannel, UnknownTarget: As for what a node returned.
    """
    if as_node == START:
        return normalize_input(graph, {} if values is None else values)
    if as_node is None or as_node == END:
        answer = collect(graph, None, values)
        if as_node == END and (answer.goto or answer.sends):
            raise InvalidCall("as_node=END ends the run, so its values cannot lead on to a node")
        return answer
    if isinstance(as_node, str) and (as_node in graph.nodes or _TASK_ID.fullmatch(as_node)):
        return collect(graph, as_node, values)
    raise InvalidCall(
        f"as_node is {as_node!r}, which is no node of graph {graph.name!r}."
        f"{nearest(as_node, graph.nodes)} Its nodes: {listed(graph.nodes)}"
    )
