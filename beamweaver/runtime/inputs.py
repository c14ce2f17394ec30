"""Inputs and updates of callers, judged and encoded where they are given."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from beamweaver.engine.calls import Prepared
from beamweaver.engine.rows import input_data
from beamweaver.errors import BeamWeaverError, InvalidUpdate, SerializationError
from beamweaver.graph.copies import unshared
from beamweaver.graph.updates import normalize_input
from beamweaver.runtime.results import to_result
from beamweaver.runtime.whose import WHOSE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from beamweaver.engine.state import Result
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.graph.updates import NodeReturn
    from beamweaver.runtime.env import GraphCodec
    from beamweaver.runtime.hub import Hub

__all__ = ["encoded", "prepare", "told"]


def prepare(hub: Hub, graph: CompiledGraph, codec: GraphCodec, value: object) -> Prepared:
    """An input, checked against the graph and encoded.

    Raises:
        InvalidUpdate, UnknownChannel: It is no update of this graph.
        SerializationError: A value cannot be stored.
    """
    answer = normalize_input(graph, value)
    if len({channel for channel, _value, _over in answer.writes}) != len(answer.writes):
        raise InvalidUpdate("the input gives one key twice; give each key once")
    return encoded(hub, codec, answer, "the input")


@contextmanager
def told(where: str, what: str = "the input", **ids: Any) -> Iterator[None]:
    """Let what is wrong with an input say where it was given; it is not always the caller of the run.

    Args:
        where: What stands before the message.
        what: How to call the input.
        **ids: What the error carries beside its own.
    """
    try:
        yield
    except BeamWeaverError as error:
        message = error.message
        if message.startswith("the input"):
            message = what + message.removeprefix("the input")
        named = type(error).rebuilt(f"{where}: {message}", {**error.ids, **ids})
        raise named from error.__cause__


def encoded(
    hub: Hub, codec: GraphCodec, answer: NodeReturn, what: str, node: str = "START"
) -> Prepared:
    """A judged input or update, encoded.

    Raises:
        SerializationError: A value cannot be stored.
    """
    token = WHOSE.set((codec.graph.name, node))
    try:
        result = to_result(codec, answer, what)
    except SerializationError as error:
        raise SerializationError(
            error.message.replace(f"node {what!r}", what), **error.ids
        ) from error.__cause__
    finally:
        WHOSE.reset(token)
    digest = hub.codec.digest(input_data(result.writes, result.goto, result.sends))
    _own_values(result, codec)
    return Prepared(result.writes, digest, result.goto, result.sends)


def _own_values(result: Result, codec: GraphCodec) -> None:
    """Take values of our own, which the caller cannot change any more."""
    for write in result.writes:
        if write.data:
            write.value = unshared(write.value, codec.copy)
    for send in result.sends:
        for key in send.data:
            send.update[key] = unshared(send.update[key], codec.copy)
