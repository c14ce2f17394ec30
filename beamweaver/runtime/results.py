"""What nodes return, as the engine takes it: judged, and with its values encoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamweaver.engine.state import Planned, Result, Write
from beamweaver.errors import SerializationError
from beamweaver.types import timeouts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from beamweaver.graph.updates import NodeReturn
    from beamweaver.graph.updates import Write as Judged
    from beamweaver.runtime.env import GraphCodec
    from beamweaver.types import Send

__all__ = ["encoded_writes", "planned", "to_result"]


def to_result(codec: GraphCodec, answer: NodeReturn, node: str) -> Result:
    """A judged return with its values encoded.

    Raises:
        SerializationError: A value cannot be stored; it names the node, the key and the path.
    """
    sends = planned(codec, answer.sends, node) if answer.sends else ()
    return Result(encoded_writes(codec, answer.writes, node), answer.goto, sends)


def encoded_writes(codec: GraphCodec, writes: Iterable[Judged], node: str) -> tuple[Write, ...]:
    """Judged writes with their values encoded.

    Raises:
        SerializationError: A value cannot be stored; it names the node, the key and the path.
    """
    encoders = codec.encoders
    made = []
    channel = ""
    try:
        for channel, value, overwrite in writes:
            encode = encoders.get(channel) or codec.encode_any
            made.append(Write(channel, value, encode(value), overwrite))
    except SerializationError as error:
        raise _named(error, node, channel) from error.__cause__
    return tuple(made)


def planned(codec: GraphCodec, sends: tuple[Send, ...], node: str) -> tuple[Planned, ...]:
    """Sends with their overlays encoded."""
    made = []
    for send in sends:
        update = dict(send.update)
        try:
            encode = codec.to(send.node).encode
            encoded = {key: encode(key, value) for key, value in update.items()}
        except SerializationError as error:
            raise _named(error, node, f"Send to {send.node}") from error.__cause__
        data = {key: found for key, found in encoded.items() if found}
        if send.timeout is None:
            made.append(Planned(send.node, update, data))
        else:
            made.append(Planned(send.node, update, data, *timeouts(send.timeout, "Send timeout")))
    return tuple(made)


def _named(error: SerializationError, node: str, where: str) -> SerializationError:
    return SerializationError(
        f"node {node!r}, {where}: {error.message}", **{**error.ids, "node": node, "channel": where}
    )
