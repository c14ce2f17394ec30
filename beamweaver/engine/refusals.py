"""Refusals that several places make, and long ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamweaver.errors import (
    InvalidCall,
    Quarantined,
    ThreadBusy,
    UnfinishedRun,
    UnknownTarget,
    WrongGraph,
)
from beamweaver.types import START

if TYPE_CHECKING:
    from beamweaver.engine.state import RunState, Task

__all__ = [
    "busy",
    "lost_node",
    "no_checkpoint",
    "nothing_to_rerun",
    "quarantined",
    "unfinished",
    "wrong_graph",
]


def busy(state: RunState, what: str) -> ThreadBusy:
    """The refusal of a call that does not wait for the run that executes."""
    return ThreadBusy(
        f"thread {state.thread_id!r} runs (run {state.run.names[0]!r}) and {what}",
        thread_id=state.thread_id,
        run_id=state.run.names[0],
    )


def no_checkpoint(thread_id: str, checkpoint: str | None) -> InvalidCall:
    """The refusal of a call from a checkpoint that is not there."""
    which = "no checkpoint" if checkpoint is None else f"no checkpoint {checkpoint!r} (any more)"
    return InvalidCall(
        f"thread {thread_id!r} has {which}; take one from get_state_history",
        thread_id=thread_id,
        checkpoint_id=checkpoint,
    )


def quarantined(thread_id: str, reason: str) -> Quarantined:
    """The refusal of a call on a quarantined thread."""
    return Quarantined(
        f"thread {thread_id!r} is quarantined: {reason}; release() it when the cause is mended",
        thread_id=thread_id,
        reason=reason,
    )


def unfinished(state: RunState) -> UnfinishedRun:
    """The refusal of a call that wants no unfinished run."""
    return UnfinishedRun(
        f"thread {state.thread_id!r} has an unfinished run ({state.status}) and the call said "
        "on_unfinished='reject'; continue it with invoke(None), or use 'restart'",
        thread_id=state.thread_id,
        status=state.status,
    )


def wrong_graph(thread_id: str, belongs: str, asked: str) -> WrongGraph:
    """The refusal of a call through another graph than the thread's."""
    return WrongGraph(
        f"thread {thread_id!r} belongs to graph {belongs!r}, not to {asked!r}; call it through that "
        "graph, or use another thread id",
        thread_id=thread_id,
        graph=belongs,
    )


def nothing_to_rerun(state: RunState, name: str, tasks: list[Task]) -> InvalidCall:
    """The refusal of a call that drops the results of a task that is not there."""
    nodes = ", ".join(dict.fromkeys(t.node for t in tasks if t.node != START)) or "none"
    return InvalidCall(
        f"rerun names {name!r}, and thread {state.thread_id!r} has no such task in an unfinished "
        f"step; its tasks: {nodes}",
        thread_id=state.thread_id,
    )


def lost_node(node: str, thread_id: str) -> UnknownTarget:
    """The error of a step whose graph has lost the node of one of its tasks."""
    return UnknownTarget(
        f"thread {thread_id!r} is about to run node {node!r}, which this graph has not (any more): "
        "bring the node back and continue the thread, or restart the run",
        node=node,
        target=node,
    )
