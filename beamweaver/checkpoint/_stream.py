"""The stream of one thread's records, whatever keeps it: where its head is, and which entries are whose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeGuard

import msgspec

from beamweaver.checkpoint.records import HeadRow, Move, Record
from beamweaver.errors import InvalidCall, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from beamweaver.checkpoint.records import Checkpoint

__all__ = [
    "MOVES",
    "PRUNED",
    "WHOLE",
    "Head",
    "Stream",
    "checkpoint_of",
    "entries_of",
    "find_head",
    "is_checkpoint",
    "is_tip",
    "moved",
]

PRUNED = "pruned"
"""The source of what is left of a checkpoint that was removed."""
WHOLE = HeadRow()
"""Of a thread whose head was never moved."""
MOVES = 1_000
"""How many moves with entries of their own a thread may have."""


class Stream(Protocol):
    """The records of one thread, by `seq`."""

    def get(self, seq: int) -> Record | None:
        """The record of a number, or None."""

    def back(self, before: int | None = None) -> Iterator[Record]:
        """The records below `before` (all if None), the newest first."""

    def ahead(self, start: int) -> Iterator[Record]:
        """The records from `start` on, the oldest first."""


class Head(msgspec.Struct, frozen=True):
    """Where a thread stands."""

    checkpoint: Record
    entries: tuple[Record, ...]
    next_seq: int
    tip: bool


def is_checkpoint(record: Record | None) -> TypeGuard[Record]:
    """Whether a record is a checkpoint that was not removed."""
    return checkpoint_of(record) is not None


def checkpoint_of(record: Record | None) -> Checkpoint | None:
    """The checkpoint of a record, unless it was removed or there is none."""
    checkpoint = None if record is None else record.checkpoint
    return None if checkpoint is None or checkpoint.source == PRUNED else checkpoint


def find_head(stream: Stream, marks: HeadRow) -> Head | None:
    """The head of a thread: its newest checkpoint, or the one to which it was moved since.

    Returns:
        None if the stream has no checkpoint: it is damaged.
    """
    move = marks.moves[-1] if marks.moves else None
    next_seq = marks.floor
    entries: list[Record] = []
    for record in stream.back():
        next_seq = max(next_seq, record.seq + 1)
        if move is not None and record.seq < move.at:
            break
        if is_checkpoint(record):
            return Head(record, tuple(reversed(entries)), next_seq, tip=True)
        if record.checkpoint is None:
            entries.append(record)
    target = None if move is None else stream.get(move.target)
    if move is None or not is_checkpoint(target):
        return None
    # What is left of a step that was closed is history of the graphs in it.
    own = tuple(entries_of(stream, marks, move.target)) if move.tip else ()
    return Head(target, own, next_seq, tip=move.tip)


def entries_of(stream: Stream, marks: HeadRow, seq: int) -> Iterator[Record]:
    """The entry records of the step that follows the checkpoint `seq`, the oldest first."""
    stops: list[int | None] = [*(move.at for move in marks.moves[1:]), None]
    first = min((move.at for move in marks.moves if move.at > seq), default=None)
    yield from _run(stream, seq + 1, first)
    for move, stop in zip(marks.moves, stops, strict=bool(marks.moves)):
        if move.target == seq:
            yield from _run(stream, move.at, stop)


def _run(stream: Stream, start: int, stop: int | None) -> Iterator[Record]:
    """The entry records from `start` on, up to a checkpoint or `stop`."""
    if stop == start:
        return
    for record in stream.ahead(start):
        if record.checkpoint is not None or (stop is not None and record.seq >= stop):
            return
        yield record


def moved(stream: Stream, marks: HeadRow, seq: int, thread_id: str) -> HeadRow | None:
    """The head row after the head was moved to a checkpoint; None if it is there already.

    Raises:
        InvalidCall: There is no such checkpoint.
        StoreError: It was moved too often.
    """
    target = checkpoint_of(stream.get(seq))
    head = find_head(stream, marks)
    if target is None or head is None:
        raise InvalidCall(
            f"thread {thread_id!r} has no checkpoint {seq}; take one from its history",
            thread_id=thread_id,
        )
    if head.checkpoint.seq == seq:
        return None
    kept = _with_entries(stream, marks)
    if len(kept) >= MOVES:
        raise StoreError(
            f"the head of thread {thread_id!r} was moved {MOVES} times away from steps that are not "
            "finished; finish some of them, or prune the thread",
            thread_id=thread_id,
        )
    tip = is_tip(stream, seq, target.branch)
    return HeadRow((*kept, Move(head.next_seq, seq, tip)), marks.floor)


def is_tip(stream: Stream, seq: int, branch: str) -> bool:
    """Whether no checkpoint ever followed that one on its branch; of one that was removed a rest says so."""
    return not any(
        found is not None and found.parent == seq and found.branch == branch
        for found in (record.checkpoint for record in stream.ahead(seq + 1))
    )


def _with_entries(stream: Stream, marks: HeadRow) -> list[Move]:
    """The moves that entries still need."""
    stops: list[int | None] = [*(move.at for move in marks.moves[1:]), None]
    return [
        move
        for move, stop in zip(marks.moves, stops, strict=bool(marks.moves))
        if next(_run(stream, move.at, stop), None) is not None
    ]
