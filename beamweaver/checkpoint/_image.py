"""From a thread's records to the image that the engine folds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from beamweaver.checkpoint.records import Checkpoint, InboxMessage, Record, ThreadImage, ThreadRow
from beamweaver.errors import CorruptRecord

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["assemble"]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a store read of a thread: its row, the wanted checkpoint, and what follows it."""

    row: ThreadRow
    checkpoint: Record
    entries: tuple[Record, ...]
    next_seq: int
    inbox: tuple[InboxMessage, ...]


def assemble(found: Found, record_of: Callable[[int], Record | None]) -> ThreadImage:
    """The image of a thread.

    Args:
        found: What was read of the thread.
        record_of: Reads the record of a `seq`, or None.

    Raises:
        CorruptRecord: A record that the checkpoint needs is missing.
    """
    reader = _Reader(found.row.thread_id, record_of)
    reader.known[found.checkpoint.seq] = found.checkpoint
    versions, since_full = _versions(found.checkpoint, reader)
    values = {channel: reader.value(seq, channel) for channel, seq in versions.items()}
    return ThreadImage(
        row=found.row,
        checkpoint=found.checkpoint,
        values=values,
        versions=versions,
        since_full=since_full,
        entries=found.entries,
        next_seq=found.next_seq,
        inbox=found.inbox,
    )


class _Reader:
    def __init__(self, thread_id: str, record_of: Callable[[int], Record | None]) -> None:
        self.thread_id = thread_id
        self.record_of = record_of
        self.known: dict[int, Record] = {}

    def checkpoint(self, seq: int) -> Checkpoint:
        record = self.known.get(seq)
        if record is None:
            record = self.record_of(seq)
            if record is None:
                raise self._missing(seq, "record")
            self.known[seq] = record
        if record.checkpoint is None:
            raise self._missing(seq, "checkpoint in record")
        return record.checkpoint

    def value(self, seq: int, channel: str) -> bytes:
        try:
            return self.checkpoint(seq).writes[channel]
        except KeyError:
            raise self._missing(seq, f"value of {channel!r} in record") from None

    def _missing(self, seq: int, what: str) -> CorruptRecord:
        key = f"record/{self.thread_id}/{seq}"
        return CorruptRecord(
            f"thread {self.thread_id!r} needs the {what} {seq}, and it is not in the store. "
            "Restore the store from a backup, or delete that thread",
            key=key,
        )


def _versions(record: Record, reader: _Reader) -> tuple[dict[str, int], int]:
    """Each channel's version, and how many checkpoints follow the last full map."""
    deltas: list[tuple[int, Checkpoint]] = []
    seq, checkpoint = record.seq, reader.checkpoint(record.seq)
    while checkpoint.versions is None and checkpoint.parent >= 0:
        deltas.append((seq, checkpoint))
        if checkpoint.parent >= seq:  # a damaged or hostile record must not loop
            raise CorruptRecord(
                f"record {seq} of thread {reader.thread_id!r} names record {checkpoint.parent} as the one "
                "before it. Restore the store from a backup, or delete that thread",
                key=f"record/{reader.thread_id}/{seq}",
            )
        seq, checkpoint = checkpoint.parent, reader.checkpoint(checkpoint.parent)
    if checkpoint.versions is None:
        versions = dict.fromkeys(checkpoint.writes, seq)
    else:
        versions = dict(checkpoint.versions)
    for delta_seq, delta in reversed(deltas):
        for channel in delta.writes:
            versions[channel] = delta_seq
    return versions, len(deltas)
