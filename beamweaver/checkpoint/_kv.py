"""The seam under the store: a small ordered key-value engine with one writer at a time.

`store.py` holds every rule of how threads are kept, and asks an engine only for what stands here. The
engine of production is LMDB (`_lmdb_kv.py`); a simulated one needs these methods and nothing more.

An engine says what went wrong in three words: `StoreFull` (no room, nothing was written),
`StoreBroken` (what is on the disk is unknown; never call again), and any other `StoreError` (this
put was refused; the transaction is to be aborted).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Kv", "Txn"]


class Txn(Protocol):
    """A transaction: a snapshot to read, or the one writer. Keys are ordered as bytes."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or None."""

    def put(self, key: bytes, value: bytes) -> None:
        """Write a key, over its old value.

        Raises:
            StoreFull: There is no room.
            StoreError: This put is refused.
        """

    def delete(self, key: bytes) -> bool:
        """Remove a key; False if it was not there."""

    def range(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The pairs with `start <= key < stop`, in order. Nothing is written meanwhile."""

    def keys(self, start: bytes, stop: bytes) -> Iterator[bytes]:
        """The keys with `start <= key < stop`, in order. Nothing is written meanwhile."""

    def back(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The pairs with `start <= key < stop`, the greatest first."""

    def last(self, start: bytes, stop: bytes) -> bytes | None:
        """The greatest key with `start <= key < stop`, or None."""

    def used(self) -> int:
        """How many bytes the pages in use take."""

    def commit(self) -> None:
        """Make it durable in the engine's class, and end.

        Raises:
            StoreFull: There was no room; nothing was written.
            StoreBroken: It is unknown whether it is in the store; so after a failed sync.
        """

    def abort(self) -> None:
        """End without a trace. After the end it does nothing."""


class Kv(Protocol):
    """An open engine."""

    def begin(self, *, write: bool) -> Txn:
        """A new transaction; a writer waits for the writer before it."""

    def sync(self) -> None:
        """Make all that was committed survive a power loss."""

    def close(self) -> None:
        """Close. No transaction may be open."""
