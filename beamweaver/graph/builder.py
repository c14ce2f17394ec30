"""The builder of graphs.

Example:
    >>> from typing import Annotated, TypedDict
    >>> from beamweaver.graph import append
    >>> from beamweaver.types import END, START
    >>> class State(TypedDict):
    ...     url: str
    ...     log: Annotated[list[str], append]
    >>> graph = (
    ...     Graph(State, name="fetch")
    ...     .add_node("load", lambda state: {"log": f"loaded {state['url']}"})
    ...     .add_edge(START, "load")
    ...     .add_edge("load", END)
    ...     .compile()
    ... )
    >>> graph.name, list(graph.nodes)
    ('fetch', ['load'])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, overload

from msgspec import UNSET, UnsetType

from beamweaver.errors import InvalidGraph
from beamweaver.graph import _arguments as arguments
from beamweaver.graph._assemble import assemble, compile_options
from beamweaver.graph._declared import (
    Declared,
    DeclaredBranch,
    DeclaredEdge,
    DeclaredJoin,
    DeclaredNode,
)
from beamweaver.graph._signatures import CannotCall, call_plan, reducer_fault
from beamweaver.graph._text import listed, nearest, place, plural
from beamweaver.graph._validate import faults_of
from beamweaver.graph.channels import Channel, Reducer
from beamweaver.graph.compiled import CompiledGraph, FailurePolicy
from beamweaver.graph.schema import SchemaFault, channels_of

if TYPE_CHECKING:
    from beamweaver.types import Duration, RetryPolicy

__all__ = ["Graph", "Node", "Router"]

Node: TypeAlias = Callable[..., Any]
"""A function of `(state)` or `(state, ctx)`; returns an update, `Command`, `Send`, list or None."""
Router: TypeAlias = Callable[..., Any]
"""A function of `(state)` or `(state, ctx)` that returns where to go."""
_AnyNode = TypeVar("_AnyNode", bound=Node)
_Compiled = TypeVar("_Compiled", bound=CompiledGraph)


class Graph:
    """Builds a graph. Each method changes the builder and returns it.

    A wrong argument is an error at once. What only the graph as a whole can show (an edge to a node
    that is never added, a node that nothing reaches) is gathered, and `compile()` raises all of it.

    Args:
        schema: A `TypedDict` that declares the keys of the state, with reducers as
            `Annotated[type, reducer]`; None for any key, each keeping its last value.
        name: The graph's name; stored threads belong to it.
        version: Of this code, 1 or more.
        context_schema: The type of `ctx.context`; None if there is none.

    Raises:
        InvalidGraph: An argument is unfit; the message names it and the cure.
    """

    def __init__(
        self, schema: Any = None, *, name: str, version: int = 1, context_schema: Any = None
    ) -> None:
        fault = arguments.name_fault(name, "the graph's name")
        if fault is None and (type(version) is not int or version < 1):
            fault = f"version is {version!r}; give an int of 1 or more"
        _raise(fault, f"graph {name!r}")
        try:
            channels = channels_of(schema)
        except SchemaFault as error:
            raise _invalid(f"graph {name!r}", str(error)) from None
        self.name = name
        self.version = version
        self.schema = schema
        self.context_schema = context_schema
        self._declared = Declared(name=name, channels=channels, open=schema is None)

    def __repr__(self) -> str:
        nodes = [node.name for node in self._declared.nodes]
        return f"{type(self).__name__}({self.name!r}, nodes={nodes})"

    @overload
    def add_node(
        self,
        name: str,
        fn: Node,
        *,
        retries: int | None = None,
        retry: RetryPolicy | UnsetType | None = UNSET,
        timeout: Duration | UnsetType | None = UNSET,
        metadata: Mapping[str, Any] | None = None,
        destinations: Sequence[str] = (),
    ) -> Self: ...
    @overload
    def add_node(
        self,
        name: Node,
        fn: None = None,
        *,
        retries: int | None = None,
        retry: RetryPolicy | UnsetType | None = UNSET,
        timeout: Duration | UnsetType | None = UNSET,
        metadata: Mapping[str, Any] | None = None,
        destinations: Sequence[str] = (),
    ) -> Self: ...
    @overload
    def add_node(
        self,
        name: str | None = None,
        fn: None = None,
        *,
        retries: int | None = None,
        retry: RetryPolicy | UnsetType | None = UNSET,
        timeout: Duration | UnsetType | None = UNSET,
        metadata: Mapping[str, Any] | None = None,
        destinations: Sequence[str] = (),
    ) -> Callable[[_AnyNode], _AnyNode]: ...

    def add_node(
        self,
        name: str | Node | None = None,
        fn: Node | None = None,
        *,
        retries: int | None = None,
        retry: RetryPolicy | UnsetType | None = UNSET,
        timeout: Duration | UnsetType | None = UNSET,
        metadata: Mapping[str, Any] | None = None,
        destinations: Sequence[str] = (),
    ) -> Any:
        """Add a node. Also as `@graph.add_node("name")`; the name may be left to the function.

        Args:
            name: Its name: 1 to 128 characters without NUL, ":" and "|", not beginning with "__".
            fn: A function of `(state)`, or also of a parameter named `ctx` or annotated `Context`.
            retries: Attempts after the first one, with the other values of `RetryPolicy`.
            retry: A whole policy, in place of `retries`; None: one attempt, whatever the default.
            timeout: Seconds (or a `timedelta`) for one attempt; None: no limit, whatever the default.
            metadata: Notes on the node.
            destinations: Nodes that it reaches by `goto` or `Send`, for the check of reachability.

        Returns:
            The builder; as a decorator, the function.

        Raises:
            InvalidGraph: An argument is unfit, or the function is a generator or takes other parameters.

        Example:
            >>> graph = Graph(name="g")
            >>> @graph.add_node("load", retries=2)
            ... def load(state):
            ...     return None
        """
        options = {
            "retry": arguments.retry_option(retries, retry, self._what("add_node")),
            "timeout": arguments.timeout_option(timeout, self._what("add_node")),
            "metadata": MappingProxyType(dict(metadata or {})),
            "destinations": arguments.names(destinations, "destinations", self._what("add_node")),
            "place": place(),
        }
        if fn is None and (name is None or isinstance(name, str)):
            given = name

            def decorate(decorated: _AnyNode) -> _AnyNode:
                self._add_node(given, decorated, options)
                return decorated

            return decorate
        self._add_node(None if fn is None else name, name if fn is None else fn, options)
        return self

    def _add_node(self, name: object, fn: Any, options: dict[str, Any]) -> None:
        name = getattr(fn, "__name__", None) if name is None else name
        what = f"add_node({name!r})"
        _raise(arguments.name_fault(name, "the node's name"), self._what(what))
        caller = self._plan(fn, f"node {name!r}", what)
        self._declared.nodes.append(DeclaredNode(name=str(name), fn=fn, caller=caller, **options))

    def set_node_defaults(
        self,
        *,
        retries: int | None = None,
        retry: RetryPolicy | UnsetType | None = UNSET,
        timeout: Duration | UnsetType | None = UNSET,
    ) -> Self:
        """Options of nodes that give none of their own, whether added before or after.

        Args:
            retries: Attempts after the first one.
            retry: A whole policy, in place of `retries`.
            timeout: Seconds (or a `timedelta`) for one attempt.

        Returns:
            The builder.

        Raises:
            InvalidGraph: A value is unfit.
        """
        what = self._what("set_node_defaults")
        policy = arguments.retry_option(retries, retry, what)
        limit = arguments.timeout_option(timeout, what)
        if policy is not UNSET:
            self._declared.retry = policy
        if limit is not UNSET:
            self._declared.timeout = limit
        return self

    def add_edge(self, source: str | Sequence[str], target: str) -> Self:
        """Add an edge, or with a list of sources a join.

        Args:
            source: A node, `START`, or a list of nodes that must all arrive (over any number of
                steps) before the target runs.
            target: A node or `END`.

        Returns:
            The builder.

        Raises:
            InvalidGraph: An argument is no name.

        Example:
            >>> graph = Graph(name="g").add_edge(["facts", "market"], "summary")
        """
        what = self._what("add_edge")
        target = arguments.end(target, "target", what)
        if isinstance(source, (list, tuple)):
            sources = arguments.names(source, "sources", what)
            if not sources or len(set(sources)) < len(sources):
                _raise(f"the sources of the join are {list(sources)}; give each once", what)
            if len(sources) > 1:
                self._declared.joins.append(DeclaredJoin(sources, target, place()))
                return self
            source = sources[0]
        source = arguments.end(source, "source", what)
        self._declared.edges.append(DeclaredEdge(source, target, place()))
        return self

    def add_conditional_edges(
        self,
        source: str,
        router: Router,
        targets: Mapping[Any, str] | Sequence[str] | None = None,
    ) -> Self:
        """Let a function say where to go after a node. It sees the merged state.

        Args:
            source: A node or `START`.
            router: Returns a key of `targets` (without targets: the name of a node), `END`, a
                `Send`, or a list of these.
            targets: The node of each value, or a list of node names. Without it the router may name
                any node.

        Returns:
            The builder.

        Raises:
            InvalidGraph: An argument is unfit, or the router is a generator or takes other parameters.
        """
        what = self._what("add_conditional_edges")
        source = arguments.end(source, "source", what)
        caller = self._plan(router, f"the router after {source!r}", "add_conditional_edges")
        self._declared.branches.append(
            DeclaredBranch(
                source=source,
                router=router,
                caller=caller,
                targets=arguments.targets(targets, what),
                place=place(),
            )
        )
        return self

    def add_sequence(self, steps: Sequence[str | Node | tuple[str, Node]]) -> Self:
        """Add nodes one after the other, with an edge from each to the next and no others.

        Args:
            steps: Functions (named as they are), `(name, function)`, or names of nodes.

        Returns:
            The builder.

        Raises:
            InvalidGraph: A step is none of these.
        """
        names: list[str] = []
        for step in steps:
            if isinstance(step, str):
                names.append(step)
            elif isinstance(step, tuple) and len(step) == 2:
                self.add_node(step[0], step[1])
                names.append(step[0])
            else:
                self.add_node(step)
                names.append(self._declared.nodes[-1].name)
        for before, after in pairwise(names):
            self.add_edge(before, after)
        return self

    def add_reducer(self, key: str, reducer: Reducer) -> Self:
        """Give a key a reducer; with a schema, in place of the one that the schema names.

        Args:
            key: A key of the schema; without a schema, any key.
            reducer: A sync, quick function of `(current, update)` that returns the new value and
                changes neither.

        Returns:
            The builder.

        Raises:
            InvalidGraph: The schema lacks the key, or the function does not take two arguments.

        Example:
            >>> import operator
            >>> graph = Graph(name="g").add_reducer("total", operator.add)
        """
        what = self._what(f"add_reducer({key!r})")
        declared = self._declared
        _raise(arguments.key_fault(key), what)
        _raise(reducer_fault(reducer, "the reducer"), what)
        if not declared.open and key not in declared.channels:
            known = declared.channels
            _raise(
                f"the schema has no such key.{nearest(key, known)} Its keys: {listed(known)}", what
            )
        before = declared.channels.get(key)
        annotation = None if before is None else before.type
        declared.channels[key] = Channel(key, annotation, reducer)
        return self

    def compile(
        self,
        *,
        checkpointer: Any = None,
        failure_policy: FailurePolicy = "proceed",
        step_timeout: Duration | None = None,
        run_timeout: Duration | None = None,
        max_concurrency: int | None = None,
        recursion_limit: int = 100,
        allow_unreachable: bool = False,
    ) -> CompiledGraph:
        """Judge the graph as a whole and make it immutable. The builder may go on after it.

        Args:
            checkpointer: Where threads are kept; None for threads that end with their call.
            failure_policy: `"proceed"`: siblings of a failed task finish; `"panic"`: they stop.
            step_timeout: Seconds for a step, or None.
            run_timeout: Seconds for a run, or None.
            max_concurrency: How many tasks of a step run at once, or None for all.
            recursion_limit: Steps since the last call after which a run is stopped.
            allow_unreachable: Whether nodes that nothing names are no fault.

        Returns:
            The compiled graph.

        Raises:
            InvalidGraph: One error with all faults; `.faults` has one text each.
        """
        return self._build(
            CompiledGraph,
            checkpointer=checkpointer,
            failure_policy=failure_policy,
            step_timeout=step_timeout,
            run_timeout=run_timeout,
            max_concurrency=max_concurrency,
            recursion_limit=recursion_limit,
            allow_unreachable=allow_unreachable,
        )

    def _build(
        self, cls: type[_Compiled], *, allow_unreachable: bool = False, **options: Any
    ) -> _Compiled:
        """Compile into a subclass of `CompiledGraph`; options as in `compile`."""
        options, faults = compile_options(options)
        faults = [*faults_of(self._declared, allow_unreachable=allow_unreachable), *faults]
        if faults:
            raise _invalid(f"graph {self.name!r}", *faults)
        return cls(
            **assemble(self._declared),
            version=self.version,
            schema=self.schema,
            context_schema=self.context_schema,
            **options,
        )

    def _what(self, call: str) -> str:
        return f"graph {self.name!r}, {call}"

    def _plan(self, fn: Any, what: str, call: str) -> Any:
        try:
            return call_plan(fn, what)
        except CannotCall as error:
            raise _invalid(self._what(call), str(error)) from None


def _invalid(what: str, *faults: str) -> InvalidGraph:
    if len(faults) == 1:
        return InvalidGraph(f"{what}: {faults[0]}", faults=faults)
    lines = "".join(f"\n  {number}. {fault}" for number, fault in enumerate(faults, 1))
    return InvalidGraph(f"{what} has {plural(len(faults), 'fault')}:{lines}", faults=faults)


def _raise(fault: str | None, what: str) -> None:
    if fault is not None:
        raise _invalid(what, fault)
