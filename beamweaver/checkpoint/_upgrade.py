"""Stores of older formats become stores of the newest one when an owner takes them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from beamweaver.checkpoint._edits import AWAKE, due_of, move_due
from beamweaver.checkpoint._layout import APPLICATION, FORMAT_VERSION, META, seal, status_key, tail
from beamweaver.checkpoint._meta import Meta, read_meta, write_asleep
from beamweaver.checkpoint._reads import read_row
from beamweaver.errors import CorruptRecord

if TYPE_CHECKING:
    from beamweaver.checkpoint._kv import Txn
    from beamweaver.checkpoint.store import RecordWriter

__all__ = ["upgrade"]

_CHUNK: Final = 1_000
_SLEEPING: Final = status_key("sleeping", b"")


def upgrade(writer: RecordWriter, epoch: int) -> None:
    """Index what sleeps in a store of a format without due times, in several transactions.

    Raises:
        StoreError: There is no room; until it is done, reads do without the index.
    """
    if not writer.snapshot(_is_old):
        return
    filling = _Filling()
    with writer.alone():
        while writer.transact(epoch, filling.step):
            pass


def _is_old(txn: Txn) -> bool:
    meta = read_meta(txn, "store")
    return meta is not None and meta.version < FORMAT_VERSION


class _Filling:
    """The index on its way; each step is one transaction, and doing one again does no harm."""

    def __init__(self) -> None:
        self._next = _SLEEPING
        self._latest = 0

    def step(self, txn: Txn) -> bool:
        """Index some; whether there is more. The last step makes the store one of the newest format."""
        page = list(islice(txn.keys(self._next, tail(_SLEEPING)), _CHUNK + 1))
        for key in page[:_CHUNK]:
            self._index(txn, key[len(_SLEEPING) :])
        if len(page) > _CHUNK:
            self._next = page[-1]
            return True
        write_asleep(txn, self._latest)
        txn.put(META, seal(META, msgspec.msgpack.encode(Meta(APPLICATION, FORMAT_VERSION))))
        return False

    def _index(self, txn: Txn, tid: bytes) -> None:
        try:
            row = read_row(txn, tid)
        except CorruptRecord:
            return  # whoever wants that thread is told
        move_due(txn, tid, AWAKE, due_of(row))
        if row is not None:
            slept = row.run.due_us - int(row.run.delay * 1_000_000)
            self._latest = max(self._latest, slept)
