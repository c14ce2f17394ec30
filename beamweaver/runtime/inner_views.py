"""Graphs that run inside of tasks, as people see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from beamweaver.engine.ids import name_in
from beamweaver.engine.kept import place_at, unpacked
from beamweaver.engine.state import InnerState
from beamweaver.runtime.namespaces import graphs_at
from beamweaver.runtime.reading import (
    pending_writes,
    values_and_fault,
    view_of_task,
    waiting_nodes,
)
from beamweaver.types import START

if TYPE_CHECKING:
    from beamweaver.engine.env import Env
    from beamweaver.engine.state import RunState, Task
    from beamweaver.types import TaskView, ThreadState

__all__ = ["inner_at", "with_subgraphs"]

_UNKNOWN: Final = (
    "which graph it is that the function calls is not known here, so the values are plain data, as its last "
    "step left them; say it at the node: add_node(…, calls=[graph])"
)


def inner_at(
    outer: ThreadState, state: RunState, env: Env, namespace: tuple[str, ...], *, kept: bool = True
) -> ThreadState | None:
    """How the graph at a namespace stands: the first that has begun there, else what a persistent one kept.

    Args:
        outer: The thread, which tells what belongs to all of it.
        state: The same, folded.
        env: Decodes the thread's values.
        namespace: The path of nodes.
        kept: Whether what a persistent one kept is shown where none has begun.
    """
    found = _find(state, namespace)
    if found is not None:
        return _inner_state(outer, found)
    data = (state.kept or {}).get(place_at(namespace)) if kept else None
    if data is None:
        return None
    for graph in graphs_at(env.graph, namespace):
        env = env.inside(graph)
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
        for inner in (task.inner or {}).values():
            found = _find(inner, namespace[1:]) if inner.names[-1] == namespace[0] else None
            if found is not None:
                return found
    return None


def _inner_state(outer: ThreadState, state: InnerState) -> ThreadState:
    if state.unread:
        values, merge_error = dict(state.values), None
    else:
        values, merge_error = values_and_fault(state.graph, state)
    tasks = tuple(view_of_task(state, task) for task in state.step.tasks if task.node != START)
    metadata: dict[str, Any] = {
        "graph": name_in(state.key) or (state.names[-1] if state.unread else state.graph.name),
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
        pending_writes=pending_writes(state),
        metadata=metadata,
        step=state.step.number - 1,
        merge_error=merge_error,
        graph_error=_UNKNOWN if state.unread else outer.graph_error,
    )


def with_subgraphs(outer: ThreadState, state: RunState) -> ThreadState:
    """A state of which each task shows how the graph in it stands, at every depth."""
    tasks = [task for task in state.step.tasks if task.node != START]
    views = [_deep(outer, view, task) for view, task in zip(outer.tasks, tasks, strict=True)]
    return msgspec.structs.replace(outer, tasks=tuple(views))


def _deep(outer: ThreadState, view: TaskView, task: Task) -> TaskView:
    shown = {
        key: with_subgraphs(_inner_state(outer, inner), inner)
        for key, inner in (task.inner or {}).items()
    }
    subgraph = shown.pop("", None)
    return msgspec.structs.replace(view, subgraph=subgraph, calls=tuple(shown.values()))
