"""A thread as the memory store keeps it, and whether a commit fits it."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from beamweaver.checkpoint._keys import SWEPT
from beamweaver.checkpoint._refusals import conflict, first_record, lost_parent
from beamweaver.checkpoint._stream import WHOLE, checkpoint_of
from beamweaver.checkpoint.records import (
    Commit,
    HeadRow,
    MessageKey,
    Record,
    StatusName,
    decode_record,
    encode_record,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from beamweaver.checkpoint.records import KeyPut
    from beamweaver.errors import StoreError

__all__ = ["MemoryThread", "PlannedThread", "decode_key", "refusal_of"]

decode_key = msgspec.msgpack.Decoder(MessageKey).decode


class MemoryThread:
    """All of one thread, encoded; it is its own `Editable` stream."""

    __slots__ = (
        "checkpoint",
        "due",
        "ends",
        "inbox",
        "keys",
        "marks",
        "names",
        "next_seq",
        "records",
        "row",
        "status",
    )

    def __init__(self) -> None:
        self.next_seq = 0
        self.checkpoint = -1
        self.due = 0
        """When it is due, while it sleeps (UTC microseconds)."""
        self.status: StatusName | None = None
        self.row = b""
        self.marks = WHOLE
        self.records: dict[int, bytes] = {}
        self.names: dict[str, int] = {}
        self.ends: dict[int, int] = {}
        self.inbox: dict[int, bytes] = {}
        self.keys: dict[str, bytes] = {}
        """Idempotency keys, the oldest first."""

    def copy(self) -> MemoryThread:
        """Another one with the same content, without the inbox and its keys."""
        other = MemoryThread()
        other.next_seq, other.checkpoint = self.next_seq, self.checkpoint
        other.marks, other.records = self.marks, dict(self.records)
        other.names, other.ends = dict(self.names), dict(self.ends)
        return other

    def keep_messages(self, commit: Commit, inbox: Sequence[bytes], key: bytes) -> None:
        """Take in what a commit says of messages: those to keep, encoded, and the key of its own."""
        for message, encoded in zip(commit.inbox_put, inbox, strict=True):
            self.inbox[message.number] = encoded
        for place in commit.inbox_drop:
            self.inbox.pop(place, None)
        if commit.key is not None:
            self._keep_key(commit.key, key)

    def _keep_key(self, put: KeyPut, encoded: bytes) -> None:
        """Keep an idempotency key, and remove some that are too old or too many."""
        self.keys.pop(put.row.key, None)
        self.keys[put.row.key] = encoded
        for name in list(islice(self.keys, SWEPT)):
            if len(self.keys) <= put.most and decode_key(self.keys[name]).at_us >= put.before_us:
                return
            del self.keys[name]

    def get(self, seq: int) -> Record | None:
        """See `Stream.get`."""
        data = self.records.get(seq)
        return None if data is None else decode_record(data)

    def back(self, before: int | None = None) -> Iterator[Record]:
        """See `Stream.back`; the records were put in the order of their numbers."""
        for seq in reversed(self.records):
            if before is None or seq < before:
                yield decode_record(self.records[seq])

    def ahead(self, start: int) -> Iterator[Record]:
        """See `Stream.ahead`."""
        for seq in self.records:
            if seq >= start:
                yield decode_record(self.records[seq])

    def put(self, record: Record) -> None:
        """See `Editable.put`."""
        self.records[record.seq] = encode_record(record)

    def drop(self, seq: int) -> None:
        """See `Editable.drop`."""
        self.records.pop(seq, None)

    def mark(self, marks: HeadRow) -> None:
        """See `Editable.mark`."""
        self.marks = marks


class PlannedThread:
    """Where a thread stands after the commits of a group that were accepted so far."""

    __slots__ = ("checkpoints", "last", "next_seq")

    def __init__(self, thread: MemoryThread | None) -> None:
        self.next_seq = 0 if thread is None else thread.next_seq
        self.last = -1 if thread is None else thread.checkpoint
        self.checkpoints: set[int] = set()

    def take(self, commit: Commit) -> None:
        """Count a commit in."""
        seq = commit.record.seq
        self.next_seq = seq + 1
        if commit.record.checkpoint is not None:
            self.last = seq
            self.checkpoints.add(seq)


def refusal_of(
    commit: Commit, thread: MemoryThread | None, plan: PlannedThread
) -> StoreError | None:
    """Why a commit cannot be written."""
    checkpoint = commit.record.checkpoint
    if commit.record.seq != plan.next_seq:
        return conflict(commit, plan.next_seq)
    if plan.next_seq == 0 and (commit.thread is None or checkpoint is None):
        return first_record(commit)
    if checkpoint is None or checkpoint.parent in (-1, plan.last):
        return None
    parent = checkpoint.parent
    stored = None if thread is None else checkpoint_of(thread.get(parent))
    if parent >= 0 and parent not in plan.checkpoints and stored is None:
        return lost_parent(commit, parent)
    return None
