"""A compiled graph: what an engine needs to know to run it. Nothing here runs anything.

Example:
    >>> from beamweaver.graph import Graph
    >>> from beamweaver.types import START
    >>> graph = Graph(name="one").add_node("a", lambda state: None).add_edge(START, "a").compile()
    >>> graph.edges["__start__"], list(graph.nodes)
    (('a',), ['a'])
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import msgspec

from beamweaver.errors import UnknownChannel
from beamweaver.graph._text import listed, nearest
from beamweaver.graph.channels import Channel

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from beamweaver.graph._signatures import Caller
    from beamweaver.types import RetryPolicy

__all__ = ["Branch", "CompiledGraph", "FailurePolicy", "Join", "NodeSpec"]

FailurePolicy: TypeAlias = Literal["proceed", "panic"]


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True, dict=False):
    """A node.

    Attributes:
        name: Its name.
        index: Its place in the order of declaration.
        fn: The function.
        caller: How to call it with a context, or None if it takes the state only.
        retry: When an attempt is made again; None for one attempt.
        timeout: Seconds for one attempt, or None for no limit.
        metadata: What the user noted at the node.
        destinations: Where the user said that it may go by `goto` or `Send`.
        place: Where it was added, as `file:line`.
        is_async: Whether it is a coroutine function, so that it runs on the node loop.
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


class CompiledGraph:
    """An immutable graph; `Graph.compile()` makes it.

    Attributes:
        name: The graph's name; threads belong to it.
        version: The version of the code that the user declared.
        fingerprint: A hash of shape and types: equal for equal graphs, in every process.
        schema: The TypedDict of the state, or None.
        context_schema: The type of `ctx.context`, or None.
        open: Whether any key may be written, because there is no schema.
        nodes: The nodes by name, in the order of declaration.
        channels: The declared channels by key.
        edges: For each node and `START`, where its static edges lead; `END` is left out.
        joins: For each source of a join, its joins.
        branches: For each source of conditional edges, its branches.
        failure_policy: `"proceed"` or `"panic"`.
        step_timeout: Seconds for a step, or None.
        run_timeout: Seconds for a run, or None.
        max_concurrency: How many tasks of a step run at once, or None.
        recursion_limit: Steps since the last call before a run is stopped.
        checkpointer: What the user gave; this package never looks at it.
    """

    _fixed: ClassVar[frozenset[str]]

    def __init__(
        self,
        *,
        name: str,
        version: int,
        fingerprint: str,
        schema: Any,
        context_schema: Any,
        nodes: Mapping[str, NodeSpec],
        channels: Mapping[str, Channel],
        edges: Mapping[str, tuple[str, ...]],
        joins: Mapping[str, tuple[Join, ...]],
        branches: Mapping[str, tuple[Branch, ...]],
        failure_policy: FailurePolicy,
        step_timeout: float | None,
        run_timeout: float | None,
        max_concurrency: int | None,
        recursion_limit: int,
        checkpointer: Any,
    ) -> None:
        self.name = name
        self.version = version
        self.fingerprint = fingerprint
        self.schema = schema
        self.context_schema = context_schema
        self.open = schema is None
        self.nodes = MappingProxyType(dict(nodes))
        self.channels = MappingProxyType(dict(channels))
        self.edges = MappingProxyType(dict(edges))
        self.joins = MappingProxyType(dict(joins))
        self.branches = MappingProxyType(dict(branches))
        self.failure_policy: FailurePolicy = failure_policy
        self.step_timeout = step_timeout
        self.run_timeout = run_timeout
        self.max_concurrency = max_concurrency
        self.recursion_limit = recursion_limit
        self.checkpointer = checkpointer

    def __setattr__(self, name: str, value: object) -> None:
        # Subclasses may have state of their own; what the builder made stays as it is.
        if name in self._fixed and name in self.__dict__:
            raise AttributeError(
                f"graph {self.name!r} is compiled, so its {name} cannot be set; change the builder "
                "and compile again"
            )
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        nodes = list(self.nodes)
        return f"{type(self).__name__}({self.name!r}, version={self.version}, nodes={nodes})"

    def channel(self, name: str) -> Channel:
        """The channel of a key; without a schema, any key that is not reserved has one.

        Args:
            name: The key.

        Returns:
            The declared channel, or one that keeps the last value.

        Raises:
            UnknownChannel: The schema lacks the key.
        """
        channel = self.channels.get(name)
        if channel is not None:
            return channel
        if self.open and not name.startswith("__"):
            return Channel(name)
        raise UnknownChannel(
            f"graph {self.name!r} has no key {name!r}.{nearest(name, self.channels)} "
            f"Its keys: {listed(self.channels)}",
            key=name,
        )


CompiledGraph._fixed = frozenset(  # noqa: SLF001  # the class's own constant
    {
        "name", "version", "fingerprint", "schema", "context_schema", "open", "nodes", "channels",
        "edges", "joins", "branches", "failure_policy", "step_timeout", "run_timeout",
        "max_concurrency", "recursion_limit", "checkpointer",
    }
)  # fmt: skip
