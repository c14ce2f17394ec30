"""The faults of a graph as a whole: each with the names, the place and the cure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamweaver.graph._schemas import schema_faults, subgraph_faults
from beamweaver.graph._text import listed, nearest, node_text, shown
from beamweaver.types import END, START

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from beamweaver.graph._declared import Declared, DeclaredEdge

__all__ = ["breakpoint_faults", "faults_of"]


def faults_of(declared: Declared, *, allow_unreachable: bool) -> list[str]:
    """All faults, in the order of declaration within each kind."""
    if not declared.nodes:
        return ["the graph has no nodes; add one with add_node(name, fn)"]
    names = dict.fromkeys(node.name for node in declared.nodes)
    faults = [*schema_faults(declared), *_duplicates(declared), *_ends(declared, names)]
    faults += [*_guards(declared), *subgraph_faults(declared)]
    if not _has_entry(declared):
        first = declared.nodes[0].name
        faults.append(
            f"nothing leads into the graph; add an entry such as add_edge(START, {first!r})"
        )
    if not allow_unreachable:
        faults.extend(_unreachable(declared))
    return faults


def _duplicates(declared: Declared) -> Iterator[str]:
    seen: dict[str, str] = {}
    for node in declared.nodes:
        if node.name in seen:
            yield (
                f"node {node.name!r} at {node.place}: a node of that name was added at "
                f"{seen[node.name]}; rename one of them"
            )
        seen.setdefault(node.name, node.place)


def _ends(declared: Declared, names: Iterable[str]) -> Iterator[str]:
    for edge in declared.edges:
        what = _edge_text(edge)
        yield from _source_fault(what, edge.source, names)
        yield from _target_fault(what, edge.target, names)
    for join in declared.joins:
        sources = ", ".join(map(node_text, join.sources))
        what = f"add_edge([{sources}], {node_text(join.target)}) at {join.place}"
        for source in join.sources:
            if source == START:
                yield f"{what}: START cannot be joined; it has always arrived. Leave it out"
            else:
                yield from _source_fault(what, source, names)
        yield from _target_fault(what, join.target, names)
    for branch in declared.branches:
        what = f"add_conditional_edges({node_text(branch.source)}, ...) at {branch.place}"
        yield from _source_fault(what, branch.source, names)
        for target in dict.fromkeys((branch.targets or {}).values()):
            yield from _target_fault(what, target, names)
    for node in declared.nodes:
        for target in node.destinations:
            yield from _target_fault(
                f"destinations= of node {node.name!r} at {node.place}", target, names
            )


def _edge_text(edge: DeclaredEdge) -> str:
    return f"add_edge({node_text(edge.source)}, {node_text(edge.target)}) at {edge.place}"


def _guards(declared: Declared) -> Iterator[str]:
    plain = {(edge.source, edge.target) for edge in declared.edges if not edge.guarded}
    chosen = {e.source for e in declared.edges if e.guarded and not e.default}
    for edge in declared.edges:
        if not edge.guarded:
            continue
        if (edge.source, edge.target) in plain:
            yield (
                f"{_edge_text(edge)}: a plain edge between the two is always taken, so this one has no "
                "effect; leave one of them out"
            )
        if edge.default and edge.source not in chosen:
            yield (
                f"{_edge_text(edge)}: default=True, and no edge after {node_text(edge.source)} has when= or "
                "max_runs=, so it is always taken; leave default out, or guard another edge"
            )


def breakpoint_faults(name: str, given: object, nodes: Iterable[str]) -> Iterator[str]:
    """What is wrong with `interrupt_before=` or `interrupt_after=`."""
    if given == "*":
        return
    if not isinstance(given, (list, tuple, set, frozenset)):
        yield f'{name} is {shown(given)}; give a list of node names, or "*" for all'
        return
    for node in given:
        if node not in nodes:
            yield (
                f"{name} names {node_text(node)}, and there is no such node.{nearest(node, nodes)} "
                f"Nodes: {listed(nodes)}"
            )


def _source_fault(what: str, source: str, names: Iterable[str]) -> Iterator[str]:
    if source == END:
        yield f"{what}: nothing follows END; swap the two ends, or leave the edge out"
    elif source != START and source not in names:
        yield _unknown(what, source, names)


def _target_fault(what: str, target: str, names: Iterable[str]) -> Iterator[str]:
    if target == START:
        yield f"{what}: nothing leads to START; to begin again, lead to the first node"
    elif target != END and target not in names:
        yield _unknown(what, target, names)


def _unknown(what: str, name: str, names: Iterable[str]) -> str:
    return (
        f"{what}: there is no node {name!r}.{nearest(name, names)} Nodes: {listed(names)}. "
        f"Fix the name, or add the node with add_node({name!r}, fn)"
    )


def _has_entry(declared: Declared) -> bool:
    edges = any(edge.source == START and edge.target != END for edge in declared.edges)
    return edges or any(branch.source == START for branch in declared.branches)


def _unreachable(declared: Declared) -> Iterator[str]:
    if any(branch.targets is None for branch in declared.branches):
        return  # such a router may name any node
    named = {end for edge in declared.edges for end in (edge.source, edge.target)}
    named.update(end for join in declared.joins for end in (*join.sources, join.target))
    named.update(branch.source for branch in declared.branches)
    named.update(node for branch in declared.branches for node in (branch.targets or {}).values())
    named.update(target for node in declared.nodes for target in node.destinations)
    for node in declared.nodes:
        if node.name not in named:
            yield (
                f"node {node.name!r} at {node.place} is unreachable: no edge, targets or "
                "destinations= name it. Add an edge to it; if a goto or Send leads to it, say so "
                "with destinations= at the node that goes there; or compile(allow_unreachable=True)"
            )
