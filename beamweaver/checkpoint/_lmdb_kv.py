"""LMDB as the engine of a store.

The map is opened at 1 TiB at once (sparse; it costs address space only) and never grown: growing it
under an open read transaction crashes. `writemap` stays off: with it a full disk is a SIGBUS.
A write transaction begins and ends on one worker.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from typing import TYPE_CHECKING, Final

import lmdb

from beamweaver.checkpoint._pages import first_lost
from beamweaver.errors import CorruptRecord, StoreBroken, StoreError, StoreFull, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["DATA_FILE", "LmdbKv", "LmdbTxn"]

DATA_FILE: Final = "data.mdb"
MAP_BYTES: Final = 1 << 40
MAX_READERS: Final = 4096
_PROBE_BYTES: Final = 1 << 16
_WRITES_A_CHECK: Final = 1024
"""How often the slots of readers that died are freed: such a reader keeps old pages, so the file grows."""
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class LmdbKv:
    """An LMDB environment with one unnamed database.

    Args:
        path: The folder; it must exist.
        sync: Whether a commit waits for the disk.
        readonly: Whether only reading is asked for (the folder may be write-protected).
    """

    def __init__(self, path: Path, *, sync: bool, readonly: bool = False) -> None:
        self.path = path
        self.readonly = readonly
        self._env = lmdb.open(
            str(path),
            map_size=MAP_BYTES,
            subdir=True,
            create=not readonly,
            readonly=readonly,
            lock=not readonly or os.access(path / "lock.mdb", os.W_OK),
            sync=sync,
            metasync=True,
            readahead=False,
            meminit=False,
            writemap=False,
            max_readers=MAX_READERS,
            # A spare read keeps a slot that a forked child's close would free under its parent.
            max_spare_txns=0,
            max_dbs=0,
        )
        self._writes = 0
        self._ended: StoreBroken | None = None
        """Why LMDB ended the environment, where a full disk made it."""
        self._file = _number(path)
        self._see_whole()
        if not readonly:
            self._env.reader_check()

    def _see_whole(self) -> None:
        """Refuse a file that has lost its end: to touch a page beyond it would kill the process.

        A file may rightly end before its last page, if that was never written. So only where it does are
        the pages in use looked at.

        Raises:
            CorruptRecord: A page in use is beyond the end.
        """
        pages = self._env.info()["last_pgno"] + 1
        size = (self.path / DATA_FILE).stat().st_size
        if pages * self._env.stat()["psize"] > size:
            lost = first_lost(self.path / DATA_FILE)
            if lost is not None:
                self._env.close()
                raise cut_short(self.path, size, f"page {lost.page} is lost: {lost.reason}")

    def in_place(self) -> bool:
        """Whether the file that is open is the one that the path leads to now.

        As long as it is open, no other file gets its number.
        """
        return _number(self.path) == self._file

    def lost(self) -> bool:
        """Whether the path leads to no file now, or to another one; not whether it cannot be looked at."""
        try:
            info = (self.path / DATA_FILE).stat()
        except OSError as error:
            return error.errno in (errno.ENOENT, errno.ENOTDIR)
        return (info.st_dev, info.st_ino) != self._file

    def begin(self, *, write: bool) -> LmdbTxn:
        """A new transaction; a writer waits for the writer before it."""
        if write:
            self._writes += 1
            if self._writes % _WRITES_A_CHECK == 0:
                self._env.reader_check()
        try:
            return LmdbTxn(self, self._env.begin(write=write, buffers=False))
        except lmdb.Error as error:
            raise self.explain(error) from error

    def sync(self) -> None:
        """Make all that was committed survive a power loss."""
        try:
            self._env.sync(True)
        except lmdb.Error as error:
            raise self.explain(error) from error

    @contextlib.contextmanager
    def pinned(self) -> Iterator[int]:
        """Hold the newest moment as long as the block runs; the number of its transaction."""
        with self._env.begin() as txn:
            yield txn.id()

    def copy_to(self, target: Path) -> None:
        """Write a compact copy into an empty folder, durably.

        Raises:
            StoreError: It cannot be written.
        """
        try:
            self._env.copy(str(target), compact=True)
            for path in (target / DATA_FILE, target):
                fd = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
        except (lmdb.Error, OSError) as error:
            raise StoreUnavailable(
                f"store {str(self.path)!r} cannot be copied to {str(target)!r}: {error}. Make room there, or "
                "give another path",
                path=str(target),
                reason=str(error),
            ) from error

    def close(self) -> None:
        """Close. No transaction may be open."""
        self._env.close()

    def explain(self, error: lmdb.Error) -> StoreError:
        """An LMDB error in the words of the seam."""
        code = getattr(error, "code", None)
        if isinstance(error, lmdb.MapFullError) or code in _NO_ROOM:
            return self._full(str(error))
        if code == errno.EIO:
            # LMDB reports a short write, which is a full disk, by the code of a broken one.
            reason = self._probe()
            if reason is not None:
                return self._full(reason)
            return self.broken(error)
        if isinstance(error, lmdb.PanicError) and self._ended is not None:
            return StoreBroken(self._ended.message, **self._ended.ids)
        if isinstance(error, (lmdb.PanicError, lmdb.CorruptedError, lmdb.PageNotFoundError)):
            return self.broken(error)
        return StoreError(f"store {str(self.path)!r} refused it: {error}", path=str(self.path))

    def _full(self, reason: str) -> StoreFull:
        return StoreFull(
            f"store {str(self.path)!r} is full ({reason}); nothing was written. "
            "Make room on the disk; the runtime goes on by itself",
            path=str(self.path),
        )

    def broken(self, error: lmdb.Error) -> StoreBroken:
        """The error of a write after which the disk's content is unknown."""
        return StoreBroken(
            f"store {str(self.path)!r}: a write to the disk failed ({error}), so what the disk holds is "
            "unknown. Check the disk, then start again: the store opens at its last complete commit",
            path=str(self.path),
        )

    def refused(self, full: StoreFull) -> StoreError:
        """The error of a commit that a full disk refused, after which LMDB may have ended the environment.

        It does if the page that names the newest transaction was refused. The disk may have that page all the
        same, so nobody can tell whether the commit is in the store, and no other may be built on it.
        """
        try:
            self._env.begin().abort()
        except lmdb.PanicError:
            self._ended = StoreBroken(
                f"store {str(self.path)!r}: the disk is full and refused the page that names the newest "
                "commit, so whether that is in the store is unknown. Make room on the disk, then start "
                "again: the store opens at its last complete commit",
                path=str(self.path),
            )
            return self._ended
        except lmdb.Error:  # it says nothing of the disk
            pass
        return full

    def _probe(self) -> str | None:
        """Why the disk takes no more, or None if it does."""
        try:
            with tempfile.TemporaryFile(dir=self.path) as file:
                file.seek((self.path / DATA_FILE).stat().st_size)
                file.write(bytes(_PROBE_BYTES))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            return error.strerror if error.errno in _NO_ROOM else None
        return None


