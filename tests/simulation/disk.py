"""A simulated ordered key-value engine in the place of LMDB, on a disk that survives its processes.

The code above the seam (`beamweaver/checkpoint/_kv.py`) is the production code. A commit changes what the
operating system has; a sync, or a commit with `sync=True`, what a power cut leaves. A disk may refuse a put,
be full for a while, fail in a sync, and let its process die just before or just after a commit.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Callable, Iterator

from beamweaver.checkpoint._layout import EPOCH, META
from beamweaver.errors import StoreBroken, StoreError, StoreFull

__all__ = ["Disk", "Ends", "SimKv", "SimTxn"]

Pairs = dict[bytes, bytes]


class Ends:
    """What a disk has to know of the process that uses it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.dying = False
        """It is dead: whatever it still does reaches nobody, and the disk least of all."""


class Disk:
    """What is kept, and what may go wrong; one object for all processes of a history.

    Args:
        fault: Says which fault strikes at an operation (`"put"`, `"commit"`, `"sync"`), or `""`.
    """

    def __init__(self, fault: Callable[[str], str] = lambda _operation: "") -> None:
        self.fault = fault
        self.pairs: Pairs = {}
        self.synced: Pairs = {}
        self.owner: Ends | None = None
        self.full = False
        self.writing: SimTxn | None = None
        self.commits = 0
        self.stale: list[str] = []
        """Writes that another than the owner got through."""

    def cut(self) -> None:
        """A power cut: what was not synced is lost."""
        self.pairs = self.synced

    def judge(self, who: Ends, changed: set[bytes]) -> None:
        """Nobody but the owner writes, but for who takes the store."""
        if who is not self.owner and changed - {EPOCH, META}:
            self.stale.append(f"process {who.number} wrote {sorted(changed)[:3]}")


class SimKv:
    """An engine on a disk, as one process has it open.

    Args:
        disk: What it is on.
        process: Whose it is.
        sync: Whether a commit is a sync too.
    """

    readonly = False

    def __init__(self, disk: Disk, process: Ends, *, sync: bool) -> None:
        self.disk = disk
        self.process = process
        self.sync_commits = sync
        self.open = True

    def begin(self, *, write: bool) -> SimTxn:
        """A new transaction."""
        self.check()
        disk = self.disk
        if write:
            assert disk.writing is None or disk.writing.kv.process.dying, "two writers at once"
        txn = SimTxn(self, disk.pairs, write=write)
        if write:
            disk.writing = txn
        return txn

    def sync(self) -> None:
        """Make all that was committed survive a power cut."""
        self.check()
        self.disk.synced = self.disk.pairs

    @contextlib.contextmanager
    def pinned(self) -> Iterator[int]:
        """Hold the newest moment; the number of its transaction."""
        yield self.disk.commits

    def in_place(self) -> bool:
        """Nobody replaces the files of a simulated disk."""
        return True

    def close(self) -> None:
        """Close."""
        self.open = False

    def check(self) -> None:
        """The dead do nothing."""
        if self.process.dying:
            raise StoreBroken(f"process {self.process.number} is dead")
        assert self.open, "the engine is closed"


class SimTxn:
    """A transaction: a snapshot, and for the writer what it changes."""

    def __init__(self, kv: SimKv, pairs: Pairs, *, write: bool) -> None:
        self.kv = kv
        self._base = pairs
        self._pairs = dict(pairs) if write else pairs
        self._write = write
        self._keys: list[bytes] | None = None
        self._changed: set[bytes] = set()
        self._open = True

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or None."""
        return self._pairs.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        """Write a key."""
        self.kv.check()
        disk = self.kv.disk
        if disk.full:
            raise StoreFull("the disk is full")
        if disk.fault("put") == "refused":
            raise StoreError("this put was refused")
        if key not in self._pairs:
            self._keys = None
        self._pairs[key] = value
        self._changed.add(key)

    def delete(self, key: bytes) -> bool:
        """Remove a key; False if it was not there."""
        self.kv.check()
        if self._pairs.pop(key, None) is None:
            return False
        self._keys = None
        self._changed.add(key)
        return True

    def range(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The pairs with `start <= key < stop`, in order."""
        for key in self.keys(start, stop):
            yield key, self._pairs[key]

    def keys(self, start: bytes, stop: bytes) -> Iterator[bytes]:
        """The keys with `start <= key < stop`, in order."""
        found = self._sorted()
        yield from found[bisect_left(found, start) : bisect_left(found, stop)]

    def back(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The pairs with `start <= key < stop`, the greatest first."""
        for key in reversed(list(self.keys(start, stop))):
            yield key, self._pairs[key]

    def last(self, start: bytes, stop: bytes) -> bytes | None:
        """The greatest key with `start <= key < stop`, or None."""
        found = self._sorted()
        at = bisect_left(found, stop) - 1
        return found[at] if at >= 0 and found[at] >= start else None

    def used(self) -> int:
        """How many bytes the values take."""
        return sum(map(len, self._pairs.values()))

    def commit(self) -> None:
        """Make it durable in the engine's class, and end."""
        self._open = False
        kv, disk = self.kv, self.kv.disk
        kv.check()
        if disk.writing is self:
            disk.writing = None
        if not self._changed:
            return
        assert self._base is disk.pairs, "somebody wrote beside the writer"
        what = disk.fault("commit")
        if what == "full":
            raise StoreFull("the disk is full")
        if what == "dies before":
            self._die()
        if what == "broken before":
            raise StoreBroken("the sync failed; nothing of it is on the disk")
        disk.judge(kv.process, self._changed)
        disk.pairs = self._pairs
        disk.commits += 1
        if what == "broken after":
            raise StoreBroken("the sync failed; what the disk has is unknown")
        if kv.sync_commits:
            disk.synced = disk.pairs
        if what == "dies after":
            self._die()

    def _die(self) -> None:
        self.kv.process.dying = True
        raise StoreBroken(f"process {self.kv.process.number} died in its commit")

    def abort(self) -> None:
        """End without a trace."""
        self._open = False
        if self.kv.disk.writing is self:
            self.kv.disk.writing = None

    def _sorted(self) -> list[bytes]:
        if self._keys is None:
            self._keys = sorted(self._pairs)
        return self._keys
