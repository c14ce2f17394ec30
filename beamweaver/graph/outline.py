"""A graph's shape and types as plain data: what its fingerprint is of, and what two versions differ in.

It covers names and order of nodes, edges, joins, branches with their targets, guarded and deferred ones,
subgraphs, and keys with their types, reducers and kinds. Bodies of functions, timeouts, retry policies,
handlers and budgets may change freely.

Example:
    >>> from beamweaver.graph import Graph
    >>> from beamweaver.types import START
    >>> graph = Graph(name="g").add_node("a", lambda state: None).add_edge(START, "a").compile()
    >>> outline_from_json(graph.outline.to_json()) == graph.outline
    True
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec

from beamweaver.graph._typecheck import type_name
from beamweaver.graph.channels import Channel, reducer_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from beamweaver.graph.specs import Branch, Guard, Join, NodeSpec

__all__ = ["Key", "Outline", "outline_from_json", "outline_of"]

_encoder: Final = msgspec.json.Encoder(order="deterministic")


class Key(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key of the state: its type, reducer and kind as text."""

    type: str
    reducer: str = ""
    kind: str = ""


class Outline(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The shape of a graph.

    Attributes:
        nodes: Names in the order of declaration.
        edges: Source and target of each static edge.
        joins: Sources and target of each join.
        branches: Source of each conditional edge, and the value and node of each target; `("*", "*")` where
            the router may name any node.
        guards: Source and target of each guarded edge, and whether it is a default.
        keys: The keys of the state.
        inputs: For nodes with an input schema of their own, its keys.
        deferred: Deferred nodes.
        subgraphs: The outlines of nodes that are graphs.
        open: Whether any key may be written.
    """

    nodes: tuple[str, ...] = ()
    edges: tuple[tuple[str, str], ...] = ()
    joins: tuple[tuple[tuple[str, ...], str], ...] = ()
    branches: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    guards: tuple[tuple[str, str, bool], ...] = ()
    keys: dict[str, Key] = {}
    inputs: dict[str, dict[str, Key]] = {}
    deferred: tuple[str, ...] = ()
    subgraphs: dict[str, Outline] = {}
    open: bool = False

    def to_json(self) -> bytes:
        """The outline as JSON, the same bytes for equal outlines in every process."""
        return _encoder.encode(self)

    def digest(self) -> str:
        """A hash of the outline, as 32 hexadecimal digits."""
        return hashlib.blake2b(self.to_json(), digest_size=16).hexdigest()


def outline_from_json(data: bytes) -> Outline:
    """An outline from what `to_json` made.

    Raises:
        msgspec.DecodeError: It is no outline.
    """
    return msgspec.json.decode(data, type=Outline)


def outline_of(
    *,
    nodes: Iterable[NodeSpec],
    channels: Iterable[Channel],
    edges: Mapping[str, tuple[str, ...]],
    joins: Iterable[Join],
    branches: Iterable[Branch],
    guards: Iterable[Guard],
    open_: bool,
) -> Outline:
    """The outline of the parts of a compiled graph."""
    nodes = list(nodes)
    pairs = [(source, target) for source, targets in edges.items() for target in targets]
    in_order = sorted(branches, key=lambda each: (each.source, each.index))
    return Outline(
        nodes=tuple(node.name for node in nodes),
        edges=tuple(sorted(pairs)),
        joins=tuple(sorted((tuple(sorted(join.sources)), join.target) for join in joins)),
        branches=tuple((branch.source, _targets(branch)) for branch in in_order),
        guards=tuple(sorted((each.source, each.target, each.default) for each in guards)),
        keys=_keys(channels),
        inputs={n.name: _keys(n.inputs.values()) for n in nodes if n.inputs is not None},
        deferred=tuple(node.name for node in nodes if node.defer),
        subgraphs={n.name: n.subgraph.outline for n in nodes if n.subgraph is not None},
        open=open_,
    )


def _targets(branch: Branch) -> tuple[tuple[str, str], ...]:
    if branch.targets is None:
        return (("*", "*"),)
    return tuple(sorted((repr(value), node) for value, node in branch.targets.items()))


def _keys(channels: Iterable[Channel]) -> dict[str, Key]:
    return {channel.name: _key(channel) for channel in channels}


def _key(channel: Channel) -> Key:
    text = "Any" if channel.type is None else type_name(channel.type, qualified=True)
    reducer = "" if channel.reducer is None else reducer_name(channel.reducer)
    return Key(text, reducer, "" if channel.kind is None else repr(channel.kind))
