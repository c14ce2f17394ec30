"""From a thread's records to the image that the engine folds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from beamweaver.checkpoint._stream import (
    PRUNED,
    Head,
    Stream,
    checkpoint_of,
    entries_of,
    find_head,
    is_tip,
)
from beamweaver.checkpoint.deltas import in_parts
from beamweaver.checkpoint.records import Chain, Checkpoint, Record, ThreadImage
from beamweaver.errors import CorruptRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from beamweaver.checkpoint.records import HeadRow, InboxMessage, ThreadRow

__all__ = ["Reader", "Recipe", "read_head", "read_one"]


class Recipe(msgspec.Struct, frozen=True):
    """A checkpoint with everything that its values are made of, so that the store is not needed any more."""

    record: Record
    versions: dict[str, int]
    since_full: int
    parts: dict[str, tuple[bytes, list[bytes]]]
    """Channel -> its snapshot and the deltas on it, oldest first."""

    def image(
        self,
        row: ThreadRow,
        head: Head,
        inbox: tuple[InboxMessage, ...] = (),
    ) -> ThreadImage:
        """The image of the checkpoint."""
        return ThreadImage(
            row=row,
            checkpoint=self.record,
            values={name: in_parts(first, rest) for name, (first, rest) in self.parts.items()},
            versions=self.versions,
            since_full=self.since_full,
            entries=head.entries,
            next_seq=head.next_seq,
            inbox=inbox,
            chains={
                name: Chain(len(first), sum(map(len, rest)), len(rest))
                for name, (first, rest) in self.parts.items()
            },
            tip=head.tip,
        )


def read_head(
    stream: Stream, row: ThreadRow, marks: HeadRow, inbox: tuple[InboxMessage, ...]
) -> ThreadImage | None:
    """The image of a thread's head; None if the stream holds no checkpoint.

    Raises:
        CorruptRecord: A record that the checkpoint needs is missing.
    """
    head = find_head(stream, marks)
    if head is None:
        return None
    reader = Reader(row.thread_id, stream.get, {head.checkpoint.seq: head.checkpoint})
    return reader.recipe(head.checkpoint).image(row, head, inbox)


def read_one(
    stream: Stream, row: ThreadRow, marks: HeadRow, seq: int, *, entries: bool
) -> ThreadImage | None:
    """The image of one checkpoint, raw unless its own entries are asked for; None if there is none."""
    record = stream.get(seq) if seq >= 0 else None
    checkpoint = checkpoint_of(record)
    last = next(stream.back(), None)
    if last is None or record is None or checkpoint is None:
        return None
    own = tuple(entries_of(stream, marks, seq)) if entries else ()
    tip = entries and is_tip(stream, seq, checkpoint.branch)
    head = Head(record, own, max(last.seq + 1, marks.floor), tip=tip)
    return Reader(row.thread_id, stream.get, {seq: record}).recipe(record).image(row, head)


class Reader:
    """Reads checkpoints of one thread from one snapshot, each record at most once.

    Args:
        thread_id: For messages.
        record_of: Reads the record of a `seq`, or None.
        known: Records that were read already.
    """

    def __init__(
        self,
        thread_id: str,
        record_of: Callable[[int], Record | None],
        known: Mapping[int, Record] | None = None,
    ) -> None:
        self._thread_id = thread_id
        self._record_of = record_of
        self.known: dict[int, Record] = dict(known or {})

    def recipe(self, record: Record, *, values: bool = True) -> Recipe:
        """Everything that a checkpoint needs.

        Raises:
            CorruptRecord: A record that it needs is missing.
        """
        versions, since_full = self.versions(record)
        parts = {name: self._parts(seq, name) for name, seq in versions.items()} if values else {}
        return Recipe(record, versions, since_full, parts)

    def versions(self, record: Record) -> tuple[dict[str, int], int]:
        """Each channel's version, and how many checkpoints follow the last full map."""
        lines: list[tuple[int, Checkpoint]] = []
        seq, checkpoint = record.seq, self._checkpoint(record.seq, pruned=False)
        while checkpoint.versions is None and checkpoint.parent >= 0:
            lines.append((seq, checkpoint))
            if checkpoint.parent >= seq:  # a damaged or hostile record must not loop
                raise self._backwards(seq, checkpoint.parent)
            seq, checkpoint = checkpoint.parent, self._checkpoint(checkpoint.parent, pruned=False)
        versions = dict(checkpoint.versions or {})
        if checkpoint.versions is None:
            lines.append((seq, checkpoint))
        for at, line in reversed(lines):
            for channel in line.writes:
                versions[channel] = at
            for channel in line.deltas:
                versions[channel] = at
        return versions, len(lines) - (checkpoint.versions is None)

    def chain(self, seq: int, channel: str) -> Iterator[int]:
        """The records that hold a channel's value of a version, the newest first."""
        while True:
            checkpoint = self._checkpoint(seq, pruned=True)
            if channel in checkpoint.writes:
                yield seq
                return
            delta = checkpoint.deltas.get(channel)
            if delta is None:
                raise self._missing(seq, f"value of {channel!r} in record")
            if not 0 <= delta.base < seq:
                raise self._backwards(seq, delta.base)
            yield seq
            seq = delta.base

    def _parts(self, seq: int, channel: str) -> tuple[bytes, list[bytes]]:
        first = b""
        rest: list[bytes] = []
        for at in self.chain(seq, channel):
            checkpoint = self._checkpoint(at, pruned=True)
            snapshot = checkpoint.writes.get(channel)
            if snapshot is not None:
                first = snapshot
            else:
                rest.append(checkpoint.deltas[channel].data)
        rest.reverse()
        return first, rest

    def _checkpoint(self, seq: int, *, pruned: bool) -> Checkpoint:
        record = self.known.get(seq)
        if record is None:
            record = self._record_of(seq)
            if record is None:
                raise self._missing(seq, "record")
            self.known[seq] = record
        if record.checkpoint is None or (record.checkpoint.source == PRUNED and not pruned):
            raise self._missing(seq, "checkpoint in record")
        return record.checkpoint

    def _missing(self, seq: int, what: str) -> CorruptRecord:
        return CorruptRecord(
            f"thread {self._thread_id!r} needs the {what} {seq}, and it is not in the store. "
            "Restore the store from a backup, or delete that thread",
            key=f"record/{self._thread_id}/{seq}",
        )

    def _backwards(self, seq: int, before: int) -> CorruptRecord:
        return CorruptRecord(
            f"record {seq} of thread {self._thread_id!r} names record {before} as the one before it. "
            "Restore the store from a backup, or delete that thread",
            key=f"record/{self._thread_id}/{seq}",
        )
