"""The last steps of graphs inside of tasks: kept beside their results, and read back.

What a graph in a task came to is the result of the task, so its last step is no record. For its history what
is left is kept beside: the keys that do not come back, and the writes that did. Both are as small as what
the step wrote. A graph of one step has no other record: what it began with is what its node saw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from beamweaver.checkpoint.entries import Inner, Left, Memo
from beamweaver.checkpoint.records import encode_record
from beamweaver.engine._inside import start_values
from beamweaver.engine.fold import fold_entries
from beamweaver.engine.kept import is_kept, unpacked
from beamweaver.engine.merge import with_initial
from beamweaver.engine.rows import values_of
from beamweaver.engine.state import OpenStep
from beamweaver.graph.channels import MISSING
from beamweaver.graph.subgraphs import comes_back, is_part, put_together

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from beamweaver.checkpoint.entries import Entry, WriteRow
    from beamweaver.engine._child import Child
    from beamweaver.engine.env import Env
    from beamweaver.engine.state import InnerState, RunState, Task, Write
    from beamweaver.graph.compiled import CompiledGraph

__all__ = ["begin_unrecorded", "end_at", "left_by", "left_by_call", "lefts_in"]


def left_by(
    child: Child, position: int, back: tuple[Write, ...], outer: CompiledGraph
) -> tuple[Entry, ...]:
    """What is kept of the last step of a graph that is a node.

    Args:
        child: Its machine, which has ended.
        position: The task's.
        back: What came back from it, as writes of the graph around.
        outer: The graph around.
    """
    told: list[WriteRow] = []
    for write in back:
        channel = outer.channels.get(write.channel)
        if write.data and comes_back(channel):
            start = child.state.start.get(write.channel, MISSING)
            whole = write.overwrite or not is_part(channel, start, write.value)
            told.append((write.channel, write.data, whole))
    assert child.outer is not None, "it ran inside of another machine"
    seen = not child.outer.state.step.era
    return _left(child, position, {row[0] for row in told}, tuple(told), seen=seen)


def left_by_call(child: Child, position: int, told: Collection[str]) -> tuple[Entry, ...]:
    """What is kept of the last step of a graph that was called.

    Args:
        child: Its machine, which has ended.
        position: The task's.
        told: The keys that are in the result of the call.
    """
    return _left(child, position, told, (), seen=False)


def _left(
    child: Child, position: int, told: Collection[str], back: tuple[WriteRow, ...], *, seen: bool
) -> tuple[Entry, ...]:
    state, closing = child.state, child.closing
    assert closing is not None, "what is complete was closed by a step"
    if closing.source == "input":
        return ()  # no node has run
    own = {k: v for k, v in closing.writes.items() if k not in told and not is_kept(k)}
    inside = tuple([entry for entry in child.lefts if type(entry) is Left])
    left = Left(position, closing.step, own, back, state.key, inside=inside)
    opening = state.opening
    if opening is not None:
        if seen:
            assert opening.checkpoint is not None, "a run opens with a checkpoint"
            without = msgspec.structs.replace(opening.checkpoint, writes={})
            opening = msgspec.structs.replace(opening, checkpoint=without)
        left = msgspec.structs.replace(left, opening=encode_record(opening), as_seen=seen)
    return (left,)


def lefts_in(dirty: Iterable[object]) -> tuple[Entry, ...]:
    """What graphs in the tasks of a step left, for the commit that ends the step; a call is stored before."""
    return tuple([item for item in dirty if type(item) is Left and not item.key])


def begin_unrecorded(state: RunState, task: Task, left: Left, env: Env) -> InnerState | None:
    """A graph of one step before that step; None if the node is no graph any more.

    Args:
        state: The graph around, at that moment.
        task: The task.
        left: What is kept of the step.
        env: Of the graph around.
    """
    fold_entries(state, (Inner(left.task, left.opening, left.key),), env)
    inner = (task.inner or {}).get(left.key)
    if inner is not None and left.as_seen:
        view = {**with_initial(env.graph, state.values), **(task.update or {})}
        start_values(inner, state, task, view, env)
    return inner


def end_at(inner: InnerState, left: Left, after: Entry | None, env: Env) -> None:
    """Bring a graph to its end.

    Args:
        inner: The graph, before its last step.
        left: What is kept of that step.
        after: The entry that follows: the result, where it is a call.
        env: Of that graph.
    """
    values: dict[str, Any] = dict(inner.values)
    for name, data, whole in left.back:
        channel = inner.outer.channels.get(name)
        value, start = env.around.decode(name, data), inner.start.get(name, MISSING)
        values[name] = value if whole else put_together(channel, start, value)
    for name, data in left.own.items():
        if not data:
            values.pop(name, None)
    values.update(values_of(left.own, env))
    if type(after) is Memo:
        values.update(unpacked(after.value, env))
    inner.values = values if inner.unread else with_initial(inner.graph, values)
    inner.step, inner.deferred = OpenStep(left.step + 1, []), ()
