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
from typing import Any, Self, TypeAlias, TypeVar, Unpack, overload

from msgspec import UNSET

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
from beamweaver.graph._node_options import (
    default_options,
    node_options,
    runs_as_subgraph,
    subgraph_fault,
)
from beamweaver.graph._not_yet import not_yet_faults
from beamweaver.graph._signatures import CannotCall, call_plan, reducer_fault
from beamweaver.graph._text import listed, nearest, place, plural
from beamweaver.graph._validate import faults_of
from beamweaver.graph.channels import Channel, Reducer
from beamweaver.graph.compiled import CompiledGraph
from beamweaver.graph.kinds import Topic
from beamweaver.graph.options import CompileOptions, NodeDefaults, NodeOptions
from beamweaver.graph.schema import SchemaFault, channels_of
from beamweaver.graph.shapes import shape_of

__all__ = ["Graph", "Node", "Predicate", "Router"]

Node: TypeAlias = Callable[..., Any]
"""A function of `(state)` or `(state, ctx)`; returns an update, `Command`, `Send`, list or None."""
Router: TypeAlias = Callable[..., Any]
"""A function of `(state)` or `(state, ctx)` that returns where to go."""
Predicate: TypeAlias = Callable[..., Any]
"""A function of `(state)` or `(state, ctx)` that returns True or False."""
_AnyNode = TypeVar("_AnyNode", bound=Node)
_Compiled = TypeVar("_Compiled", bound=CompiledGraph)


