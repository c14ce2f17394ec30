"""Which tasks come next: edges, joins, gotos, routers and Sends of a finished step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamweaver.engine.state import Planned, Task
from beamweaver.errors import UnknownTarget
from beamweaver.types import START

if TYPE_CHECKING:
    from beamweaver.engine.state import OpenStep, RunState
    from beamweaver.graph.compiled import Branch, CompiledGraph

__all__ = ["Route", "Routes", "branches_to_take", "plan"]


class Route:
    """What the routers of one task chose."""

    __slots__ = ("sends", "targets")

    def __init__(self, targets: tuple[str, ...], sends: tuple[Planned, ...]) -> None:
        self.targets = targets
        self.sends = sends


Routes = dict[int, list[Route]]
"""Position of a task -> what each of its routers chose."""


def branches_to_take(graph: CompiledGraph, step: OpenStep) -> list[tuple[Task, Branch]]:
    """The routers that must run before the next tasks are known, in task order."""
    if not graph.branches:
        return []
    return [
        (task, branch)
        for task in step.tasks
        if task.result is not None and task.result.goto is None
        for branch in graph.branches.get(task.node, ())
    ]


def plan(
    graph: CompiledGraph, state: RunState, routes: Routes
) -> tuple[list[Task], dict[str, tuple[str, ...]]]:
    """The tasks of the next step in their order, and the joins as they then stand.

    A node runs once however many edges lead to it; every Send is a task of its own. Pulls come in
    declaration order, Sends by source task and index.

    Raises:
        UnknownTarget: A stored result goes to a node that the graph has lost.
    """
    step = state.step
    if len(step.tasks) == 1 and not routes and not step.amendments:
        fast = _plan_line(graph, state, step.tasks[0])
        if fast is not None:
            return fast
    pulled: set[str] = set()
    sends: list[Task] = []
    joins = state.joins
    for task in step.tasks:
        assert task.result is not None, f"task {task.node!r} is not finished"
        task_sends = list(task.result.sends)
        if task.result.goto is not None:
            pulled.update(task.result.goto)
        else:
            pulled.update(graph.edges.get(task.node, ()))
            joins = _arrive(graph, task.node, joins, pulled)
            for route in routes.get(task.position, ()):
                pulled.update(route.targets)
                task_sends.extend(route.sends)
        if task_sends:
            sends.extend(_send_tasks(graph, state.id_of(task), task_sends))
    for amendment in step.amendments:
        pulled.update(amendment.goto or ())
        source = f"amendment:{step.number}:{amendment.era}"
        sends.extend(_send_tasks(graph, source, amendment.sends))
    return [Task(name) for name in _in_order(graph, pulled)] + sends, joins


def _check(graph: CompiledGraph, name: str) -> None:
    """A stored goto or Send may be one of another version of the graph."""
    if name not in graph.nodes:
        raise UnknownTarget(
            f"a finished task goes to node {name!r}, which graph {graph.name!r} has not (any more): "
            "bring the node back and continue the thread, or restart the run",
            target=name,
        )


def _in_order(graph: CompiledGraph, pulled: set[str]) -> list[str]:
    """Nodes in the order of their declaration."""
    for name in pulled:
        _check(graph, name)
    return sorted(pulled, key=lambda name: graph.nodes[name].index)


def _plan_line(
    graph: CompiledGraph, state: RunState, task: Task
) -> tuple[list[Task], dict[str, tuple[str, ...]]] | None:
    """One task with static edges to at most one node and nothing else; None if it is more than that."""
    result = task.result
    if result is None or result.goto is not None or result.sends or task.node in graph.joins:
        return None
    targets = graph.edges.get(task.node, ())
    if len(targets) > 1:
        return None
    return ([Task(targets[0])] if targets else []), state.joins


def _arrive(
    graph: CompiledGraph, node: str, joins: dict[str, tuple[str, ...]], pulled: set[str]
) -> dict[str, tuple[str, ...]]:
    """The joins after `node` ended well; a full one fires into `pulled` and is empty again."""
    if node == START:
        return joins
    for join in graph.joins.get(node, ()):
        arrived = joins.get(join.key, ())
        if node not in arrived:
            arrived = (*arrived, node)
        joins = dict(joins)
        if len(arrived) == len(join.sources):
            joins.pop(join.key, None)
            pulled.add(join.target)
        else:
            joins[join.key] = arrived
    return joins


def _send_tasks(
    graph: CompiledGraph, source: str, sends: list[Planned] | tuple[Planned, ...]
) -> list[Task]:
    for send in sends:
        _check(graph, send.node)
    return [
        Task(send.node, source, index, send.update, send.data, send.timeout)
        for index, send in enumerate(sends)
    ]
