"""What two versions of a graph differ in, in words.

Example:
    >>> from beamweaver.graph.outline import Key, Outline
    >>> old = Outline(nodes=("load", "pay"), edges=(("load", "pay"),), keys={"n": Key("int")})
    >>> new = Outline(nodes=("load", "charge"), edges=(("load", "charge"),), keys={"n": Key("float")})
    >>> for line in difference(old, new):
    ...     print(line)
    node 'pay' is gone
    node 'charge' is new
    the edge 'load' -> 'pay' is gone
    the edge 'load' -> 'charge' is new
    the key 'n' was int and is float
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamweaver.graph._text import nearest, node_text
from beamweaver.graph.compiled import CompiledGraph

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from beamweaver.graph.outline import Key, Outline

__all__ = ["difference", "gone"]


def difference(old: CompiledGraph | Outline, new: CompiledGraph | Outline) -> list[str]:
    """Each difference of shape and types as a sentence without a full stop.

    Args:
        old: The graph before, or its outline.
        new: The graph now, or its outline.

    Returns:
        Nodes first, then what joins them, then keys; empty exactly if the fingerprints are equal.
    """
    before, now = _outline(old), _outline(new)
    found = list(_difference(before, now))
    if not found and before.digest() != now.digest():
        found.append("the conditional edges are declared in another order")
    return found


def gone(what: str, name: str, names: Iterable[str]) -> str:
    """A thing that the graph has lost, in words, with the new name that it may have.

    Args:
        what: What it is, such as `"node"`.
        name: Its name.
        names: What may be its new name.
    """
    hint = nearest(name, names)
    renamed = f" (renamed to {hint[len(' Did you mean ') : -1]}?)" if hint else ""
    return f"{what} {name!r} is gone{renamed}"


def _outline(graph: CompiledGraph | Outline) -> Outline:
    return graph.outline if isinstance(graph, CompiledGraph) else graph


def _difference(old: Outline, new: Outline) -> Iterator[str]:
    yield from _nodes(old, new)
    yield from _changed(map(_edge_text, old.edges), map(_edge_text, new.edges))
    yield from _changed(map(_join_text, old.joins), map(_join_text, new.joins))
    yield from _changed(map(_branch_text, old.branches), map(_branch_text, new.branches))
    yield from _changed(map(_guard_text, old.guards), map(_guard_text, new.guards))
    if old.open != new.open:
        yield "there was a schema" if new.open else "there was no schema"
    yield from _keys("the key", old.keys, new.keys)
    for node in dict.fromkeys((*old.inputs, *new.inputs)):
        if node in old.nodes and node in new.nodes:
            before, now = old.inputs.get(node), new.inputs.get(node)
            if before is None or now is None:
                yield f"node {node!r} has {'no' if now is None else 'an'} input schema of its own now"
            else:
                yield from _keys(f"in the input of node {node!r}, the key", before, now)


def _nodes(old: Outline, new: Outline) -> Iterator[str]:
    lost = [name for name in old.nodes if name not in new.nodes]
    added = [name for name in new.nodes if name not in old.nodes]
    for name in lost:
        yield gone("node", name, added)
    for name in added:
        yield f"node {name!r} is new"
    stayed = [name for name in old.nodes if name in new.nodes]
    if stayed != [name for name in new.nodes if name in old.nodes]:
        yield "the nodes are declared in another order"
    for name in stayed:
        if (name in old.deferred) != (name in new.deferred):
            yield f"node {name!r} is {'no longer' if name in old.deferred else 'now'} deferred"
        yield from _subgraph(name, old.subgraphs.get(name), new.subgraphs.get(name))


def _subgraph(name: str, old: Outline | None, new: Outline | None) -> Iterator[str]:
    if old is None and new is not None:
        yield f"node {name!r} was a function and is a graph"
    elif old is not None and new is None:
        yield f"node {name!r} was a graph and is a function"
    elif old is not None and new is not None:
        yield from (f"in the graph {name!r}: {each}" for each in _difference(old, new))


def _changed(old: Iterable[str], new: Iterable[str]) -> Iterator[str]:
    before, now = list(old), list(new)
    for text in before:
        if text in now:
            now.remove(text)
        else:
            yield f"{text} is gone"
    yield from (f"{text} is new" for text in now)


def _edge_text(edge: tuple[str, str]) -> str:
    return f"the edge {node_text(edge[0])} -> {node_text(edge[1])}"


def _join_text(join: tuple[tuple[str, ...], str]) -> str:
    return f"the join of {', '.join(map(repr, join[0]))} -> {node_text(join[1])}"


def _branch_text(branch: tuple[str, tuple[tuple[str, str], ...]]) -> str:
    targets = ", ".join(f"{value}: {node_text(node)}" for value, node in branch[1])
    where = "to any node" if branch[1] == (("*", "*"),) else f"to {{{targets}}}"
    return f"the conditional edge after {node_text(branch[0])} {where}"


def _guard_text(guard: tuple[str, str, bool]) -> str:
    kind = "default" if guard[2] else "guarded"
    return f"the {kind} edge {node_text(guard[0])} -> {node_text(guard[1])}"


def _keys(what: str, old: Mapping[str, Key], new: Mapping[str, Key]) -> Iterator[str]:
    added = [key for key in new if key not in old]
    for key, before in old.items():
        now = new.get(key)
        if now is None:
            yield gone(what, key, added)
            continue
        if before.type != now.type:
            yield f"{what} {key!r} was {before.type} and is {now.type}"
        if before.reducer != now.reducer:
            had = f"the reducer {before.reducer}" if before.reducer else "no reducer"
            has = f"the reducer {now.reducer}" if now.reducer else "no reducer"
            yield f"{what} {key!r} had {had} and has {has}"
        if before.kind != now.kind:
            yield f"{what} {key!r} was {before.kind or 'a plain key'} and is {now.kind or 'a plain key'}"
    yield from (f"{what} {key!r} is new" for key in added)
