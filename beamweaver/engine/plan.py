"""Which tasks come next: edges, joins, gotos, routers, guards, Sends and deferred tasks of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from beamweaver.engine.state import Planned, Task
from beamweaver.errors import UnknownTarget
from beamweaver.graph.guards import choose, guards_to_ask
from beamweaver.types import START

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from beamweaver.engine.state import OpenStep, RunState
    from beamweaver.graph.compiled import Branch, CompiledGraph, Guard

__all__ = ["Exit", "Next", "Route", "Routes", "exits_of", "must_ask", "plan", "unasked"]


class Exit(NamedTuple):
    """A finished task whose next nodes are chosen: by routers, by guarded edges, or by both."""

    task: Task
    branches: Sequence[Branch]
    guards: Sequence[Guard]


class Route(NamedTuple):
    """What one router, or the guarded edges of one task, chose."""

    targets: tuple[str, ...]
    sends: tuple[Planned, ...] = ()


class Routes:
    """What the routers and guards of a step chose.

    Attributes:
        spent: What is spent of the budgets of guarded edges after these choices.
    """

    __slots__ = ("_taken", "spent")

    def __init__(self, spent: Mapping[str, int]) -> None:
        self.spent = spent
        self._taken: dict[int, list[Route]] = {}

    def of(self, task: Task) -> Sequence[Route]:
        """What was chosen for a task."""
        return self._taken.get(task.position, ())

    def add(self, task: Task, route: Route) -> None:
        """A router chose."""
        self._taken.setdefault(task.position, []).append(route)

    def cross(self, task: Task, guards: Sequence[Guard], answers: Mapping[str, bool]) -> None:
        """The guarded edges of a task, with what their predicates said; tasks come in their order."""
        choice = choose(guards, answers, self.spent)
        self.spent = choice.spent
        self.add(task, Route(choice.targets))


class Next(msgspec.Struct, eq=False):
    """What follows a step.

    Attributes:
        tasks: Of the next step, in their order; empty when the run is complete.
        joins: Join -> sources that arrived.
        deferred: Tasks that wait until there are no others.
        spent: Guarded edge with a budget -> how often the run took it.
    """

    tasks: list[Task]
    joins: dict[str, tuple[str, ...]]
    deferred: tuple[Task, ...] = ()
    spent: Mapping[str, int] = {}


def exits_of(graph: CompiledGraph, step: OpenStep) -> list[Exit]:
    """The finished tasks whose next nodes are chosen, in task order. A goto chose already."""
    if not graph.routed:
        return []
    branches, guards = graph.branches, graph.guards
    exits = [
        Exit(task, branches.get(task.node, ()), guards.get(task.node, ()))
        for task in step.tasks
        if (task.node in branches or task.node in guards)
        and task.result is not None
        and task.result.goto is None
    ]
    return [each for each in exits if each.branches or each.guards]


def must_ask(exits: Iterable[Exit], spent: Mapping[str, int]) -> bool:
    """Whether a router or predicate has to run; budgets and defaults alone need none."""
    return any(each.branches or guards_to_ask(each.guards, spent) for each in exits)


def unasked(exits: Iterable[Exit], spent: Mapping[str, int]) -> Routes:
    """The choice where nobody has to be asked."""
    routes = Routes(spent)
    for each in exits:
        routes.cross(each.task, each.guards, {})
    return routes


def plan(graph: CompiledGraph, state: RunState, routes: Routes | None) -> Next:
    """What follows the open step.

    A node runs once however many edges lead to it; every Send is a task of its own. Pulls come in
    declaration order, Sends by source task and index.

    Raises:
        UnknownTarget: A stored result goes to a node that the graph has lost.
    """
    step = state.step
    plain = routes is None and not graph.has_deferred and not state.deferred
    if plain and len(step.tasks) == 1 and not step.amendments:
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
            for route in () if routes is None else routes.of(task):
                pulled.update(route.targets)
                task_sends.extend(route.sends)
        if task_sends:
            sends.extend(_send_tasks(graph, state.id_of(task), task_sends))
    for amendment in step.amendments:
        pulled.update(amendment.goto or ())
        source = f"amendment:{step.number}:{amendment.era}"
        sends.extend(_send_tasks(graph, source, amendment.sends))
    tasks = [Task(name) for name in _in_order(graph, pulled)] + sends
    spent = state.spent if routes is None else routes.spent
    if plain:
        return Next(tasks, joins, (), spent)
    return Next(*_set_aside(graph, state.deferred, tasks, joins), spent)


def _set_aside(
    graph: CompiledGraph,
    waiting: Sequence[Task],
    tasks: list[Task],
    joins: dict[str, tuple[str, ...]],
) -> tuple[list[Task], dict[str, tuple[str, ...]], tuple[Task, ...]]:
    """Deferred tasks wait while there are others; without others all of them start.

    A deferred node that is reached again while it waits runs once; every Send counts.
    """
    nodes = graph.nodes
    now = [task for task in tasks if not nodes[task.node].defer]
    held = [*waiting, *(task for task in tasks if nodes[task.node].defer)]
    if now:
        pulls = {task.node: task for task in reversed(held) if task.source is None}
        kept = [t for t in held if t.source is not None or pulls[t.node] is t]
        return now, joins, tuple(kept)
    pulled = {task.node for task in held if task.source is None}
    sent = [task for task in held if task.source is not None]
    for task in sent:
        _check(graph, task.node)
    return [Task(name) for name in _in_order(graph, pulled)] + sent, joins, ()


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


def _plan_line(graph: CompiledGraph, state: RunState, task: Task) -> Next | None:
    """One task with static edges to at most one node and nothing else; None if it is more than that."""
    result = task.result
    if result is None or result.goto is not None or result.sends or task.node in graph.joins:
        return None
    targets = graph.edges.get(task.node, ())
    if len(targets) > 1:
        return None
    return Next([Task(targets[0])] if targets else [], state.joins, (), state.spent)


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
        Task(send.node, source, index, send.update, send.data, send.timeout, idle=send.idle)
        for index, send in enumerate(sends)
    ]
