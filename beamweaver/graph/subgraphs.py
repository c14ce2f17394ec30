"""What goes into a graph that is a node, and what comes back from it.

A subgraph starts from its parent's values of the keys of its input schema. What it wrote to the keys of its
output schema comes back as one update, judged and merged as that of any node: by value where the parent
keeps the last one, by what was added where the parent appends or merges, else by value through its reducer.

Example:
    >>> from typing import Annotated, TypedDict
    >>> from beamweaver.graph import Graph, append
    >>> from beamweaver.types import START
    >>> class State(TypedDict):
    ...     n: int
    ...     log: Annotated[list[str], append]
    >>> child = Graph(State, name="c").add_node("a", lambda state: None).add_edge(START, "a").compile()
    >>> start = entering(child, {"n": 1, "log": ["outside"], "other": 7})
    >>> start
    {'n': 1, 'log': ['outside']}
    >>> end = {"n": 1, "log": ["outside", "inside"]}
    >>> leaving(child, child, start, end, written={"log"})
    {'log': ['inside']}
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

from beamweaver.graph.channels import MISSING
from beamweaver.graph.reducers import add_messages, append, merge
from beamweaver.types import Overwrite

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from beamweaver.graph.channels import Channel
    from beamweaver.graph.compiled import CompiledGraph

__all__ = ["comes_back", "entering", "is_part", "leaving", "put_together"]

_APPENDING: Final = (append, operator.add, operator.iadd, operator.concat, operator.iconcat)
_MERGING: Final = (merge, operator.or_, operator.ior)


def entering(child: CompiledGraph, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a subgraph starts from, shared with the parent.

    Args:
        child: The graph.
        values: What the node sees of the parent's state, with the overlay of a `Send`.

    Returns:
        Its values, to be its channels' values as they are: no reducer is asked.
    """
    if child.open and child.inputs is None:
        return dict(values)
    keys = child.channels if child.inputs is None else child.inputs
    managed = {channel.name for channel in child.managed}
    return {key: values[key] for key in keys if key in values and key not in managed}


def leaving(
    child: CompiledGraph,
    parent: CompiledGraph,
    start: Mapping[str, Any],
    end: Mapping[str, Any],
    written: Collection[str],
) -> dict[str, Any]:
    """The update that a subgraph's end is to its parent.

    Args:
        child: The graph.
        parent: The graph around it.
        start: The values that it began with.
        end: The values that it ended with.
        written: The keys that it wrote. Others do not come back, so that they are no write of a second
            node where a sibling writes them.

    Returns:
        The update. Where the child threw away what it began with, by an `Overwrite` of its own, the parent's
        value is overwritten too.
    """
    keys = end if child.output_shape.whole else child.output_shape.keys
    found = {}
    for key in keys:
        known = key in parent.channels or parent.open
        if key in end and key in written and known and not _managed(child, key):
            channel = parent.channels.get(key)
            found[key] = (
                end[key] if channel is None else _back(channel, start.get(key, MISSING), end[key])
            )
    return found


def _managed(graph: CompiledGraph, key: str) -> bool:
    return any(channel.name == key for channel in graph.managed)


def _back(channel: Channel, start: Any, end: Any) -> Any:
    """What is to be written to the parent's channel, so that it is as the child's is."""
    reducer = channel.reducer
    if reducer is None:
        return end
    if start is MISSING:
        start = channel.initial()
    if reducer in _APPENDING and type(start) is type(end) and _sized(end):
        if end[: len(start)] == start:
            return end[len(start) :]
        return end if channel.clears else Overwrite(end)
    if reducer in _MERGING and type(start) is type(end) and isinstance(end, (dict, set, frozenset)):
        return _added(start, end)
    if reducer is add_messages and isinstance(start, list) and isinstance(end, list):
        return _messages(start, end)
    return end


def comes_back(channel: Channel | None) -> bool:
    """Whether a graph's value can be told from what `leaving` made of it for this channel."""
    return channel is None or not channel.clears


def is_part(channel: Channel | None, start: Any, update: Any) -> bool:
    """Whether what `leaving` made of a value, and what is no `Overwrite`, is what was added to its start."""
    reducer = None if channel is None else channel.reducer
    if channel is None or reducer is None:
        return False
    if start is MISSING:
        start = channel.initial()
    if reducer is add_messages:
        return isinstance(start, list) and isinstance(update, list)
    if type(start) is not type(update):
        return False
    appends = reducer in _APPENDING and _sized(update)
    return appends or (reducer in _MERGING and isinstance(update, (dict, set, frozenset)))


def put_together(channel: Channel | None, start: Any, part: Any) -> Any:
    """A graph's value at its end, from its start and what was added; the inverse of `leaving`."""
    if start is MISSING:
        start = type(part)() if channel is None else channel.initial()
    if channel is not None and channel.reducer is add_messages:
        return add_messages(start, part)
    if type(start) is not type(part):
        return part  # it is of another version, whose types were others
    return start | part if isinstance(part, (dict, set, frozenset)) else start + part


def _sized(value: Any) -> bool:
    return isinstance(value, (list, tuple, str, bytes))


def _added(start: Any, end: Any) -> Any:
    if not start <= end if isinstance(end, (set, frozenset)) else start.keys() - end.keys():
        return Overwrite(end)
    if isinstance(end, dict):
        return {key: value for key, value in end.items() if key not in start or start[key] != value}
    return end - start


def _messages(start: list[Any], end: list[Any]) -> Any:
    """Messages that are new or replaced; the parent finds by id where they belong."""
    update = [
        message
        for index, message in enumerate(end)
        if index >= len(start) or start[index] != message
    ]
    return update if add_messages(start, update) == end else Overwrite(end)
