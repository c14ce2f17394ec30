"""What a builder has been told, before anything is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from beamweaver.graph._signatures import Caller
    from beamweaver.graph.channels import Channel
    from beamweaver.types import RetryPolicy

__all__ = ["Declared", "DeclaredBranch", "DeclaredEdge", "DeclaredJoin", "DeclaredNode"]


class DeclaredNode(msgspec.Struct, frozen=True, kw_only=True):
    """A call of `add_node`; options that were not given are UNSET."""

    name: str
    fn: Callable[..., Any]
    caller: Caller | None
    retry: RetryPolicy | msgspec.UnsetType | None
    timeout: float | msgspec.UnsetType | None
    metadata: Mapping[str, Any]
    destinations: tuple[str, ...]
    place: str


class DeclaredEdge(msgspec.Struct, frozen=True):
    """A call of `add_edge` with one source."""

    source: str
    target: str
    place: str


class DeclaredJoin(msgspec.Struct, frozen=True):
    """A call of `add_edge` with several sources."""

    sources: tuple[str, ...]
    target: str
    place: str


class DeclaredBranch(msgspec.Struct, frozen=True, kw_only=True):
    """A call of `add_conditional_edges`."""

    source: str
    router: Callable[..., Any]
    caller: Caller | None
    targets: Mapping[Hashable, str] | None
    place: str


class Declared(msgspec.Struct):
    """All that a builder knows."""

    name: str
    channels: dict[str, Channel]
    open: bool
    nodes: list[DeclaredNode] = msgspec.field(default_factory=list)
    edges: list[DeclaredEdge] = msgspec.field(default_factory=list)
    joins: list[DeclaredJoin] = msgspec.field(default_factory=list)
    branches: list[DeclaredBranch] = msgspec.field(default_factory=list)
    retry: RetryPolicy | None = None
    timeout: float | None = None
