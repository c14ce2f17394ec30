"""From what was declared to what a compiled graph has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from beamweaver.graph._signatures import is_async
from beamweaver.graph.compiled import Branch, Join, NodeSpec
from beamweaver.graph.fingerprint import fingerprint
from beamweaver.types import END, START, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from beamweaver.graph._declared import Declared, DeclaredJoin

__all__ = ["assemble", "compile_options"]


def compile_options(options: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The options of `compile` in their stored form, and the faults of those that are unfit."""
    faults: list[str] = []
    values = {
        "checkpointer": None,
        "failure_policy": "proceed",
        "step_timeout": None,
        "run_timeout": None,
        "max_concurrency": None,
        "recursion_limit": 100,
        **options,
    }
    for name in ("step_timeout", "run_timeout"):
        try:
            values[name] = seconds(values[name], name)
        except ValueError as error:
            faults.append(str(error))
    if values["failure_policy"] not in ("proceed", "panic"):
        faults.append(f"failure_policy is {values['failure_policy']!r}; give 'proceed' or 'panic'")
    for name, optional in (("max_concurrency", True), ("recursion_limit", False)):
        value = values[name]
        if not (optional and value is None) and (type(value) is not int or value < 1):
            or_none = ", or None for no limit" if optional else ""
            faults.append(f"{name} is {value!r}; give an int of 1 or more{or_none}")
    return values, faults


def assemble(declared: Declared) -> dict[str, Any]:
    """Arguments of `CompiledGraph` that follow from declarations without faults."""
    nodes = _nodes(declared)
    edges = _edges(declared, nodes)
    joins = list(
        {join.key: join for join in map(_join, declared.joins) if join.target != END}.values()
    )
    branches = _branches(declared)
    return {
        "name": declared.name,
        "nodes": nodes,
        "channels": declared.channels,
        "edges": edges,
        "joins": _grouped((source, join) for join in joins for source in join.sources),
        "branches": _grouped((branch.source, branch) for branch in branches),
        "fingerprint": fingerprint(
            nodes=nodes,
            channels=declared.channels,
            edges=edges,
            joins=joins,
            branches=branches,
            open_=declared.open,
        ),
    }


def _nodes(declared: Declared) -> dict[str, NodeSpec]:
    return {
        node.name: NodeSpec(
            name=node.name,
            index=index,
            fn=node.fn,
            caller=node.caller,
            is_async=is_async(node.fn),
            retry=declared.retry if node.retry is UNSET else node.retry,
            timeout=declared.timeout if node.timeout is UNSET else node.timeout,
            metadata=node.metadata,
            destinations=node.destinations,
            place=node.place,
        )
        for index, node in enumerate(declared.nodes)
    }


def _edges(declared: Declared, nodes: Iterable[str]) -> dict[str, tuple[str, ...]]:
    targets: dict[str, dict[str, None]] = {name: {} for name in (START, *nodes)}
    for edge in declared.edges:
        if edge.target != END:
            targets[edge.source][edge.target] = None
    return {source: tuple(found) for source, found in targets.items()}


def _join(join: DeclaredJoin) -> Join:
    key = f"{'|'.join(sorted(join.sources))}:{join.target}"
    return Join(key=key, sources=join.sources, target=join.target)


def _branches(declared: Declared) -> list[Branch]:
    counts: dict[str, int] = {}
    branches: list[Branch] = []
    for branch in declared.branches:
        index = counts[branch.source] = counts.get(branch.source, -1) + 1
        branches.append(
            Branch(
                source=branch.source,
                index=index,
                router=branch.router,
                caller=branch.caller,
                is_async=is_async(branch.router),
                targets=branch.targets,
                place=branch.place,
            )
        )
    return branches


def _grouped(pairs: Iterable[tuple[str, Any]]) -> dict[str, tuple[Any, ...]]:
    groups: dict[str, list[Any]] = {}
    for source, item in pairs:
        groups.setdefault(source, []).append(item)
    return {source: tuple(items) for source, items in groups.items()}
