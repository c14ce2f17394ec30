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
from typing import TYPE_CHECKING, Any

from beamweaver.errors import InvalidUpdate, UnknownChannel
from beamweaver.graph._text import listed, nearest
from beamweaver.graph.channels import Channel
from beamweaver.graph.kinds import managed_value
from beamweaver.graph.shapes import OPEN, Shape
from beamweaver.graph.specs import Branch, FailurePolicy, Guard, Handler, Join, NodeSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from beamweaver.graph.migrations import Migration
    from beamweaver.graph.outline import Outline
    from beamweaver.graph.picture import Picture
    from beamweaver.types import ThreadState

__all__ = ["Branch", "CompiledGraph", "FailurePolicy", "Guard", "Join", "NodeSpec"]


class CompiledGraph:
    """An immutable graph; `Graph.compile()` makes it.

    Attributes:
        name: The graph's name; threads belong to it.
        version: The version of the code that the user declared.
        fingerprint: A hash of shape and types: equal for equal graphs, in every process.
        outline: What the fingerprint is of, as data.
        schema: The class of the state, or None.
        context_schema: The type of `ctx.context`, or None.
        open: Whether any key may be written, because there is no schema.
        nodes: The nodes by name, in the order of declaration.
        channels: The declared channels by key.
        edges: For each node and `START`, where its static edges lead; `END` is left out.
        joins: For each source of a join, its joins.
        branches: For each source of conditional edges, its branches.
        guards: For each source of guarded edges, these, in the order of declaration.
        routed: Whether any router or guarded edge chooses what comes next.
        has_deferred: Whether any node waits until the plan has no other task.
        ends: Sources of a static edge to `END`.
        shape: The form in which nodes see the state.
        output_shape: The form of outcomes.
        inputs: The keys that an input may have; None for all keys of the state.
        input_shape: The form of a whole input.
        required: The keys that the first input of a thread must bring.
        plain: Whether nodes without a schema of their own see a dict of all values.
        clearing: The keys whose values last for one step.
        managed: The keys that are computed for each step.
        unstored: The names of the keys that no store keeps.
        failure_policy: `"proceed"` or `"panic"`.
        step_timeout: Seconds for a step, or None.
        run_timeout: Seconds for a run, or None.
        max_concurrency: How many tasks of a step run at once, or None.
        recursion_limit: Steps since the last call before a run is stopped.
        interrupt_before: Nodes before which every run stops once.
        interrupt_after: Nodes after which every run stops once.
        migrations: How threads of older versions become threads of this one.
        on_failure: What is called when a run has failed, or None.
        strict: Whether values that a node changed in place are found at any depth; None for what the
            runtime says.
        checkpointer: What the user gave; this package never looks at it.
    """

    _fixed: frozenset[str] = frozenset()

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
        outline: Outline,
        guards: Mapping[str, tuple[Guard, ...]] = MappingProxyType({}),
        ends: frozenset[str] = frozenset(),
        shape: Shape = OPEN,
        input_shape: Shape | None = None,
        output_shape: Shape | None = None,
        inputs: Mapping[str, Channel] | None = None,
        required: frozenset[str] = frozenset(),
        interrupt_before: frozenset[str] = frozenset(),
        interrupt_after: frozenset[str] = frozenset(),
        migrations: Mapping[int, Migration] = MappingProxyType({}),
        on_failure: Handler | None = None,
        strict: bool | None = None,
    ) -> None:
        self.name = name
        self.version = version
        self.fingerprint = fingerprint
        self.schema = schema
        self.context_schema = context_schema
        self.open = schema is None
        self.nodes = MappingProxyType(dict(nodes))
        self.channels = MappingProxyType(dict(channels))
        self.has_async = any(
            node.is_async or (node.error_handler is not None and node.error_handler.is_async)
            for node in self.nodes.values()
        )
        self.has_subgraphs = any(node.subgraph is not None for node in self.nodes.values())
        self.edges = MappingProxyType(dict(edges))
        self.joins = MappingProxyType(dict(joins))
        self.branches = MappingProxyType(dict(branches))
        self.failure_policy: FailurePolicy = failure_policy
        self.step_timeout = step_timeout
        self.run_timeout = run_timeout
        self.max_concurrency = max_concurrency
        self.recursion_limit = recursion_limit
        self.checkpointer = checkpointer
        self.outline = outline
        self.guards = MappingProxyType(dict(guards))
        self.routed = bool(branches or guards)
        self.has_deferred = any(node.defer for node in self.nodes.values())
        self.ends = ends
        self.shape = shape
        self.input_shape = input_shape or shape
        self.output_shape = output_shape or shape
        self.inputs = None if inputs is None else MappingProxyType(dict(inputs))
        self.required = required
        self.interrupt_before = interrupt_before
        self.interrupt_after = interrupt_after
        self.migrations = MappingProxyType(dict(migrations))
        self.on_failure = on_failure
        self.strict = strict
        self.clearing = tuple(channel for channel in channels.values() if channel.clears)
        self.managed = tuple(channel for channel in channels.values() if channel.managed)
        self.unstored = frozenset(name for name, channel in channels.items() if not channel.stored)
        self.plain = shape.is_dict
        self._fixed = frozenset(self.__dict__)

    def __setattr__(self, name: str, value: object) -> None:
        # Subclasses may have state of their own; what the builder made stays as it is.
        if name in self._fixed:
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

    # Views --------------------------------------------------------------------------------------

    def view(self, values: Mapping[str, Any], node: NodeSpec | None = None) -> Any:
        """What a node, router, guard or handler sees of the state.

        Args:
            values: The values of the channels, with managed ones and the overlay of a `Send` laid over them.
            node: The node; None for routers and guards.

        Returns:
            A new dict or instance; the values in it are shared with everyone, not copied.

        Raises:
            InvalidUpdate: A field that the class requires has no value, or the class refuses the values.
        """
        if self.plain and (node is None or node.shape is None):
            return dict(values)
        return self.shape_of(node).make(values)

    def shape_of(self, node: NodeSpec | None) -> Shape:
        """The form in which a node sees the state: `shape.read(view)` for `mutations`."""
        return self.shape if node is None or node.shape is None else node.shape

    def managed_values(self, remaining: int) -> dict[str, int | bool]:
        """The managed keys of a step.

        Args:
            remaining: How many steps the run may still take, this one included.
        """
        return {each.name: managed_value(each.kind, remaining) for each in self.managed}  # type: ignore[arg-type]  # a managed channel has such a kind

    def output(self, values: Mapping[str, Any]) -> Any:
        """The state as an outcome shows it: the keys of the output schema, without managed ones."""
        return self.output_shape.make(values)

    def cleared(self, values: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
        """What becomes of the keys that last for one step and that a step did not write.

        Args:
            values: The values before the step's merge.
            written: The keys that the step wrote.

        Returns:
            The new value of each that changes; `MISSING` where the key is absent from now on.
        """
        return {
            channel.name: channel.rest(values[channel.name])
            for channel in self.clearing
            if channel.name in values
            and channel.name not in written
            and not channel.is_empty(values[channel.name])
        }

    def check_state(self, values: Mapping[str, Any]) -> None:
        """Judges a merged state by the class of the schema, which may have checks of its own.

        Args:
            values: The values after a merge.

        Raises:
            InvalidUpdate: No instance can be made of them.
        """
        if not self.plain:
            self.shape.make(values)

    def check_complete(self, values: Mapping[str, Any]) -> None:
        """Judges the state after the input of a run.

        Args:
            values: The values with the input merged in.

        Raises:
            InvalidUpdate: A key that the input schema requires has no value.
        """
        missing = [key for key in self.input_shape.keys if key in self.required - values.keys()]
        if missing:
            raise InvalidUpdate(
                f"the input lacks {listed(missing)}, which {self.input_shape.name} requires: give "
                f'{{"{missing[0]}": ...}}, or a default to the field',
                node=None,
                keys=tuple(missing),
            )

    # Drawing ------------------------------------------------------------------------------------

    def draw_mermaid(self, *, state: ThreadState | None = None, direction: str = "TD") -> str:
        """The graph as text of a mermaid flowchart; needs no network.

        Args:
            state: A thread's state; its tasks are coloured and labelled by how they stand.
            direction: `"TD"` (top down) or `"LR"` (left to right).
        """
        from beamweaver.graph.drawing import draw_mermaid  # noqa: PLC0415  # few processes draw

        return draw_mermaid(self, state=state, direction=direction)

    def draw_svg(self, *, state: ThreadState | None = None) -> Picture:
        """The graph as an SVG document, made here without network; a notebook shows it as a picture.

        Args:
            state: A thread's state; its tasks are coloured and labelled by how they stand.
        """
        from beamweaver.graph.picture import draw_svg  # noqa: PLC0415  # few processes draw

        return draw_svg(self, state=state)

    def _repr_mimebundle_(self, **_options: Any) -> dict[str, str]:
        """What a notebook shows: a picture, made here without network."""
        return {"image/svg+xml": self.draw_svg(), "text/plain": repr(self)}
