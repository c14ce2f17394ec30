"""A hash of a graph's shape and types, equal in every process for equal graphs.

It covers names and order of nodes, edges, joins, branches with their targets, and keys with their
types and reducers. Bodies of functions, timeouts and retry policies may change freely.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from beamweaver.graph._typecheck import type_name
from beamweaver.graph.channels import Channel, reducer_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from beamweaver.graph.compiled import Branch, Join

__all__ = ["fingerprint"]


def fingerprint(
    *,
    nodes: Iterable[str],
    channels: Mapping[str, Channel],
    edges: Mapping[str, tuple[str, ...]],
    joins: Iterable[Join],
    branches: Iterable[Branch],
    open_: bool,
) -> str:
    """The hash, as 32 hexadecimal digits.

    Example:
        >>> len(fingerprint(nodes=["a"], channels={}, edges={}, joins=[], branches=[], open_=True))
        32
    """
    shape = [
        list(nodes),
        sorted((key, list(targets)) for key, targets in edges.items() if targets),
        sorted(join.key for join in joins),
        sorted((each.source, each.index, _targets(each)) for each in branches),
        sorted((key, _type(channel)) for key, channel in channels.items()),
        open_,
    ]
    return hashlib.blake2b(msgspec.json.encode(shape), digest_size=16).hexdigest()


def _targets(branch: Branch) -> list[tuple[str, str]]:
    if branch.targets is None:
        return [("*", "*")]
    return sorted((repr(value), node) for value, node in branch.targets.items())


def _type(channel: Channel) -> tuple[str, str]:
    text = "Any" if channel.type is None else type_name(channel.type, qualified=True)
    return (text, "" if channel.reducer is None else reducer_name(channel.reducer))
