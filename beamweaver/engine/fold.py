"""A thread's state from what the store has of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamweaver.checkpoint.entries import Edited, Finished
from beamweaver.engine.calls import UNFINISHED
from beamweaver.engine.rows import apply_entry, shows_progress, task_of, values_of
from beamweaver.engine.state import OpenStep, RunState
from beamweaver.types import START

if TYPE_CHECKING:
    from beamweaver.checkpoint.entries import Entry
    from beamweaver.checkpoint.records import Record, StatusName, ThreadImage
    from beamweaver.engine.env import Env

__all__ = ["fold", "parked_status", "progress_of", "raw_entries"]


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
    state.versions = dict(image.versions)
    state.since_full = image.since_full
    state.checkpoint_seq = image.checkpoint.seq
    state.parent_seq = checkpoint.parent
    state.joins = dict(checkpoint.joins)
    state.spent = checkpoint.spent
    state.deferred = tuple([task_of(row, env) for row in checkpoint.deferred])
    state.executed = checkpoint.executed
    state.warnings = checkpoint.warnings
    state.step = OpenStep(checkpoint.next_step, [task_of(row, env) for row in checkpoint.tasks])
    state.tip = image.tip
    _apply(state, raw_entries(image.checkpoint) if raw else image.checkpoint.entries, env)
    for record in () if raw else image.entries:
        _apply(state, record.entries, env)
        state.entry_seqs.append(record.seq)
    state.seq = image.next_seq
    state.progress_seq = progress_of(image)
    return state


def parked_status(state: RunState, before: StatusName) -> StatusName:
    """How a thread stands that nobody executes, by its open step; `before`, where that fits still."""
    tasks = state.step.tasks
    if not tasks:
        return "complete"
    if any(task.failure is not None for task in tasks) or state.step.failure is not None:
        return "failed"
    if state.step.paused or any(task.open_questions for task in tasks if task.result is None):
        return "waiting"
    if before == "sleeping" and not any(task.asleep for task in tasks if task.result is None):
        return "cancelled"
    return before if before in UNFINISHED else "cancelled"


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


def _apply(state: RunState, entries: tuple[Entry, ...], env: Env) -> None:
    for entry in entries:
        apply_entry(state, entry, env)
