"""What nodes, routers and callers give, judged and brought into one form.

Everything here is pure and runs on the node's own worker, so that a fault is the fault of the node
that made it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from beamweaver.errors import InvalidUpdate, UnknownChannel, UnknownTarget
from beamweaver.graph._text import described, giver, listed, nearest, node_text, shown
from beamweaver.graph._unawaited import unawaited
from beamweaver.graph.channels import Channel
from beamweaver.types import END, PARENT, Command, Overwrite, Send, timeouts

if TYPE_CHECKING:
    from beamweaver.graph.compiled import Branch, CompiledGraph, NodeSpec

__all__ = [
    "NodeReturn",
    "Write",
    "call_node",
    "call_router",
    "collect",
    "judged",
    "normalize",
    "normalize_input",
    "normalize_routing",
    "overlay_channel",
]

Write = tuple[str, Any, bool]
"""Channel, value, and whether it overwrites."""

_INPUT: Final = None


class NodeReturn(msgspec.Struct, frozen=True):
    """What a node asked for.

    Attributes:
        writes: `(channel, value, overwrite)` in the order in which they were returned.
        goto: Nodes that replace the static edges of the node; None leaves these in force, and an
            empty tuple goes nowhere.
        sends: Tasks for the next step, in order.
        parent: Commands to the graph around, in order, not judged yet: `normalize(parent, node, command)`
            with the node that is the subgraph judges each.
    """

    writes: tuple[Write, ...] = ()
    goto: tuple[str, ...] | None = None
    sends: tuple[Send, ...] = ()
    parent: tuple[Command, ...] = ()


_NOTHING: Final = NodeReturn()
_ANY: Final = Channel("any")
"""Judges the values of keys that nothing declares: all are good."""


def normalize(
    graph: CompiledGraph, node: NodeSpec, returned: object, *, nested: bool = False
) -> NodeReturn:
    """Judge what a node returned.

    Args:
        graph: The graph.
        node: The node.
        returned: None, an update, a `Command`, a `Send`, or a list of these.
        nested: Whether the graph runs as a subgraph, so that it has a parent to command.

    Returns:
        Its writes, goto and Sends, in order.

    Raises:
        InvalidUpdate: It is none of these, a value is of the wrong type, or it commands a parent that there
            is not.
        UnknownChannel: A key that the schema lacks.
        UnknownTarget: A `goto` or `Send` to a node that the graph lacks.
    """
    if returned is None:
        return _NOTHING
    if type(returned) is dict:
        return NodeReturn(tuple(judged(graph, node.name, returned)))
    return _Collector(graph, node.name, nested=nested).collect(returned)


def normalize_input(graph: CompiledGraph, value: object) -> NodeReturn:
    """Judge the input of a call.

    Args:
        graph: The graph.
        value: An update, or a `Command` with `update=` and `goto=`; its `resume=` is the runtime's.

    Returns:
        The writes, and where the call goes beside the graph's own entry.

    Raises:
        InvalidUpdate: It is neither, or a value is of the wrong type.
        UnknownChannel: A key that the schema lacks.
        UnknownTarget: A `goto` to a node that the graph lacks.
    """
    if isinstance(value, Command):
        collector = _Collector(graph, _INPUT)
        collector.command(value)
        return collector.result()
    if isinstance(value, Mapping):
        _check_inputs(graph, value)
        return NodeReturn(tuple(judged(graph, _INPUT, value)))
    raise InvalidUpdate(
        f"the input is {described(value)}; give a dict such as {_example(graph)}, or a Command"
        f"{_instance_cure(graph, value)}",
        node=_INPUT,
        got=type(value).__name__,
    )


def collect(graph: CompiledGraph, node: str | None, returned: object) -> NodeReturn:
    """Judge what is to count as returned by a node of that name, which may be None: by nobody."""
    return _NOTHING if returned is None else _Collector(graph, node).collect(returned)


def normalize_routing(
    graph: CompiledGraph, branch: Branch, returned: object
) -> tuple[tuple[str, ...], tuple[Send, ...]]:
    """Judge what a router returned.

    Args:
        graph: The graph.
        branch: The conditional edge.
        returned: A key of the targets (without targets: the name of a node), `END`, a `Send`, or a
            list of these. `END` and an empty list go nowhere.

    Returns:
        The nodes, each once, and the Sends.

    Raises:
        UnknownTarget: Anything else; the message has router, value and what is allowed.
        InvalidUpdate: A `Send`'s update does not fit the state.
    """
    nodes: dict[str, None] = {}
    sends: list[Send] = []
    whole = _is_target(branch, returned)
    values = [returned] if whole or not isinstance(returned, (list, tuple)) else returned
    for value in values:
        if isinstance(value, Send):
            sends.append(_checked_send(graph, f"router {branch.name!r}", branch.source, value))
        else:
            target = _routed(graph, branch, value)
            if target != END:
                nodes[target] = None
    return tuple(nodes), tuple(sends)


def call_node(node: NodeSpec, state: Any, ctx: Any) -> Any:
    """Call a node's function, with the context if it wants one."""
    if node.caller is None:
        return node.fn(state)
    return node.caller(node.fn, state, ctx)


