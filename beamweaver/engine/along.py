"""What happened inside of a step, one thing after another, for those who look back at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from beamweaver.checkpoint.entries import Inner, Left
from beamweaver.checkpoint.records import decode_record, encode_record
from beamweaver.engine.fold import fold, fold_entries
from beamweaver.engine.left import begin_unrecorded, end_at
from beamweaver.engine.unread import AsPlainData, Unread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from beamweaver.checkpoint.entries import Entry
    from beamweaver.checkpoint.records import ThreadImage
    from beamweaver.engine.env import Env
    from beamweaver.engine.state import InnerState, RunState

__all__ = ["Ends", "fold_along", "lefts_of"]

Ends = list[tuple[int, tuple[Left, ...]]]
"""Of the checkpoints that ended a step: their numbers, and what graphs in its tasks left."""


def lefts_of(entries: Sequence[Entry]) -> tuple[Left, ...]:
    """What graphs in tasks left, of the entries of a record."""
    return tuple([entry for entry in entries if type(entry) is Left])


def fold_along(image: ThreadImage, env: Env, ends: Ends | tuple[()] = ()) -> Iterator[RunState]:
    """The state at the checkpoint, then after each thing that happened in the step that follows it.

    Args:
        image: The checkpoint, and the records of its step.
        env: Decodes the values.
        ends: The checkpoints that ended this step, in their order.

    Yields:
        The state: one object, which goes on.
    """
    state = fold(msgspec.structs.replace(image, entries=()), env)
    yield state
    moments = [(record.seq, record.entries) for record in image.entries]
    for _seq, entries in sorted([*moments, *ends], key=lambda moment: moment[0]):
        for _moment in _along(state, entries, env):
            yield state


def _along(state: RunState, entries: Sequence[Entry], env: Env) -> Iterator[None]:
    """Fold entries one by one, those of graphs in tasks too."""
    for at, entry in enumerate(entries):
        if type(entry) is Inner:
            yield from _inside(state, entry, env)
        elif type(entry) is Left:
            after = entries[at + 1] if at + 1 < len(entries) else None
            yield from _end(state, entry, after, env)
        else:
            fold_entries(state, (entry,), env)
            yield


def _inside(state: RunState, entry: Inner, env: Env) -> Iterator[None]:
    """The record of a graph in a task: what was left in the step before it, its step, what followed."""
    task = state.step.tasks[entry.task]
    record = decode_record(entry.data)
    lefts = () if record.checkpoint is None else lefts_of(record.entries)
    known = (task.inner or {}).get(entry.key)
    if known is not None:
        yield from _along(known, lefts, _within(known, env))
    alone = encode_record(msgspec.structs.replace(record, entries=()))
    fold_entries(state, (msgspec.structs.replace(entry, data=alone),), env)
    if record.checkpoint is not None:
        yield
    known = (task.inner or {}).get(entry.key)
    if known is not None:  # else the graph has lost the node
        yield from _along(known, record.entries[len(lefts) :], _within(known, env))


def _end(state: RunState, left: Left, after: Entry | None, env: Env) -> Iterator[None]:
    """The last step of a graph in a task."""
    task = state.step.tasks[left.task]
    inner = (task.inner or {}).get(left.key)
    if inner is None and not (left.as_seen and isinstance(env, Unread)):
        inner = begin_unrecorded(state, task, left, env)
        yield
    if inner is None or (left.back and isinstance(env, Unread)):
        return  # without the graph around it is not known what came back
    within = _within(inner, env)
    yield from _along(inner, left.inside, within)
    end_at(inner, left, after, within)
    yield


def _within(inner: InnerState, env: Env) -> Any:
    """What decodes the values of a graph in a task."""
    if not inner.unread:
        return env.inside(inner.graph)
    return env if isinstance(env, Unread) else AsPlainData(env)
