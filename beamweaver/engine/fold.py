"""A thread's state from what the store has of it."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from beamweaver.checkpoint.entries import Edited, Finished, Inner
from beamweaver.checkpoint.records import decode_record
from beamweaver.engine.calls import UNFINISHED
from beamweaver.engine.growth import chains_of
from beamweaver.engine.kept import is_kept, kept_of
from beamweaver.engine.merge import with_initial
from beamweaver.engine.rows import apply_entry, holds_steps, shows_progress, task_of, values_of
from beamweaver.engine.state import InnerState, OpenStep, RunState
from beamweaver.engine.unread import Unread
from beamweaver.types import START

if TYPE_CHECKING:
    from beamweaver.checkpoint.entries import Entry
    from beamweaver.checkpoint.records import Checkpoint, Record, StatusName, ThreadImage
    from beamweaver.engine.env import Env

__all__ = [
    "fold",
    "fold_entries",
    "fold_opening",
    "parked_status",
    "progress_of",
    "raw_entries",
]


def fold(image: ThreadImage, env: Env, *, raw: bool = False) -> RunState:
    """The state that the records say: newest checkpoint, then each entry after it.

    Args:
        image: The thread, as the store has it.
        env: Decodes the values.
        raw: Whether it is the checkpoint by itself, without what happened in its open step.

    Raises:
        DeserializationError: A stored value cannot be read back.
    """
    checkpoint = image.checkpoint.checkpoint
    assert checkpoint is not None, "an image begins at a checkpoint"
    state = RunState(image.row.thread_id)
    state.row = image.row
    state.branch = checkpoint.branch
    state.values = values_of(image.values, env)
    state.kept = kept_of(image.values)
    state.versions = dict(image.versions)
    state.chains = chains_of(image.chains, env.graph)
    state.since_full = image.since_full
    state.checkpoint_seq = image.checkpoint.seq
    state.parent_seq = checkpoint.parent
    _go_to(state, checkpoint, env)
    state.tip = image.tip
    fold_entries(state, raw_entries(image.checkpoint) if raw else image.checkpoint.entries, env)
    for record in () if raw else image.entries:
        fold_entries(state, record.entries, env)
        if not holds_steps(record.entries):
            state.entry_seqs.append(record.seq)
    state.seq = image.next_seq
    state.progress_seq = progress_of(image)
    return state


def parked_status(state: RunState, before: StatusName) -> StatusName:
    """How a thread stands that nobody executes, by its open step.

    A run that goes on by itself (`before` says so) still does.
    """
    tasks = state.step.tasks
    if not tasks:
        return "complete"
    sleeps = any(task.asleep for task in tasks if task.result is None)
    if before in UNFINISHED and (before != "sleeping" or sleeps):
        return before
    if any(task.failure is not None for task in tasks) or state.step.failure is not None:
        return "failed"
    if state.step.stands_at_breakpoint or _asks(state.step):
        return "waiting"
    return "cancelled"


def _asks(step: OpenStep) -> bool:
    """Whether a step, or one of a graph in its tasks, waits for an answer."""
    own = any(task.open_questions for task in step.tasks if task.result is None)
    return own or any(_asks(inner) for inner in step.inside)


def progress_of(image: ThreadImage) -> int:
    """The number of the last record that shows that the thread's work went on.

    A commit does, and so does a result, a failed attempt, or a question that was kept; who takes a run up
    or goes on with it does not.
    """
    seqs = [record.seq for record in image.entries if shows_progress(record.entries)]
    return max(seqs, default=image.checkpoint.seq)


def raw_entries(record: Record) -> tuple[Entry, ...]:
    """What belongs to a checkpoint itself: edits by callers, and the input of an entry with routers."""
    checkpoint = record.checkpoint
    assert checkpoint is not None, "only a checkpoint has a raw form"
    return tuple(
        entry
        for entry in record.entries
        if type(entry) is Edited
        or (type(entry) is Finished and checkpoint.tasks[entry.task].node == START)
    )


def _go_to(state: RunState, checkpoint: Checkpoint, env: Env) -> None:
    """The step that a checkpoint begins, and what belongs to the run."""
    state.joins = dict(checkpoint.joins)
    state.spent = checkpoint.spent
    state.deferred = tuple([task_of(row, env) for row in checkpoint.deferred])
    state.executed = checkpoint.executed
    state.warnings = checkpoint.warnings
    state.step = OpenStep(checkpoint.next_step, [task_of(row, env) for row in checkpoint.tasks])


def fold_entries(state: RunState, entries: tuple[Entry, ...], env: Env) -> None:
    """Fold entries into the open step, those of graphs in its tasks included."""
    for entry in entries:
        if isinstance(entry, Inner):
            _apply_inner(state, entry, env)
        else:
            apply_entry(state, entry, env)


def _apply_inner(state: RunState, entry: Inner, env: Env) -> None:
    """Fold a record of the graph inside of a task."""
    task = state.step.tasks[entry.task]
    known = (task.inner or {}).get(entry.key)
    within: Any
    if isinstance(env, Unread):
        graph, within = env.graph, env
    elif known is not None and not known.unread:
        graph, within = known.graph, env.inside(known.graph)
    elif entry.key:
        graph, within = env.called(task.node, entry.key)
    else:
        node = env.graph.nodes.get(task.node)
        if node is None or node.subgraph is None:
            return  # the graph has lost the node; whoever goes on with the thread is told
        graph = node.subgraph
        within = env.inside(graph)
    task.awake()
    record = decode_record(entry.data)
    if known is None:
        noted = {} if record.checkpoint is None else record.checkpoint.metadata
        part = noted.get("part", b"").decode()
        known = InnerState(state, task, entry.key, graph, env.graph, part)
        known.unread = isinstance(within, Unread)
        task.inner = {**(task.inner or {}), entry.key: known}
    inner = known
    if record.checkpoint is not None:
        _apply_checkpoint(inner, record, entry, within)
    fold_entries(inner, record.entries, within)
    inner.seq = record.seq + 1


def fold_opening(mine: InnerState, env: Env) -> InnerState | None:
    """The state of a graph inside of a task as its first record has it, while no commit holds that.

    Args:
        mine: The graph.
        env: Of the graph.

    Returns:
        The state; None where the values that it began with cannot be stored.
    """
    opening = mine.opening
    assert opening is not None, "the caller looked"
    assert opening.checkpoint is not None, "a run opens with a checkpoint"
    if not opening.checkpoint.writes and mine.start.keys() - mine.graph.unstored:
        return None
    state = copy(mine)
    _apply_checkpoint(state, opening, Inner(0, b""), env)
    return state


def _apply_checkpoint(state: InnerState, record: Record, entry: Inner, env: Env) -> None:
    checkpoint = record.checkpoint
    assert checkpoint is not None, "the caller looked"
    values = values_of(checkpoint.writes, env)
    if record.seq == 0:
        state.start, state.written = values, set()
        state.values = values if state.unread else with_initial(state.graph, values)
        state.digest = checkpoint.metadata.get("digest", b"")
    else:
        names = [name for name in checkpoint.writes if not is_kept(name)]
        gone = [name for name in names if name not in values]
        left = {name: value for name, value in state.values.items() if name not in gone}
        state.values = {**left, **values}
        state.written.update(names if entry.written is None else entry.written)
    kept = kept_of(checkpoint.writes)
    if kept is not None:
        state.kept = {**(state.kept or {}), **kept}
    _go_to(state, checkpoint, env)