def call_router(branch: Branch, state: Any, ctx: Any) -> Any:
    """Call a branch's router, with the context if it wants one."""
    if branch.caller is None:
        return branch.router(state)
    return branch.caller(branch.router, state, ctx)


def judged(graph: CompiledGraph, node: str | None, update: Mapping[Any, Any]) -> list[Write]:
    """The writes of an update by a node of that name; None: by the caller.

    Raises:
        InvalidUpdate, UnknownChannel: As `normalize`.
    """
    channels = graph.channels
    writes: list[Write] = []
    for key, value in update.items():
        channel = channels.get(key)
        if channel is None:
            _undeclared(graph, node, key)
            if type(value) is Overwrite:
                writes.append((key, value.value, True))
            else:
                writes.append((key, value, False))
        elif type(value) in channel.exact:
            writes.append((key, value, False))
        elif type(value) is Overwrite:
            channel.check_value(value.value, node=node)
            writes.append((key, value.value, True))
        else:
            channel.check(value, node=node)
            writes.append((key, value, False))
    return writes


def _check_inputs(graph: CompiledGraph, update: Mapping[Any, Any]) -> None:
    """Judges an input by the graph's input schema, before the state's own types judge it."""
    if graph.inputs is None:
        return
    for key, value in update.items():
        channel = graph.inputs.get(key)
        if channel is not None:
            if type(value) is not Overwrite:
                channel.check(value, node=_INPUT)
        elif key in graph.channels or graph.open:
            name = graph.input_shape.name
            raise UnknownChannel(
                f"the input has the key {key!r}, which {name} lacks.{nearest(key, graph.inputs)} "
                f"Its keys: {listed(graph.inputs)}. Leave {key!r} out, or add it to {name}",
                node=_INPUT,
                key=key,
            )


def _instance_cure(graph: CompiledGraph, value: object) -> str:
    """What to do in place of giving a whole instance of the state's class, defaults and all."""
    for shape in (graph.shape, graph.input_shape):
        if not shape.is_dict and isinstance(value, shape.schema):
            return f". To write some of its fields: update_of({shape.name}, {shape.keys[0]}=...)"
    return ""


def _undeclared(
    graph: CompiledGraph, node: str | None, key: object, who: str | None = None
) -> None:
    """See that a key without a channel may be written: in a graph without a schema."""
    who = who or giver(node)
    if not isinstance(key, str):
        raise InvalidUpdate(
            f"{who} the key {described(key)}; keys are str", node=node, key=repr(key)
        )
    if key.startswith("__"):
        raise InvalidUpdate(
            f"{who} the key {key!r}; names that begin with '__' are reserved. Rename the key",
            node=node,
            key=key,
        )
    if graph.open:
        return
    schema = getattr(graph.schema, "__name__", "the schema")
    raise UnknownChannel(
        f"{who} the key {key!r}, which {schema} lacks.{nearest(key, graph.channels)} "
        f"Its keys: {listed(graph.channels)}. Add {key!r} to {schema}, or fix the name",
        node=node,
        key=key,
    )


def _example(graph: CompiledGraph) -> str:
    key = next(iter(graph.channels), "key")
    return f'{{"{key}": ...}}'


