"""What the writer keeps of a thread, and of a commit on its way into the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from beamweaver.checkpoint._edits import due_of
from beamweaver.checkpoint._keys import sealed_key
from beamweaver.checkpoint._layout import (
    ENDS,
    INBOX,
    NAMES,
    RECORDS,
    ROWS,
    number,
    seal,
    seal_small,
    sealed,
)
from beamweaver.checkpoint._refusals import check_names
from beamweaver.checkpoint.records import encode_record, encode_thread

if TYPE_CHECKING:
    from beamweaver.checkpoint.records import Commit, StatusName, ThreadRow
    from beamweaver.errors import StoreError

__all__ = ["Head", "Item"]

_NOTHING: Final[tuple[()]] = ()
_pack = msgspec.msgpack.encode


class Head:
    """What the writer knows of a thread: the next `seq`, and the status and due time that the indices hold.

    `checkpoint` is the last one that was written here, or -1 if that is not known.
    """

    __slots__ = ("checkpoint", "due", "next_seq", "records", "status", "tid")

    def __init__(self, tid: bytes, next_seq: int, row: ThreadRow | None) -> None:
        self.tid = tid
        self.records = RECORDS + tid
        self.next_seq = next_seq
        self.status: StatusName | None = None if row is None else row.status
        self.due = due_of(row)
        self.checkpoint = -1


class Item:
    """A commit, encoded. It is kept until its group is acknowledged."""

    __slots__ = ("commit", "error", "head", "key", "more", "tid", "value")

    def __init__(self, commit: Commit, tid: bytes, compress_above: int | None) -> None:
        self.commit = commit
        self.tid = tid
        self.key = RECORDS + tid + number(commit.record.seq)
        data = encode_record(commit.record)
        large = compress_above is not None and len(data) > compress_above
        self.value = seal_small(self.key, data) if large else seal(self.key, data)
        self.more = (
            _more_of(commit, tid)
            if commit.thread is not None
            or commit.inbox_put
            or commit.run_names
            or commit.run_ended is not None
            or commit.key is not None
            else _NOTHING
        )
        self.head: Head | None = None
        self.error: StoreError | None = None

    def size(self) -> int:
        return len(self.value) + sum(len(value) for _, value in self.more)


def _more_of(commit: Commit, tid: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """What a commit writes beside its record."""
    pairs: list[tuple[bytes, bytes]] = []
    if commit.thread is not None:
        pairs.append(sealed(ROWS, tid, encode_thread(commit.thread)))
    check_names(commit)
    pairs += [sealed(NAMES + tid, name.encode(), _pack(run)) for name, run in commit.run_names]
    if commit.run_ended is not None:
        run, seq = commit.run_ended
        pairs.append(sealed(ENDS + tid, number(run), _pack(seq)))
    pairs += [sealed(INBOX + tid, number(item.number), _pack(item)) for item in commit.inbox_put]
    if commit.key is not None:
        pairs.append(sealed_key(tid, commit.key.row))
    return tuple(pairs)
