"""The parts of a compiled graph: nodes, joins, conditional and guarded edges."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from beamweaver.graph._signatures import Caller, HandlerCaller
    from beamweaver.graph.channels import Channel
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.graph.shapes import Shape
    from beamweaver.types import RetryPolicy

__all__ = ["Branch", "FailurePolicy", "Guard", "Handler", "Join", "NodeSpec", "Timeouts"]

FailurePolicy: TypeAlias = Literal["proceed", "panic"]
Timeouts: TypeAlias = "tuple[float | None, float | None]"
"""Seconds for an attempt in all, and seconds without a sign of life; None for no limit."""


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """What is called when a node has failed for good, or a run has.

    Attributes:
        fn: The function.
        caller: Calls it with what it takes: see `beamweaver.graph.call_handler`.
        is_async: Whether it is a coroutine function.
    """

    fn: Callable[..., Any]
    caller: HandlerCaller
    is_async: bool = False

    @property
    def name(self) -> str:
        """The function's own name."""
        return getattr(self.fn, "__name__", type(self.fn).__name__)


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True, dict=False):
    """A node.

    Attributes:
        name: Its name.
        index: Its place in the order of declaration.
        fn: The function; of a subgraph one that is never called.
        caller: How to call it with a context, or None if it takes the state only.
        retry: When an attempt is made again; None for one attempt.
        timeout: Seconds for one attempt, or None for no limit.
        idle: Seconds that an attempt may go without a sign of life, or None for no limit.
        metadata: What the user noted at the node.
        destinations: Where the user said that it may go by `goto` or `Send`.
        place: Where it was added, as `file:line`.
        is_async: Whether it is a coroutine function, so that it runs on the node loop.
        defer: Whether it waits until the plan has no other task.
        error_handler: What is called after its last failed attempt, or None.
        shape: The form in which it sees the state, if not that of the graph.
        inputs: The keys of its own input schema; None if it sees the whole state.
        subgraph: The graph that it is, or None for a function.
        persistent: Whether a subgraph keeps its state over runs.
        key: What tells its states apart: a key of the state, or a function of it.
        calls: The graphs that its function is said to call.
    """

    name: str
    index: int
    fn: Callable[..., Any]
    caller: Caller | None = None
    is_async: bool = False
    retry: RetryPolicy | None = None
    timeout: float | None = None
    metadata: Mapping[str, Any] = MappingProxyType({})
    destinations: tuple[str, ...] = ()
    place: str = ""
    defer: bool = False
    error_handler: Handler | None = None
    shape: Shape | None = None
    inputs: Mapping[str, Channel] | None = None
    subgraph: CompiledGraph | None = None
    persistent: bool = False
    key: str | Callable[[Any], object] | None = None
    idle: float | None = None
    calls: tuple[CompiledGraph, ...] = ()

    @property
    def wants_ctx(self) -> bool:
        """Whether the function takes a context."""
        return self.caller is not None


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """An edge that fires when all of its sources have arrived.

    Attributes:
        key: A name that depends on sources and target only.
        sources: The nodes that must arrive.
        target: The node that then runs.
    """

    key: str
    sources: tuple[str, ...]
    target: str


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A conditional edge.

    Attributes:
        source: The node, or `START`, after which the router is asked.
        index: Which of its source's branches it is.
        router: The function.
        caller: How to call it with a context, or None if it takes the state only.
        targets: The node of each router value; None where a router returns names of nodes.
        place: Where it was added, as `file:line`.
        is_async: Whether it is a coroutine function.
    """

    source: str
    index: int
    router: Callable[..., Any]
    caller: Caller | None = None
    is_async: bool = False
    targets: Mapping[Hashable, str] | None = None
    place: str = ""

    @property
    def wants_ctx(self) -> bool:
        """Whether the router takes a context."""
        return self.caller is not None

    @property
    def name(self) -> str:
        """The router's own name."""
        return getattr(self.router, "__name__", type(self.router).__name__)


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """An edge with a condition, a budget, or that is taken if no other guarded edge is.

    Attributes:
        key: A name that depends on source, target and the order of edges between these two only.
        source: The node, or `START`.
        target: The node, or `END`.
        when: The predicate, or None if there is none.
        caller: How to call it with a context, or None if it takes the state only.
        is_async: Whether the predicate is a coroutine function.
        max_runs: How often it is taken in a run, or None.
        default: Whether it is taken if no other guarded edge of its source is.
        place: Where it was added, as `file:line`.
    """

    key: str
    source: str
    target: str
    when: Callable[..., Any] | None = None
    caller: Caller | None = None
    is_async: bool = False
    max_runs: int | None = None
    default: bool = False
    place: str = ""

    @property
    def wants_ctx(self) -> bool:
        """Whether the predicate takes a context."""
        return self.caller is not None

    @property
    def name(self) -> str:
        """The predicate's own name, or `"else"` of a default edge, or `""`."""
        if self.when is None:
            return "else" if self.default else ""
        return getattr(self.when, "__name__", type(self.when).__name__)