class _Collector:
    """Gathers the parts of one return, in order."""

    __slots__ = ("goto", "graph", "nested", "node", "parent", "sends", "writes")

    def __init__(self, graph: CompiledGraph, node: str | None, *, nested: bool = False) -> None:
        self.graph = graph
        self.node = node
        self.nested = nested
        self.parent: list[Command] = []
        self.writes: list[Write] = []
        self.goto: list[str] | None = None
        self.sends: list[Send] = []

    def result(self) -> NodeReturn:
        goto = None if self.goto is None else tuple(dict.fromkeys(self.goto))
        return NodeReturn(tuple(self.writes), goto, tuple(self.sends), tuple(self.parent))

    def collect(self, returned: object) -> NodeReturn:
        if type(returned) in (list, tuple):
            for index, part in enumerate(returned):  # type: ignore[arg-type, var-annotated]  # tested above
                if part is not None:
                    self.part(part, f" at [{index}] of its list")
        else:
            self.part(returned, "")
        return self.result()

    def part(self, part: object, where: str) -> None:
        if isinstance(part, Mapping):
            self.writes.extend(judged(self.graph, self.node, part))
        elif isinstance(part, Command):
            self.command(part)
        elif isinstance(part, Send):
            self.sends.append(self.send(part))
        else:
            self._refuse(part, where)

    def command(self, command: Command) -> None:
        if command.graph is not None:
            self._to_parent(command)
            return
        if command.resume is not msgspec.UNSET and self.node is not None:
            raise InvalidUpdate(
                f"node {self.node!r} returned Command(resume=...); only a call can answer a "
                "question: app.resume(answer)",
                node=self.node,
            )
        if command.update is not None:
            if not isinstance(command.update, Mapping):
                raise InvalidUpdate(
                    f"{giver(self.node)} Command(update={shown(command.update)}); give a dict such as "
                    f"{_example(self.graph)}",
                    node=self.node,
                    got=type(command.update).__name__,
                )
            if self.node is None:
                _check_inputs(self.graph, command.update)
            self.writes.extend(judged(self.graph, self.node, command.update))
        if command.goto != ():
            self._go(command.goto)

    def _to_parent(self, command: Command) -> None:
        who = giver(self.node)
        if command.graph != PARENT:
            raise InvalidUpdate(
                f"{who} Command(graph={shown(command.graph)}); give PARENT, or leave graph out",
                node=self.node,
            )
        if not self.nested:
            raise InvalidUpdate(
                f"{who} Command(graph=PARENT), and graph {self.graph.name!r} does not run inside of another "
                "one here; leave graph= out",
                node=self.node,
            )
        self.parent.append(Command(update=command.update, goto=command.goto, resume=command.resume))

    def _go(self, goto: object) -> None:
        self.goto = [] if self.goto is None else self.goto
        for target in goto if isinstance(goto, (list, tuple)) else (goto,):
            if isinstance(target, Send):
                self.sends.append(self.send(target))
            elif isinstance(target, str) and (target == END or target in self.graph.nodes):
                if target != END:
                    self.goto.append(self.graph.nodes[target].name)
            else:
                raise _unknown(
                    self.graph, f"{giver(self.node)} Command(goto=...) to", self.node, target
                )

    def send(self, send: Send) -> Send:
        who = "the input" if self.node is None else f"node {self.node!r}"
        return _checked_send(self.graph, who, self.node, send)

    def _refuse(self, part: object, where: str) -> NoReturn:
        hint = ""
        if isinstance(part, str) and (part in self.graph.nodes or part == END):
            hint = f" To go to {part!r} next, return Command(goto={part!r})."
        elif unawaited(part):
            hint = " It is a coroutine: write the node with async def and await it there."
        raise InvalidUpdate(
            f"node {self.node!r} returned {described(part)}{where}, which is no update.{hint}"
            f"{self._update_cure(part)} "
            f"Return None, a dict such as {_example(self.graph)}, a Command, a Send, "
            "or a list of these",
            node=self.node,
            got=type(part).__name__,
        )

    def _update_cure(self, part: object) -> str:
        shape = self.graph.shape
        if shape.is_dict or not isinstance(part, shape.schema):
            return ""
        return f" To write some of its fields, return update_of({shape.name}, {shape.keys[0]}=...)."


