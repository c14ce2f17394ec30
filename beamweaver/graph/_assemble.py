"""From what was declared to what a compiled graph has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, UnsetType

from beamweaver.graph._handlers import RUN, handler_of
from beamweaver.graph._signatures import CannotCall, is_async
from beamweaver.graph._validate import breakpoint_faults
from beamweaver.graph.migrations import migration_faults
from beamweaver.graph.outline import outline_of
from beamweaver.graph.specs import Branch, Guard, Join, NodeSpec
from beamweaver.types import END, START, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from beamweaver.graph._declared import Declared, DeclaredJoin, DeclaredNode
    from beamweaver.graph.specs import Timeouts

__all__ = ["assemble", "compile_options"]

_DEFAULTS: Final[dict[str, Any]] = {
    "checkpointer": None,
    "failure_policy": "proceed",
    "step_timeout": None,
    "run_timeout": None,
    "interrupt_before": (),
    "interrupt_after": (),
    "max_concurrency": None,
    "recursion_limit": 100,
    "cache": None,
    "migrations": None,
    "on_failure": None,
    "strict": None,
}


def compile_options(
    declared: Declared, options: dict[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """The options of `compile` in their stored form, and the faults of those that are unfit."""
    faults: list[str] = []
    values = {**_DEFAULTS, **options}
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
    nodes = [node.name for node in declared.nodes]
    for name in ("interrupt_before", "interrupt_after"):
        faults.extend(breakpoint_faults(name, values[name], nodes))
        values[name] = _breakpoints(values[name], nodes)
    faults.extend(_handled(values))
    faults.extend(migration_faults(values["migrations"] or {}, declared.version, nodes))
    values["migrations"] = values["migrations"] or {}
    if not isinstance(values["strict"], bool | None):
        faults.append(
            f"strict is {values['strict']!r}; give True, False, or None for the runtime's"
        )
    return values, faults


def _breakpoints(given: Any, nodes: list[str]) -> frozenset[str]:
    if given == "*":
        return frozenset(nodes)
    if not isinstance(given, (list, tuple, set, frozenset)):
        return frozenset()  # a fault, told already
    return frozenset(map(str, given))


def _handled(values: dict[str, Any]) -> list[str]:
    if values["on_failure"] is None:
        return []
    try:
        values["on_failure"] = handler_of(values["on_failure"], "on_failure", RUN)
    except CannotCall as error:
        return [str(error)]
    return []


def assemble(declared: Declared) -> dict[str, Any]:
    """Arguments of `CompiledGraph` that follow from declarations without faults."""
    nodes = _nodes(declared)
    edges = _edges(declared, nodes)
    joins = list(
        {join.key: join for join in map(_join, declared.joins) if join.target != END}.values()
    )
    branches = _branches(declared)
    guards = _guards(declared)
    outline = outline_of(
        nodes=nodes.values(),
        channels=declared.channels.values(),
        edges=edges,
        joins=joins,
        branches=branches,
        guards=guards,
        open_=declared.open,
    )
    return {
        "name": declared.name,
        "version": declared.version,
        "schema": declared.schema,
        "nodes": nodes,
        "channels": declared.channels,
        "edges": edges,
        "joins": _grouped((source, join) for join in joins for source in join.sources),
        "branches": _grouped((branch.source, branch) for branch in branches),
        "guards": _grouped((guard.source, guard) for guard in guards),
        "outline": outline,
        "fingerprint": outline.digest(),
        "ends": frozenset(
            edge.source for edge in declared.edges if edge.target == END and not edge.guarded
        ),
        "shape": declared.shape,
        "input_shape": declared.input_shape,
        "output_shape": declared.output_shape,
        "inputs": declared.inputs,
        "required": declared.required,
    }


def _timeouts(declared: Declared, node: DeclaredNode) -> Timeouts:
    return declared.timeout if isinstance(node.timeout, UnsetType) else node.timeout


def _nodes(declared: Declared) -> dict[str, NodeSpec]:
    return {
        node.name: NodeSpec(
            name=node.name,
            index=index,
            fn=node.fn,
            caller=node.caller,
            is_async=is_async(node.fn),
            retry=declared.retry if node.retry is UNSET else node.retry,
            timeout=_timeouts(declared, node)[0],
            idle=_timeouts(declared, node)[1],
            error_handler=(
                declared.error_handler if node.error_handler is UNSET else node.error_handler
            ),
            defer=node.defer,
            shape=node.shape,
            inputs=node.inputs,
            subgraph=node.subgraph,
            persistent=node.persistent,
            key=node.key,
            calls=node.calls,
            metadata=node.metadata,
            destinations=node.destinations,
            place=node.place,
        )
        for index, node in enumerate(declared.nodes)
    }


def _edges(declared: Declared, nodes: Iterable[str]) -> dict[str, tuple[str, ...]]:
    targets: dict[str, dict[str, None]] = {name: {} for name in (START, *nodes)}
    for edge in declared.edges:
        if edge.target != END and not edge.guarded:
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


def _guards(declared: Declared) -> list[Guard]:
    counts: dict[str, int] = {}
    guards: list[Guard] = []
    for edge in declared.edges:
        if not edge.guarded:
            continue
        ends = f"{edge.source}:{edge.target}"
        index = counts[ends] = counts.get(ends, -1) + 1
        guards.append(
            Guard(
                key=f"{ends}:{index}",
                source=edge.source,
                target=edge.target,
                when=edge.when,
                caller=edge.caller,
                is_async=edge.when is not None and is_async(edge.when),
                max_runs=edge.max_runs,
                default=edge.default,
                place=edge.place,
            )
        )
    return guards


def _grouped(pairs: Iterable[tuple[str, Any]]) -> dict[str, tuple[Any, ...]]:
    groups: dict[str, list[Any]] = {}
    for source, item in pairs:
        groups.setdefault(source, []).append(item)
    return {source: tuple(items) for source, items in groups.items()}
