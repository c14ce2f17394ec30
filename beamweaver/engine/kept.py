"""What persistent subgraphs keep over runs, and where.

It is stored as a channel of the outermost graph whose name no key of a state can have, one for each *place*:
the nodes that lead to the subgraph, joined by colons. Where a node keeps several states, told apart by
`key=`, the *part* of each follows the node after a bar. So a fork has what its checkpoint had, and a step
that runs no such subgraph costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from beamweaver.errors import InvalidUpdate
from beamweaver.graph._text import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from beamweaver.engine.env import Decoder
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.graph.specs import NodeSpec

__all__ = [
    "is_kept",
    "kept_inside",
    "kept_of",
    "kept_outside",
    "moved",
    "packed",
    "part_of",
    "place_at",
    "place_of",
    "stored",
    "unpacked",
]

_PREFIX: Final = "__kept__:"
_PART_LENGTH: Final = 256

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(dict[str, bytes])


def is_kept(name: str) -> bool:
    """Whether a stored channel is none of a state."""
    return name.startswith(_PREFIX)


def kept_of(writes: Mapping[str, bytes]) -> dict[str, bytes] | None:
    """Of stored channels, what persistent subgraphs keep."""
    found = {name.removeprefix(_PREFIX): data for name, data in writes.items() if is_kept(name)}
    return found or None


def stored(kept: Mapping[str, bytes]) -> dict[str, bytes]:
    """The channels in which it is stored."""
    return {_PREFIX + place: data for place, data in kept.items()}


def place_of(node: str, part: str) -> str:
    """The place of the subgraph that a node is, within the graph around it; `part` is `""` without `key=`.

    Example:
        >>> place_of("chat", ""), place_of("chat", "ann"), place_of("chat", "a:b")
        ('chat', 'chat|ann', 'chat|a%3Ab')
    """
    return f"{node}|{part.replace('%', '%25').replace(':', '%3A')}" if part else node


def place_at(namespace: Sequence[str]) -> str:
    """The place of the subgraph at a path of nodes, each perhaps with its part after a colon."""
    segments = [segment.partition(":") for segment in namespace]
    return ":".join(place_of(node, part) for node, _colon, part in segments)


def moved(place: str, rename: Callable[[str], str | None]) -> str | None:
    """A place whose first node has another name; None if that one is gone."""
    first, colon, rest = place.partition(":")
    node, bar, part = first.partition("|")
    new = rename(node)
    return None if new is None else f"{new}{bar}{part}{colon}{rest}"


def part_of(node: NodeSpec, graph: CompiledGraph, view: Mapping[str, Any]) -> str:
    """Which of the states that a persistent subgraph keeps a task goes on with.

    Args:
        node: The node.
        graph: The graph around.
        view: What the task sees.

    Raises:
        InvalidUpdate: The key is no text and no number, empty, or too long.
        Exception: Whatever the function raised that gives the key.
    """
    if node.key is None:
        return ""
    if callable(node.key):
        where, found = "key=", node.key(graph.view(view))
    else:
        where, found = f"key={node.key!r}", view.get(node.key)
    whole = type(found) is int or (isinstance(found, str) and 0 < len(found) <= _PART_LENGTH)
    if not whole or any("\ud800" <= char <= "\udfff" for char in str(found)):
        raise InvalidUpdate(
            f"node {node.name!r} is a persistent graph with {where}, which gives {shown(found)}: give a text "
            f"of 1 to {_PART_LENGTH} characters, or an int, that says whose state the task goes on with",
            node=node.name,
        )
    return str(found)


def kept_inside(kept: Mapping[str, bytes] | None, place: str) -> dict[str, bytes] | None:
    """What the subgraphs of the subgraph at a place keep, in its own terms."""
    if kept is None:
        return None
    prefix = f"{place}:"
    return {k.removeprefix(prefix): v for k, v in kept.items() if k.startswith(prefix)} or None


def kept_outside(kept: Mapping[str, bytes], place: str) -> dict[str, bytes]:
    """The same in the terms of the graph around."""
    return {f"{place}:{key}": data for key, data in kept.items()}


def packed(values: Mapping[str, Any], encode: Callable[[str, Any], bytes]) -> bytes:
    """The values of a subgraph as it leaves them.

    Raises:
        SerializationError: A value cannot be stored.
    """
    found = {name: encode(name, value) for name, value in values.items()}
    return _encoder.encode({name: data for name, data in found.items() if data})


def unpacked(data: bytes, env: Decoder) -> dict[str, Any]:
    """The values that a subgraph left."""
    return {name: env.decode(name, value) for name, value in _decoder.decode(data).items()}
