"""Idempotency keys of messages on an ordered key-value engine: kept in order, and swept a few at a time."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from beamweaver.checkpoint._layout import (
    KEY_ORDER,
    KEYS,
    corrupt,
    number,
    read_number,
    sealed,
    tail,
    thread_key,
    unseal,
)
from beamweaver.checkpoint.records import MessageKey

if TYPE_CHECKING:
    from beamweaver.checkpoint._kv import Txn
    from beamweaver.checkpoint.records import KeyPut

__all__ = ["SWEPT", "count_keys", "order_key", "read_key", "sealed_key"]

SWEPT: Final = 16
"""How many old keys of a thread one commit removes at the most: more than the one that it brings."""
_KEY_BYTES: Final = 511
_pack = msgspec.msgpack.encode
_rows = msgspec.msgpack.Decoder(MessageKey)
_orders = msgspec.msgpack.Decoder(tuple[str, str])


def sealed_key(tid: bytes, row: MessageKey) -> tuple[bytes, bytes]:
    """The pair that keeps a key."""
    return sealed(KEYS + tid, row.key.encode(), _pack(row))


def order_key(txn: Txn, tid: bytes, put: KeyPut) -> None:
    """Give a key that was written its place in the order of keys, and remove some that are too old."""
    prefix = KEY_ORDER + tid
    newest = txn.last(prefix, tail(prefix))
    place = 0 if newest is None else read_number(newest) + 1
    txn.put(*sealed(prefix, number(place), _pack((put.row.key, put.row.id))))
    for at, value in list(islice(txn.range(prefix, tail(prefix)), SWEPT)):
        try:
            name, id_ = _orders.decode(unseal(at, value))
        except msgspec.DecodeError as error:
            raise corrupt(at, str(error)) from error
        row = _read(txn, KEYS + tid + name.encode())
        ours = row is not None and row.id == id_
        crowded = place + 1 - read_number(at) > put.most
        if ours and row is not None and not crowded and row.at_us >= put.before_us:
            return
        txn.delete(at)
        if ours:
            txn.delete(KEYS + tid + name.encode())


def read_key(txn: Txn, thread_id: str, key: str) -> MessageKey | None:
    """See `Checkpointer.message_key`."""
    tid = thread_key(thread_id)
    try:
        name = key.encode()
    except UnicodeEncodeError:
        return None
    if tid is None or not name or len(KEYS + tid + name) > _KEY_BYTES:
        return None
    return _read(txn, KEYS + tid + name)


def count_keys(txn: Txn, thread_id: str) -> int:
    """See `Checkpointer.message_keys`: places are given without gaps and freed from the oldest on."""
    tid = thread_key(thread_id)
    if tid is None:
        return 0
    prefix = KEY_ORDER + tid
    newest = txn.last(prefix, tail(prefix))
    oldest = next(txn.keys(prefix, tail(prefix)), None)
    if newest is None or oldest is None:
        return 0
    return read_number(newest) - read_number(oldest) + 1


def _read(txn: Txn, key: bytes) -> MessageKey | None:
    value = txn.get(key)
    if value is None:
        return None
    try:
        return _rows.decode(unseal(key, value))
    except msgspec.DecodeError as error:
        raise corrupt(key, str(error)) from error
