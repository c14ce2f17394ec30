"""Edits of a graph inside of a task: entries of the open step around it, as its own machine writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from beamweaver.checkpoint.entries import Inner
from beamweaver.checkpoint.records import Checkpoint, Record, encode_record
from beamweaver.engine.kept import stored
from beamweaver.engine.merge import Merged, merge
from beamweaver.engine.plan import Next, exits_of, must_ask, plan, unasked
from beamweaver.engine.rows import edited_row, task_rows
from beamweaver.engine.state import OpenStep, Result, Task
from beamweaver.engine.unread import read
from beamweaver.errors import InvalidCall
from beamweaver.graph._text import listed, nearest
from beamweaver.types import END, START

if TYPE_CHECKING:
    from collections.abc import Callable

    from beamweaver.checkpoint.entries import Edited
    from beamweaver.engine.env import Env
    from beamweaver.engine.state import Edit, InnerState, RunState

    FindTask: TypeAlias = Callable[[RunState, Edit], Task | None]

__all__ = ["inner_edit"]


def inner_edit(draft: RunState, edit: Edit, env: Env, find: FindTask) -> Inner:
    """The entry that edits a graph inside of a task; folding it makes the edit.

    Args:
        draft: The thread; the graph in it may be left half edited.
        edit: The edit, with the path to the graph.
        env: Of the thread.
        find: The task of a step that an edit stands for.

    Raises:
        InvalidCall: No such graph has begun, or the edit cannot be made there.
        InvalidUpdate, ReducerFailed: The step does not merge with it.
    """
    path, env = _path(draft, edit, env)
    task, state = path[-1]
    entry = _record(task, state, _change(state, edit, env, find), env)
    for task, state in path[-2::-1]:
        entry = _record(task, state, (None, (entry,)), env)
    return entry


def _path(draft: RunState, edit: Edit, env: Env) -> tuple[list[tuple[Task, InnerState]], Env]:
    """The tasks and graphs that lead to the one that is edited, and the env of that one."""
    found: list[tuple[Task, InnerState]] = []
    state, namespace = draft, edit.namespace
    for name, graph in zip(namespace, edit.graphs, strict=True):
        begun = [
            (task, inner)
            for task in state.step.tasks
            if task.result is None
            for inner in (task.inner or {}).values()
            if inner.names[-1] == name
        ]
        if not begun:
            raise InvalidCall(
                f"namespace is {namespace!r}, and in the open step of thread {draft.thread_id!r} no graph "
                f"{name!r} has begun and stored anything: update the thread itself (namespace=()), or, for "
                "what a graph keeps, have one of its own nodes write it",
                thread_id=draft.thread_id,
            )
        found.append(begun[0])
        state, env = begun[0][1], env.inside(graph)
        if begun[0][1].unread:
            read(begun[0][1], graph, env)
    return found, env


_Change: TypeAlias = "tuple[Checkpoint | None, tuple[Edited | Inner, ...]]"


def _record(task: Task, state: InnerState, change: _Change, env: Env) -> Inner:
    checkpoint, entries = change
    record = Record(state.seq, 0, env.now_us(), checkpoint, entries)
    return Inner(task.position, encode_record(record), state.key)


def _change(state: InnerState, edit: Edit, env: Env, find: FindTask) -> _Change:
    """What is to be recorded of the innermost graph."""
    given = edit.prepared
    result = Result(given.writes, given.goto, given.sends)
    if edit.as_node in (START, END):
        raise InvalidCall(
            f"as_node is {edit.as_node!r}, and the graph at {edit.namespace!r} has begun and not ended; give "
            "one of its nodes",
            thread_id=state.thread_id,
        )
    if edit.as_node is None:
        return None, (edited_row(-1, result),)
    task = find(state, edit)
    if task is not None:
        return None, (edited_row(-1 if task.result is not None else task.position, result),)
    if edit.as_node not in state.graph.nodes:
        raise InvalidCall(
            f"as_node is {edit.as_node!r}, which is no node of graph {state.graph.name!r}."
            f"{nearest(edit.as_node, state.graph.nodes)} Its nodes: {listed(state.graph.nodes)}",
            thread_id=state.thread_id,
        )
    return _as_node(state, edit.as_node, result, env)


def _as_node(state: InnerState, node: str, result: Result, env: Env) -> _Change:
    """The open step is left with what was finished; the values count as written by a node in the next one.

    Where routers are to be asked, or the graph would end, its own machine goes on from that node's result.
    """
    graph, before = state.graph, state.step
    left = merge(graph, state.values, before, before.era + 1)
    step = OpenStep(before.number + 1, [Task(node, result=result)])
    whole = merge(graph, left.values, step)
    graph.check_state(whole.values)
    exits = exits_of(graph, step)
    following = None
    if not must_ask(exits, state.spent):
        values, state.step = state.values, step
        state.values = whole.values
        following = plan(graph, state, unasked(exits, state.spent) if exits else None)
        state.values, state.step = values, before
    if following is not None and following.tasks:
        changed = {**left.changed, **whole.changed}
        writes = _encoded(state, Merged(whole.values, changed), env)
        return _checkpoint(state, step.number, writes, following, node), ()
    alone = Next(step.tasks, state.joins, state.deferred, state.spent)
    found = _checkpoint(state, step.number - 1, _encoded(state, left, env), alone, node)
    return found, (edited_row(0, result),)


def _encoded(state: InnerState, merged: Merged, env: Env) -> dict[str, bytes]:
    """What changed, and what persistent graphs keep that ended in the step that is left."""
    kept: dict[str, bytes] = {}
    for task in state.step.tasks:
        kept.update((task.result and task.result.kept) or {})
    return stored(kept) | {
        name: env.encode(name, merged.values[name]) if data is None else data
        for name, data in merged.changed.items()
        if name not in state.graph.unstored
    }


def _checkpoint(
    state: InnerState, number: int, writes: dict[str, bytes], following: Next, node: str
) -> Checkpoint:
    made = Checkpoint(
        number,
        "update",
        "",
        -1,
        writes,
        None,
        task_rows(following.tasks),
        number + 1,
        following.joins,
        state.executed,
        "",
    )
    return msgspec.structs.replace(
        made,
        spent=dict(following.spent),
        deferred=task_rows(following.deferred),
        nodes=(node,),
        version=state.graph.version,
    )
