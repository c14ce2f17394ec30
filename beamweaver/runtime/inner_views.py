"""Graphs that run inside of tasks, as people see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from beamweaver.engine.kept import place_at, unpacked
from beamweaver.engine.state import InnerState
from beamweaver.errors import InvalidCall
from beamweaver.graph._text import listed, nearest
from beamweaver.runtime.reading import values_and_fault, view_of_task, waiting_nodes
from beamweaver.types import START

if TYPE_CHECKING:
    from collections.abc import Sequence

    from beamweaver.engine.env import Env
    from beamweaver.engine.state import RunState, Task
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.types import TaskView, ThreadState

__all__ = ["check_namespace", "inner_at", "with_subgraphs"]


def check_namespace(graph: CompiledGraph, namespace: Sequence[str]) -> tuple[str, ...]:
    """A path of nodes that are graphs, the outermost first.

    Raises:
        InvalidCall: It is none of this graph.
    """
    if isinstance(namespace, str) or not all(isinstance(name, str) for name in namespace):
        raise InvalidCall(
            f"namespace is {namespace!r}; give a tuple of nodes, the outermost first, such as ('child',)"
        )
    for name in namespace:
        node = graph.nodes.get(name.partition(":")[0])
        if node is None or node.subgraph is None:
            known = [each.name for each in graph.nodes.values() if each.subgraph is not None]
            raise InvalidCall(
                f"namespace names {name!r}, and graph {graph.name!r} has no such node that is a graph."
                f"{nearest(name, known)} Those that are: {listed(known)}"
            )
        graph = node.subgraph
    return tuple(namespace)


def inner_at(
    outer: ThreadState, state: RunState, env: Env, namespace: tuple[str, ...]
) -> ThreadState | None:
    """How the graph at a namespace stands: the first that has begun there, else what a persistent one kept.

    Args:
        outer: The thread, which tells what belongs to all of it.
        state: The same, folded.
        env: Decodes the thread's values.
        namespace: The path of nodes.
    """
    found = _find(state, namespace)
    if found is not None:
        return _inner_state(outer, found)
    data = (state.kept or {}).get(place_at(namespace))
    if data is None:
        return None
    for name in namespace:
        subgraph = env.graph.nodes[name.partition(":")[0]].subgraph
        assert subgraph is not None, "the namespace was checked"
        env = env.inside(subgraph)
    return msgspec.structs.replace(
        outer,
        values=env.graph.shape.make(unpacked(data, env)),
        next=(),
        tasks=(),
        interrupts=(),
        pending_writes=(),
        metadata={"graph": env.graph.name, "source": "kept", "namespace": namespace},
    )


def _find(state: RunState, namespace: tuple[str, ...]) -> InnerState | None:
    if not namespace:
        return state if isinstance(state, InnerState) else None
    for task in state.step.tasks:
        inner = (task.inner or {}).get("")
        if inner is not None and inner.names[-1] != namespace[0]:
            inner = None
        found = None if inner is None else _find(inner, namespace[1:])
        if found is not None:
            return found
    return None


def _inner_state(outer: ThreadState, state: InnerState) -> ThreadState:
    values, merge_error = values_and_fault(state.graph, state)
    tasks = tuple(view_of_task(state, task) for task in state.step.tasks if task.node != START)
    metadata: dict[str, Any] = {
        "graph": state.graph.name,
        "source": "loop" if state.step.number > 1 else "input",
        "step": state.step.number - 1,
        "namespace": state.names,
    }
    return msgspec.structs.replace(
        outer,
        values=values,
        next=waiting_nodes(state),
        tasks=tasks,
        interrupts=tuple(i for task in tasks for i in task.interrupts),
        pending_writes=tuple(
            (state.id_of(task), write.channel, write.value)
            for task in state.step.tasks
            if task.result is not None and task.node != START
            for write in task.result.writes
        ),
        metadata=metadata,
        step=state.step.number - 1,
        merge_error=merge_error,
    )


def with_subgraphs(outer: ThreadState, state: RunState) -> ThreadState:
    """A state of which each task shows how the graph in it stands, at every depth."""
    tasks = [task for task in state.step.tasks if task.node != START]
    views = [_deep(outer, view, task) for view, task in zip(outer.tasks, tasks, strict=True)]
    return msgspec.structs.replace(outer, tasks=tuple(views))


def _deep(outer: ThreadState, view: TaskView, task: Task) -> TaskView:
    inner = (task.inner or {}).get("")
    if inner is None:
        return view
    shown = with_subgraphs(_inner_state(outer, inner), inner)
    return msgspec.structs.replace(view, subgraph=shown)
