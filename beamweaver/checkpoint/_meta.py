"""What a store says of itself: who wrote it, in which format, and the epoch of its last owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from beamweaver.checkpoint._layout import (
    APPLICATION,
    ASLEEP,
    EPOCH,
    FORMAT_VERSION,
    META,
    corrupt,
    seal,
    unseal,
)
from beamweaver.errors import CorruptRecord, NotAStore, StoreTooNew

if TYPE_CHECKING:
    from beamweaver.checkpoint._kv import Txn

__all__ = ["Meta", "fence_of", "read_asleep", "read_epoch", "read_meta", "write_asleep"]

_numbers = msgspec.msgpack.Decoder(int)


class Meta(msgspec.Struct, array_like=True, frozen=True):
    """Who wrote a store, and by which version of its format."""

    application: str
    version: int


_metas = msgspec.msgpack.Decoder(Meta)


def read_meta(txn: Txn, name: str) -> Meta | None:
    """What a store says of itself; None if it is empty.

    Raises:
        NotAStore: Another program wrote it.
        StoreTooNew: A newer version wrote it.
    """
    value = txn.get(META)
    if value is None:
        if next(txn.range(b"\x00", b"\xff" * 8), None) is None:
            return None
        raise NotAStore(
            f"{name} holds the data of another program. Give a path of the store's own", path=name
        )
    try:
        meta = _metas.decode(unseal(META, value))
    except msgspec.DecodeError as error:
        raise corrupt(META, str(error)) from error
    if meta.application != APPLICATION:
        raise NotAStore(f"{name} was written by {meta.application!r}. Give another path", path=name)
    if meta.version > FORMAT_VERSION:
        raise StoreTooNew(
            f"{name} has format {meta.version}; this version of beamweaver reads up to {FORMAT_VERSION}. "
            "Upgrade beamweaver",
            path=name,
            version=meta.version,
        )
    return meta


def read_epoch(txn: Txn) -> int:
    """The epoch of the store's last owner; 0 before the first one."""
    value = txn.get(EPOCH)
    return 0 if value is None else _numbers.decode(unseal(EPOCH, value))


def fence_of(epoch: int) -> bytes:
    """What stands under the key of the epoch."""
    return seal(EPOCH, msgspec.msgpack.encode(epoch))


def read_asleep(txn: Txn) -> int | None:
    """At about what time a thread last fell asleep, at most some minutes too early; 0 if none did.

    None if what is kept of it is damaged.
    """
    value = txn.get(ASLEEP)
    if value is None:
        return 0
    try:
        return _numbers.decode(unseal(ASLEEP, value))
    except (CorruptRecord, msgspec.DecodeError):
        return None


def write_asleep(txn: Txn, at_us: int) -> None:
    """A thread fell asleep at this time (UTC microseconds)."""
    txn.put(ASLEEP, seal(ASLEEP, msgspec.msgpack.encode(at_us)))