def _checked_send(graph: CompiledGraph, who: str, node: str | None, send: Send) -> Send:
    if not isinstance(send.node, str) or send.node not in graph.nodes:
        raise _unknown(graph, f"{who} made a Send to", node, send.node)
    if type(send.update) is not dict and not isinstance(send.update, Mapping):
        raise InvalidUpdate(
            f"{who} made Send({send.node!r}, {shown(send.update)}); give a dict "
            f"such as {_example(graph)}",
            node=node,
            got=type(send.update).__name__,
        )
    target = graph.nodes[send.node]
    for key, value in send.update.items():
        channel = overlay_channel(graph, target, key)
        if channel is None:
            raise _no_overlay(graph, who, node, target, key)
        if type(value) is Overwrite:
            raise InvalidUpdate(
                f"{who} made a Send to {send.node!r} with Overwrite for the key {key!r}; a Send's "
                "update lies over the state and no reducer is asked: give the value itself",
                node=node,
                key=key,
            )
        if type(value) not in channel.whole:
            channel.check_value(value, node=node, sent=(who, target.name))
    if send.timeout is not None:
        try:
            timeouts(send.timeout, f"the timeout of a Send to {send.node!r}")
        except ValueError as error:
            raise InvalidUpdate(f"{who}: {error}", node=node) from None
    if type(send.node) is not str:  # a member of a str Enum is its value
        return msgspec.structs.replace(send, node=target.name)
    return send


def overlay_channel(graph: CompiledGraph, node: NodeSpec, key: Any) -> Channel | None:
    """What judges, and types, a key of the overlay of a `Send` to a node; None if the node sees no such key.

    A node with an input schema of its own sees the keys of that one; other nodes see the state's.
    """
    if node.inputs is not None:
        return node.inputs.get(key)
    if node.subgraph is not None and not node.subgraph.open:
        inner = node.subgraph
        return (inner.channels if inner.inputs is None else inner.inputs).get(key)
    known = graph.channels.get(key)
    if known is None and graph.open and isinstance(key, str) and not key.startswith("__"):
        return _ANY
    return known


def _no_overlay(
    graph: CompiledGraph, who: str, node: str | None, target: NodeSpec, key: object
) -> Exception:
    if target.inputs is None and target.subgraph is None:
        try:
            _undeclared(graph, node, key, f"{who} made a Send to {target.name!r} with")
        except InvalidUpdate as error:
            return error
    keys = target.inputs
    if target.subgraph is not None:
        keys = target.subgraph.inputs or target.subgraph.channels
    return UnknownChannel(
        f"{who} made a Send to {target.name!r} with the key {described(key)}, which that node does not "
        f"see.{nearest(key, keys or ())} Its keys: {listed(keys or ())}",
        node=node,
        key=key if isinstance(key, str) else repr(key),
    )


def _unknown(graph: CompiledGraph, what: str, node: str | None, target: object) -> UnknownTarget:
    return UnknownTarget(
        f"{what} {described(target)}, and there is no such node.{nearest(target, graph.nodes)} "
        f"Nodes: {listed(graph.nodes)}",
        node=node,
        target=target if isinstance(target, str) else repr(target),
    )


def _is_target(branch: Branch, value: object) -> bool:
    try:
        return branch.targets is not None and value in branch.targets
    except TypeError:  # a list cannot be a key
        return False


def _routed(graph: CompiledGraph, branch: Branch, value: Any) -> str:
    if _is_target(branch, value) and branch.targets is not None:
        return branch.targets[value]
    if isinstance(value, str) and value == END:
        return END
    if branch.targets is None and isinstance(value, str) and value in graph.nodes:
        return graph.nodes[value].name
    allowed = list(graph.nodes if branch.targets is None else branch.targets)
    what = "the name of a node" if branch.targets is None else "one of its targets"
    raise UnknownTarget(
        f"router {branch.name!r} after {node_text(branch.source)} returned {described(value)}; "
        f"expected {what}."
        f"{nearest(value, allowed)} Allowed: {listed([*allowed, END])}, a Send, or a list of these",
        node=branch.source,
        router=branch.name,
        target=value if isinstance(value, str) else repr(value),
    )
