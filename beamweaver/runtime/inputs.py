"""Inputs and updates of callers, judged and encoded where they are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamweaver.engine.calls import Prepared
from beamweaver.engine.rows import input_data
from beamweaver.errors import InvalidUpdate, SerializationError
from beamweaver.graph.copies import unshared
from beamweaver.graph.updates import normalize_input
from beamweaver.runtime.results import to_result

if TYPE_CHECKING:
    from beamweaver.engine.state import Result
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.graph.updates import NodeReturn
    from beamweaver.runtime.env import GraphCodec
    from beamweaver.runtime.hub import Hub

__all__ = ["encoded", "prepare"]


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


def encoded(hub: Hub, codec: GraphCodec, answer: NodeReturn, what: str) -> Prepared:
    """A judged input or update, encoded.

    Raises:
        SerializationError: A value cannot be stored.
    """
    try:
        result = to_result(codec, answer, what)
    except SerializationError as error:
        raise SerializationError(
            error.message.replace(f"node {what!r}", what), **error.ids
        ) from error.__cause__
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
