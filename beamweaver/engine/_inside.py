"""How a graph inside of a task begins, and what its end is to the graph around."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beamweaver.engine.kept import kept_inside, kept_outside, packed, part_of, place_of, unpacked
from beamweaver.engine.merge import with_initial
from beamweaver.engine.state import InnerState, OpenStep, Result, Task, Write
from beamweaver.graph.subgraphs import entering, leaving
from beamweaver.graph.updates import normalize
from beamweaver.types import START

if TYPE_CHECKING:
    from collections.abc import Mapping

    from beamweaver.engine.effects import Attempt
    from beamweaver.engine.env import Env
    from beamweaver.engine.state import RunState
    from beamweaver.graph.compiled import CompiledGraph

__all__ = ["begun", "bring_unstored", "end_of", "start_task"]


def begun(around: RunState, attempt: Attempt, outer: CompiledGraph, env: Env) -> InnerState:
    """The state of the graph that an attempt's node is: as it is known, or at its beginning.

    Args:
        around: The state of the graph around.
        attempt: The attempt.
        outer: The graph around.
        env: Of the graph.

    Raises:
        InvalidUpdate: A value that the graph is to begin with is of another type than it declares, or the
            key of a persistent one is unfit.
        Exception: Whatever the function raised that gives that key.
        DeserializationError: What a persistent one kept cannot be read back.
    """
    task, node = attempt.task, attempt.node
    graph = node.subgraph
    assert graph is not None, "only a graph has a state of its own"
    known = (task.inner or {}).get("")
    if known is not None:
        bring_unstored(known, attempt.view)
        return known
    part = part_of(node, outer, attempt.view) if node.persistent else ""
    state = InnerState(around, task, "", graph, outer, part)
    start_values(state, around, task, attempt.view, env.around)
    if outer.open:
        _check(graph, state.start, node.name)
    if graph.required:
        graph.check_complete(state.start)
    state.step = OpenStep(0, [start_task()])
    task.inner = {"": state}
    return state


def start_values(
    state: InnerState, around: RunState, task: Task, view: Mapping[str, Any], env: Env
) -> None:
    """Give a graph inside of a task the values that it begins with.

    Args:
        state: Its state.
        around: The state of the graph around.
        task: The task.
        view: What the node sees of the graph around.
        env: Of the graph around.

    Raises:
        DeserializationError: What a persistent one kept cannot be read back.
    """
    graph, outer = state.graph, state.outer
    kept = None
    if around.kept is not None and outer.nodes[task.node].persistent:
        kept = around.kept.get(place_of(task.node, state.part))
    own = {} if kept is None else unpacked(kept, env.inside(graph))
    if outer.managed:
        computed = {channel.name for channel in outer.managed}
        view = {key: value for key, value in view.items() if key not in computed}
    state.start = own | entering(graph, view)
    state.values = with_initial(graph, dict(state.start))


def bring_unstored(state: InnerState, view: Mapping[str, Any]) -> None:
    """What no store keeps may be lost; the graph around brings it again."""
    lost = state.graph.unstored - state.values.keys()
    if lost:
        given = entering(state.graph, view)
        state.values = {**state.values, **{key: given[key] for key in lost & given.keys()}}


def start_task() -> Task:
    """The task with which a graph inside of a task begins."""
    task = Task(START)
    task.result = Result(())
    return task


def _check(graph: CompiledGraph, values: Mapping[str, Any], node: str) -> None:
    """A graph without a schema may have any value under a key for which the other one declares a type."""
    for key, value in values.items():
        channel = graph.channels.get(key)
        if channel is not None:
            channel.check_value(value, node=node)


def end_of(
    state: InnerState, attempt: Attempt, outer: CompiledGraph, env: Env, commands: list[Result]
) -> tuple[Result, tuple[Write, ...]]:
    """What the end of a graph inside of a task is as the task's result.

    Args:
        state: The state of the graph.
        attempt: The attempt of the node that it is.
        outer: The graph around.
        env: Of the graph around.
        commands: What its last step commands the graph around.

    Returns:
        The result, and those of its writes that are what the graph left.

    Raises:
        InvalidUpdate: What it wrote does not fit the graph around.
        SerializationError: A value cannot be stored.
    """
    update = leaving(state.graph, outer, state.start, state.values, state.written)
    answer = normalize(outer, attempt.node, update)
    writes = [
        Write(channel, value, env.encode(channel, value), overwrite)
        for channel, value, overwrite in answer.writes
    ]
    back = tuple(writes)
    goto: list[str] | None = None
    result = Result(())
    for command in commands:
        writes.extend(command.writes)
        result.sends = (*result.sends, *command.sends)
        if command.goto is not None:
            goto = [*(goto or ()), *command.goto]
    result.writes = tuple(writes)
    result.goto = None if goto is None else tuple(dict.fromkeys(goto))
    result.kept = _kept(state, attempt, env)
    return result, back


def _kept(state: InnerState, attempt: Attempt, env: Env) -> dict[str, bytes] | None:
    """What is new of what persistent graphs keep, in the terms of the graph around."""
    place = place_of(attempt.task.node, state.part)
    found: dict[str, bytes] = {}
    if attempt.node.persistent:
        found[place] = packed(state.values, env.inside(state.graph).encode)
    assert attempt.owner is not None, "a graph runs in a machine"
    before = kept_inside(attempt.owner.state.kept, place) or {}
    mine = state.kept or {}
    changed = {key: data for key, data in mine.items() if before.get(key) != data}
    return (found | kept_outside(changed, place)) or None
