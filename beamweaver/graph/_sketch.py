"""What is drawn of a graph: boxes and links, before any form of picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from beamweaver.types import END, START

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.graph.specs import Guard, NodeSpec
    from beamweaver.types import ThreadState

__all__ = ["ANYWHERE", "Box", "Link", "Sketch", "sketch_of"]

Kind: TypeAlias = Literal["node", "end", "join", "any", "graph"]
ANYWHERE: Final = "__any__"
"""The box to which a router leads that may name any node."""


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A box: its name, what is written in it, how it stands in a thread, and what is inside."""

    name: str
    label: str
    kind: Kind = "node"
    deferred: bool = False
    status: str = ""
    inside: Sketch | None = None


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """An arrow; a dashed one may be taken or not."""

    source: str
    target: str
    label: str = ""
    dashed: bool = False


class Sketch(msgspec.Struct, frozen=True):
    """All boxes and arrows, in the order of declaration."""

    boxes: tuple[Box, ...]
    links: tuple[Link, ...]


def sketch_of(graph: CompiledGraph, state: ThreadState | None = None) -> Sketch:
    """The sketch of a graph, with a thread's tasks marked if its state is given."""
    marks = _marks(graph, state)
    links = [*_static(graph), *_joined(graph), *_chosen(graph)]
    sources = {link.source for link in links}
    # A run ends where nothing follows.
    links += [Link(source=name, target=END) for name in graph.nodes if name not in sources]
    joins = {join.key: join for found in graph.joins.values() for join in found}
    boxes = [
        Box(name=START, label="START", kind="end"),
        *(_box(node, marks.get(node.name, ""), state) for node in graph.nodes.values()),
        *(Box(name=f"join {key}", label="all of", kind="join") for key in joins),
    ]
    if any(link.target == ANYWHERE for link in links):
        boxes.append(Box(name=ANYWHERE, label="any node", kind="any"))
    boxes.append(Box(name=END, label="END", kind="end", status=marks.get(END, "")))
    return Sketch(tuple(boxes), tuple(links))


def _box(node: NodeSpec, status: str, state: ThreadState | None) -> Box:
    if node.subgraph is None:
        return Box(name=node.name, label=node.name, deferred=node.defer, status=status)
    tasks = () if state is None else state.tasks
    shown = [t.subgraph for t in tasks if t.node == node.name and t.subgraph is not None]
    inside = sketch_of(node.subgraph, shown[0] if shown else None)
    return Box(
        name=node.name,
        label=node.name,
        kind="graph",
        deferred=node.defer,
        status=status,
        inside=inside,
    )


def _marks(graph: CompiledGraph, state: ThreadState | None) -> dict[str, str]:
    """How the tasks of a thread stand, by node; where a node has several, the one that needs most care."""
    if state is None:
        return {}
    if state.status == "complete" and not state.next:
        return {END: "finished"}
    found: dict[str, str] = {}
    for task in state.tasks:
        rank = _CARE.index(task.state) if task.state in _CARE else len(_CARE)
        before = found.get(task.node)
        if task.node in graph.nodes and (before is None or rank < _CARE.index(before)):
            found[task.node] = task.state
    return found


_CARE: Final = ("failed", "waiting", "retrying", "handling", "sleeping", "pending", "finished")


def _static(graph: CompiledGraph) -> Iterator[Link]:
    for source, targets in graph.edges.items():
        for target in targets:
            yield Link(source=source, target=target)
        if source in graph.ends:
            yield Link(source=source, target=END)


def _joined(graph: CompiledGraph) -> Iterator[Link]:
    joins = {join.key: join for found in graph.joins.values() for join in found}
    for key, join in joins.items():
        for source in join.sources:
            yield Link(source=source, target=f"join {key}")
        yield Link(source=f"join {key}", target=join.target)


def _chosen(graph: CompiledGraph) -> Iterator[Link]:
    for source in (START, *graph.nodes):
        for branch in graph.branches.get(source, ()):
            if branch.targets is None:
                yield Link(source=source, target=ANYWHERE, label=branch.name, dashed=True)
                continue
            values: dict[str, list[str]] = {}
            for value, target in branch.targets.items():
                values.setdefault(target, []).append(_value_text(value, target))
            for target, texts in values.items():
                label = ", ".join(text for text in texts if text)
                yield Link(source=source, target=target, label=label, dashed=True)
        for guard in graph.guards.get(source, ()):
            yield Link(source=source, target=guard.target, label=_guard_text(guard), dashed=True)
        node = graph.nodes.get(source)
        for target in node.destinations if node is not None else ():
            yield Link(source=source, target=target, label="goto", dashed=True)


def _value_text(value: Hashable, target: str) -> str:
    return "" if value == target else str(value) if isinstance(value, str) else repr(value)


def _guard_text(guard: Guard) -> str:
    budget = "" if guard.max_runs is None else f"at most {guard.max_runs}"
    return ", ".join(text for text in (guard.name, budget) if text)
