"""A thread's state from what the store has of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamweaver.engine.rows import apply_entry, shows_progress, task_of, values_of
from beamweaver.engine.state import OpenStep, RunState

if TYPE_CHECKING:
    from beamweaver.checkpoint.records import Record, ThreadImage
    from beamweaver.engine.env import Env

__all__ = ["fold", "progress_of"]


def fold(image: ThreadImage, env: Env) -> RunState:
    """The state that the records say: newest checkpoint, then each entry after it.

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
    _apply(state, image.checkpoint, env)
    for record in image.entries:
        _apply(state, record, env)
        state.entry_seqs.append(record.seq)
    state.seq = image.next_seq
    state.progress_seq = progress_of(image)
    return state


def progress_of(image: ThreadImage) -> int:
    """The number of the last record that shows that the thread's work went on.

    A commit does, and so does a result, a failed attempt, or a question that was kept; who takes a run up
    or goes on with it does not.
    """
    seqs = [record.seq for record in image.entries if shows_progress(record.entries)]
    return max(seqs, default=image.checkpoint.seq)


def _apply(state: RunState, record: Record, env: Env) -> None:
    for entry in record.entries:
        apply_entry(state, entry, env)
