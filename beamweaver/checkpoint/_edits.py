"""How threads are kept on an ordered key-value engine: small edits inside a write transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from beamweaver.checkpoint._layout import (
    MARKS,
    STATUS_CODES,
    STATUSES,
    due_key,
    number,
    seal,
    sealed,
    status_key,
)
from beamweaver.checkpoint._reads import TxnStream
from beamweaver.checkpoint.records import encode_record

if TYPE_CHECKING:
    from beamweaver.checkpoint._kv import Txn
    from beamweaver.checkpoint.records import HeadRow, Record, StatusName, ThreadRow

__all__ = ["AWAKE", "TxnEditable", "due_of", "move_due", "move_status"]

AWAKE: Final = -1
"""When a thread is due that does not sleep."""

_pack = msgspec.msgpack.encode


class TxnEditable(TxnStream):
    """The records of one thread in a write transaction."""

    __slots__ = ("_tid",)

    def __init__(self, txn: Txn, tid: bytes) -> None:
        super().__init__(txn, tid)
        self._tid = tid

    def put(self, record: Record) -> None:
        """See `Editable.put`."""
        self._txn.put(*sealed(self._prefix, number(record.seq), encode_record(record)))

    def drop(self, seq: int) -> None:
        """See `Editable.drop`."""
        self._txn.delete(self._prefix + number(seq))

    def mark(self, marks: HeadRow) -> None:
        """See `Editable.mark`."""
        self._txn.put(*sealed(MARKS, self._tid, _pack(marks)))


def move_status(txn: Txn, tid: bytes, old: StatusName | None, new: StatusName) -> None:
    """Move a thread in the index of statuses."""
    if old is not None:
        txn.delete(status_key(old, tid))
    txn.put(*sealed(STATUSES + STATUS_CODES[new], tid, b""))


def due_of(row: ThreadRow | None) -> int:
    """When a thread is due, if it sleeps (UTC microseconds); else `AWAKE`."""
    asleep = row is not None and row.status == "sleeping"
    return max(row.run.due_us, 0) if row is not None and asleep else AWAKE


def move_due(txn: Txn, tid: bytes, old: int, new: int) -> None:
    """Move a thread in the index of due times, in which only sleeping threads are."""
    if old == new:
        return
    if old != AWAKE:
        txn.delete(due_key(old, tid))
    if new != AWAKE:
        key = due_key(new, tid)
        txn.put(key, seal(key, b""))
