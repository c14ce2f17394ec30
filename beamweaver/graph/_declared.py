"""What a builder has been told, before anything is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from beamweaver.graph._signatures import Caller
    from beamweaver.graph.channels import Channel
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.graph.shapes import Shape
    from beamweaver.graph.specs import Handler, Timeouts
    from beamweaver.types import RetryPolicy

__all__ = ["Declared", "DeclaredBranch", "DeclaredEdge", "DeclaredJoin", "DeclaredNode"]


class DeclaredNode(msgspec.Struct, frozen=True, kw_only=True):
    """A call of `add_node`; options that were not given and have a default elsewhere are UNSET."""

    name: str
    fn: Callable[..., Any]
    caller: Caller | None
    retry: RetryPolicy | msgspec.UnsetType | None
    timeout: Timeouts | msgspec.UnsetType
    error_handler: Handler | msgspec.UnsetType | None
    metadata: Mapping[str, Any]
    destinations: tuple[str, ...]
    place: str
    defer: bool = False
    shape: Shape | None = None
    inputs: Mapping[str, Channel] | None = None
    subgraph: CompiledGraph | None = None
    persistent: bool = False
    key: str | Callable[[Any], object] | None = None
    calls: tuple[CompiledGraph, ...] = ()
    isolation: str | None = None
    cache: Any = None


class DeclaredEdge(msgspec.Struct, frozen=True):
    """A call of `add_edge` with one source."""

    source: str
    target: str
    place: str
    when: Callable[..., Any] | None = None
    caller: Caller | None = None
    max_runs: int | None = None
    default: bool = False

    @property
    def guarded(self) -> bool:
        """Whether it is more than a plain edge."""
        return self.when is not None or self.max_runs is not None or self.default


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


class Declared(msgspec.Struct, kw_only=True):
    """All that a builder knows."""

    name: str
    version: int
    schema: Any
    input_schema: Any
    output_schema: Any
    channels: dict[str, Channel]
    shape: Shape
    input_shape: Shape | None
    output_shape: Shape | None
    inputs: Mapping[str, Channel] | None
    nodes: list[DeclaredNode] = msgspec.field(default_factory=list)
    edges: list[DeclaredEdge] = msgspec.field(default_factory=list)
    joins: list[DeclaredJoin] = msgspec.field(default_factory=list)
    branches: list[DeclaredBranch] = msgspec.field(default_factory=list)
    retry: RetryPolicy | None = None
    timeout: Timeouts = (None, None)
    error_handler: Handler | None = None
    cache: Any = None

    @property
    def open(self) -> bool:
        """Whether any key may be written."""
        return self.schema is None

    @property
    def required(self) -> frozenset[str]:
        """The keys that the first input of a thread must bring."""
        if self.input_shape is not None:
            return self.input_shape.required
        return frozenset() if self.shape.is_dict else self.shape.required