class Graph:
    """Builds a graph. Each method changes the builder and returns it.

    A wrong argument is an error at once. What only the graph as a whole can show (an edge to a node
    that is never added, a node that nothing reaches) is gathered, and `compile()` raises all of it.

    Args:
        schema: A `TypedDict`, dataclass, `msgspec.Struct` or pydantic model that declares the keys of the
            state, with reducers and kinds as `Annotated[type, reducer or kind]`; None for any key, each
            keeping its last value. With a class other than a `TypedDict` nodes and outcomes have
            instances; its fields without a default must be in the first input of a thread.
        name: The graph's name; stored threads belong to it.
        version: Of this code, 1 or more.
        context_schema: The type of `ctx.context`; None if there is none.
        input_schema: The keys that a caller may give, and must give if they are required; None for all.
        output_schema: The keys that outcomes have; None for all.

    Raises:
        InvalidGraph: An argument is unfit; the message names it and the cure.
    """

    def __init__(
        self,
        schema: Any = None,
        *,
        name: str,
        version: int = 1,
        context_schema: Any = None,
        input_schema: Any = None,
        output_schema: Any = None,
    ) -> None:
        fault = arguments.name_fault(name, "the graph's name")
        if fault is None and (type(version) is not int or version < 1):
            fault = f"version is {version!r}; give an int of 1 or more"
        _raise(fault, f"graph {name!r}")
        self.name = name
        self.version = version
        self.schema = schema
        self.context_schema = context_schema
        try:
            self._declared = Declared(
                name=name,
                version=version,
                schema=schema,
                input_schema=input_schema,
                output_schema=output_schema,
                channels=channels_of(schema),
                shape=shape_of(schema),
                input_shape=None if input_schema is None else shape_of(input_schema),
                output_shape=None if output_schema is None else shape_of(output_schema),
                inputs=None if input_schema is None else channels_of(input_schema),
            )
        except SchemaFault as error:
            raise _invalid(f"graph {name!r}", str(error)) from None

    def __repr__(self) -> str:
        nodes = [node.name for node in self._declared.nodes]
        return f"{type(self).__name__}({self.name!r}, nodes={nodes})"

    @overload
    def add_node(
        self, name: str, fn: Node | CompiledGraph, **options: Unpack[NodeOptions]
    ) -> Self: ...
    @overload
    def add_node(
        self, name: Node | CompiledGraph, fn: None = None, **options: Unpack[NodeOptions]
    ) -> Self: ...
    @overload
    def add_node(
        self, name: str | None = None, fn: None = None, **options: Unpack[NodeOptions]
    ) -> Callable[[_AnyNode], _AnyNode]: ...

    def add_node(
        self,
        name: str | Node | CompiledGraph | None = None,
        fn: Node | CompiledGraph | None = None,
        **options: Unpack[NodeOptions],
    ) -> Any:
        """Add a node. Also as `@graph.add_node("name")`; the name may be left to the function.

        Args:
            name: Its name: 1 to 128 characters without NUL, ":" and "|", not beginning with "__".
            fn: A function of `(state)`, or also of a parameter named `ctx` or annotated `Context`; or a
                compiled graph, which runs inside of this one on the keys that both have.
            **options: `retries`, `retry`, `timeout`, `error_handler`, `metadata`, `destinations`, `defer`,
                `input_schema`, `persistent`, `key`, `calls`: see `beamweaver.graph.NodeOptions`.

        Returns:
            The builder; as a decorator, the function.

        Raises:
            InvalidGraph: An argument is unfit, or the function is a generator or takes other parameters.
            TypeError: There is no such option.

        Example:
            >>> graph = Graph(name="g")
            >>> @graph.add_node("load", retries=2)
            ... def load(state):
            ...     return None
        """
        what = self._what("add_node")
        arguments.check_options(options, NodeOptions, what)
        given = node_options(options, what)
        if fn is None and (name is None or isinstance(name, str)):
            own = name

            def decorate(decorated: _AnyNode) -> _AnyNode:
                self._add_node(own, decorated, given)
                return decorated

            return decorate
        self._add_node(None if fn is None else name, name if fn is None else fn, given)
        return self

    def _add_node(self, name: object, fn: Any, options: dict[str, Any]) -> None:
        graph = fn if isinstance(fn, CompiledGraph) else None
        if name is None:
            name = getattr(fn, "__name__", None) if graph is None else graph.name
        what = self._what(f"add_node({name!r})")
        _raise(arguments.name_fault(name, "the node's name"), what)
        _raise(subgraph_fault(graph, options), what)
        if isinstance(fn, Graph):
            raise _invalid(
                what, f"node {name!r} is a graph that is not compiled; give graph.compile()"
            )
        if graph is None:
            options["caller"] = self._plan(fn, f"node {name!r}", f"add_node({name!r})")
        else:
            options |= {"caller": None, "subgraph": graph}
            fn = runs_as_subgraph
        own = str.__str__(name)  # a str Enum's member is its value
        self._declared.nodes.append(DeclaredNode(name=own, fn=fn, **options))

    def set_node_defaults(self, **options: Unpack[NodeDefaults]) -> Self:
        """Options of nodes that give none of their own, whether added before or after.

        Subgraphs do not pass them on to their own nodes.

        Args:
            **options: `retries`, `retry`, `timeout`, `error_handler`: see `beamweaver.graph.NodeDefaults`.

        Returns:
            The builder.

        Raises:
            InvalidGraph: A value is unfit.
            TypeError: There is no such option.
        """
        what = self._what("set_node_defaults")
        arguments.check_options(options, NodeDefaults, what)
        for name, value in default_options(options, what).items():
            if value is not UNSET:
                setattr(self._declared, name, value)
        return self

    def add_edge(
        self,
        source: str | Sequence[str],
        target: str,
        *,
        when: Predicate | None = None,
        max_runs: int | None = None,
        default: bool = False,
    ) -> Self:
        """Add an edge, or with a list of sources a join.

        Args:
            source: A node, `START`, or a list of nodes that must all arrive (over any number of
                steps) before the target runs.
            target: A node or `END`.
            when: The edge is taken if this says True. It sees the merged state.
            max_runs: How often the edge is taken in a run; after that it is not.
            default: The edge is taken if no other edge of the source with `when` or `max_runs` is.

        Returns:
            The builder.

        Raises:
            InvalidGraph: An argument is unfit.

        Example:
            >>> graph = Graph(name="g").add_edge(["facts", "market"], "summary")
            >>> graph = graph.add_edge("summary", "facts", when=lambda state: state["thin"], max_runs=3)
        """
        what = self._what("add_edge")
        target = arguments.end(target, "target", what)
        arguments.edge_options(when, max_runs, default, what)
        if isinstance(source, (list, tuple)):
            sources = arguments.names(source, "sources", what)
            if not sources or len(set(sources)) < len(sources):
                _raise(f"the sources of the join are {list(sources)}; give each once", what)
            if len(sources) > 1:
                if when is not None or max_runs is not None or default:
                    _raise(
                        "a join takes no when=, max_runs= or default=; guard an edge after it", what
                    )
                self._declared.joins.append(DeclaredJoin(sources, target, place()))
                return self
            source = sources[0]
        source = arguments.end(source, "source", what)
        caller = (
            None if when is None else self._plan(when, f"the guard after {source!r}", "add_edge")
        )
        edge = DeclaredEdge(source, target, place(), when, caller, max_runs, default)
        self._declared.edges.append(edge)
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
        if before is None:
            declared.channels[key] = Channel(key, None, reducer)
        elif before.managed or isinstance(before.kind, Topic):
            _raise(f"the key is {before.kind!r}, which takes no reducer; change its kind", what)
        else:
            declared.channels[key] = before.reduced_by(reducer)
        return self

    def compile(self, *_nothing: Any, **options: Any) -> CompiledGraph:
        """Judge the graph as a whole and make it immutable. The builder may go on after it.

        Args:
            *_nothing: Options are given by name. (So written, a subclass may list those that it has.)
            **options: See `beamweaver.graph.CompileOptions`.

        Returns:
            The compiled graph.

        Raises:
            InvalidGraph: One error with all faults; `.faults` has one text each.
            TypeError: There is no such option.
        """
        if _nothing:
            raise TypeError(
                f"{self._what('compile')}: give options by name, as in checkpointer=..."
            )
        return self._build(CompiledGraph, **options)

    def _build(
        self, cls: type[_Compiled], *, allow_unreachable: bool = False, **options: Any
    ) -> _Compiled:
        """Compile into a subclass of `CompiledGraph`; options as in `compile`."""
        arguments.check_options(options, CompileOptions, self._what("compile"))
        declared = self._declared
        options, faults = compile_options(declared, options)
        faults = [
            *faults_of(declared, allow_unreachable=allow_unreachable),
            *faults,
            *not_yet_faults(declared, options),
        ]
        if faults:
            raise _invalid(f"graph {self.name!r}", *faults)
        del options["cache"]
        return cls(**assemble(declared), **options, context_schema=self.context_schema)

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