def _number(path: Path) -> tuple[int, int] | None:
    """Which file the data of a store are: device and inode; None if there is none."""
    try:
        info = (path / DATA_FILE).stat()
    except OSError:
        return None
    return info.st_dev, info.st_ino


def cut_short(path: Path, size: int, reason: str) -> CorruptRecord:
    """The error of a data file that has lost its end, or all of itself."""
    return CorruptRecord(
        f"store {str(path)!r} is damaged: its file {DATA_FILE} has {size} bytes, and {reason}. Bring the "
        "file back from a copy; nothing was opened",
        key=DATA_FILE,
        path=str(path),
    )


class LmdbTxn:
    """A transaction of LMDB."""

    __slots__ = ("_kv", "_open", "_txn", "get")

    def __init__(self, kv: LmdbKv, txn: lmdb.Transaction[bytes]) -> None:
        self._kv = kv
        self._txn = txn
        self._open = True
        # LMDB's own method: there is nothing to say in other words, and it is the hottest read.
        self.get: Callable[[bytes], bytes | None] = txn.get

    def put(self, key: bytes, value: bytes) -> None:
        """Write a key, over its old value."""
        try:
            self._txn.put(key, value)
        except lmdb.Error as error:
            raise self._kv.explain(error) from error

    def delete(self, key: bytes) -> bool:
        """Remove a key; False if it was not there."""
        try:
            return self._txn.delete(key)
        except lmdb.Error as error:
            raise self._kv.explain(error) from error

    def range(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The pairs with `start <= key < stop`, in order."""
        with self._txn.cursor() as cursor:
            if cursor.set_range(start):
                for key, value in cursor.iternext():
                    if key >= stop:
                        return
                    yield key, value

    def keys(self, start: bytes, stop: bytes) -> Iterator[bytes]:
        """The keys with `start <= key < stop`, in order."""
        with self._txn.cursor() as cursor:
            if cursor.set_range(start):
                for key in cursor.iternext(keys=True, values=False):
                    if key >= stop:
                        return
                    yield key

    def back(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The pairs with `start <= key < stop`, the greatest first."""
        with self._txn.cursor() as cursor:
            found = cursor.prev() if cursor.set_range(stop) else cursor.last()
            if found:
                for key, value in cursor.iterprev():
                    if key < start:
                        return
                    yield key, value

    def last(self, start: bytes, stop: bytes) -> bytes | None:
        """The greatest key with `start <= key < stop`, or None."""
        with self._txn.cursor() as cursor:
            if not (cursor.prev() if cursor.set_range(stop) else cursor.last()):
                return None
            key = cursor.key()
            return key if key >= start else None

    def used(self) -> int:
        """How many bytes the pages in use take."""
        stat = self._txn.stat()
        pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        return int(pages) * int(stat["psize"])

    def commit(self) -> None:
        """Make it durable in the engine's class, and end."""
        self._open = False
        try:
            self._txn.commit()
        except lmdb.Error as error:
            explained = self._kv.explain(error)
            if isinstance(explained, StoreFull):
                raise self._kv.refused(explained) from error
            if isinstance(explained, StoreBroken):
                raise explained from error
            raise self._kv.broken(error) from error

    def abort(self) -> None:
        """End without a trace. After the end it does nothing."""
        if self._open:
            self._open = False
            with contextlib.suppress(lmdb.Error):
                self._txn.abort()
