"""What persistent subgraphs keep over runs, and where.

It is stored as a channel of the outermost graph whose name no key of a state can have, one for each *place*:
the nodes that lead to the subgraph, joined by colons. So a fork has what its checkpoint had, and a step that
runs no such subgraph costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from beamweaver.engine.env import Decoder, Env
    from beamweaver.engine.state import Task

__all__ = [
    "is_kept",
    "kept_inside",
    "kept_of",
    "kept_outside",
    "packed",
    "place_of",
    "stored",
    "unpacked",
]

_PREFIX: Final = "__kept__:"

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


def place_of(task: Task) -> str:
    """The place of the subgraph that a task runs, within the graph around it."""
    return task.node


def kept_inside(kept: Mapping[str, bytes] | None, place: str) -> dict[str, bytes] | None:
    """What the subgraphs of the subgraph at a place keep, in its own terms."""
    if kept is None:
        return None
    prefix = f"{place}:"
    return {k.removeprefix(prefix): v for k, v in kept.items() if k.startswith(prefix)} or None


def kept_outside(kept: Mapping[str, bytes], place: str) -> dict[str, bytes]:
    """The same in the terms of the graph around."""
    return {f"{place}:{key}": data for key, data in kept.items()}


def packed(values: Mapping[str, Any], env: Env) -> bytes:
    """The values of a subgraph as it leaves them.

    Raises:
        SerializationError: A value cannot be stored.
    """
    found = {name: env.encode(name, value) for name, value in values.items()}
    return _encoder.encode({name: data for name, data in found.items() if data})


def unpacked(data: bytes, env: Decoder) -> dict[str, Any]:
    """The values that a subgraph left."""
    return {name: env.decode(name, value) for name, value in _decoder.decode(data).items()}
