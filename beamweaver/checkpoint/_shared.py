"""One open LMDB environment for a real path of a process, shared by all its checkpointers.

LMDB allows a process to open a path once. So checkpointers of one real path share a `Shared`, counted;
the last one that closes closes the environment, after the calls in it have ended.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import lmdb
import msgspec

from beamweaver.checkpoint._lmdb_kv import DATA_FILE, LmdbKv
from beamweaver.checkpoint._meta import read_epoch, read_meta
from beamweaver.checkpoint._owner import Owner, OwnerFile, owned, sweep
from beamweaver.checkpoint._place import make_folder, sync_folder, unavailable
from beamweaver.checkpoint._retention import finish_jobs
from beamweaver.checkpoint._takeover import raise_elsewhere
from beamweaver.checkpoint._upgrade import upgrade
from beamweaver.checkpoint.store import RecordWriter
from beamweaver.errors import (
    NotAStore,
    StoreError,
    StoreFull,
    StoreOwned,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from beamweaver.checkpoint._kv import Txn

__all__ = ["Options", "Shared", "open_shared", "replaced"]

T = TypeVar("T")


class Options(msgspec.Struct, frozen=True):
    """What must be equal for checkpointers that share a path."""

    survives: str
    max_bytes: int | None
    shallow: bool = False
    compress_above: int | None = None


class Shared:
    """An open environment, its writer, and who of this process owns it."""

    def __init__(self, path: Path, options: Options, kv: LmdbKv) -> None:
        name = f"store {str(path)!r}"
        self.path = path
        self.options = options
        self.pid = os.getpid()
        self.references = 0
        self._kv = kv
        self._name = name
        self.writer = RecordWriter(
            kv,
            name,
            max_bytes=options.max_bytes,
            shallow=options.shallow,
            compress_above=options.compress_above,
        )
        self._claim = threading.RLock()
        self._holder: object | None = None
        self._file: OwnerFile | None = None
        self._since = 0.0
        self._calls = 0
        self._cut_off = False
        """Whether this process was forked while a call ran."""
        self._closed = False
        self._mu = threading.Lock()
        self._idle = threading.Condition(self._mu)

    def read(self, call: Callable[[Txn], T], empty: T) -> T:
        """Answer a read from one snapshot, or with `empty` if the store holds nothing yet."""
        with self.busy():
            txn = self._kv.begin(write=False)
            try:
                return empty if read_meta(txn, self._name) is None else call(txn)
            finally:
                txn.abort()

    def each(self, items: Iterator[T]) -> Iterator[T]:
        """Each of the items, made while the environment is open."""
        while True:
            with self.busy():
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item

    def pinned(self) -> contextlib.AbstractContextManager[int]:
        """See `LmdbKv.pinned`."""
        return self._kv.pinned()

    def copy_to(self, target: Path) -> None:
        """Write a compact copy; see `LMDBCheckpointer.compact`."""
        make_folder(target)
        if any(target.iterdir()):
            raise NotAStore(f"{str(target)!r} is not empty. Give another path", path=str(target))
        with self.busy():
            self._kv.copy_to(target)

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """A call during which the environment stays open."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def enter(self) -> None:
        """Begin a call.

        Raises:
            StoreUnavailable: It was closed meanwhile.
        """
        with self._mu:
            if self._closed:
                raise self._was_closed()
            self._calls += 1

    def leave(self) -> None:
        """End a call."""
        with self._mu:
            self._calls -= 1
            if self._closed and not self._calls:
                self._idle.notify_all()

    def _was_closed(self) -> StoreUnavailable:
        return unavailable(self.path, "it was closed during the call", "Call again")

    def fits(self) -> bool:
        """Whether it may be used: while it is owned, or if its file is in place."""
        return self._holder is not None or (not self._closed and self.in_place())

    def in_place(self) -> bool:
        """See `LmdbKv.in_place`."""
        return self._kv.in_place()

    def lost(self) -> StoreUnavailable | None:
        """See `Checkpointer.lost`."""
        return replaced(self.path) if self._kv.lost() else None

    def _check_place(self) -> None:
        if not self.in_place():
            raise replaced(self.path)

    def retire(self) -> None:
        """Close an environment whose files were replaced. Those who refer to it attach anew.

        Raises:
            StoreUnavailable: It is owned, or a call is in it.
        """
        with self._claim, self._mu:
            if self._holder is not None or self._calls:
                raise replaced(self.path)
            self._closed = True
        self.writer.shut(self._was_closed)
        self._kv.close()

    def acquire(self, holder: object, now: float, force: float | None = None) -> int:
        """Take ownership for `holder` at `now` (UTC seconds); see `Checkpointer.acquire`.

        With `force`, a living owner loses it, if its write lock comes within so many seconds.
        """
        with self._claim, self.busy():
            self._check_place()
            me = Owner(os.getpid(), socket.gethostname(), now)
            if self._holder is not None and force is None:
                raise owned(self.path, Owner(me.pid, me.host, self._since))
            if self._kv.readonly:
                raise unavailable(self.path, "the folder is write-protected", "Make it writable")
            if self._holder is not None:
                self.release(self._holder)
            try:
                epoch = self._take(me)
            except StoreOwned as error:
                if force is None:
                    raise
                epoch = self._wrest(me, Owner(error.pid, error.host, error.since), force)
            self._holder, self._since = holder, me.since
            try:
                self._check_place()  # the lock is in the folder, the epoch in the file
                with contextlib.suppress(StoreFull):  # the next owner tries it again
                    finish_jobs(self.writer, epoch)
                    upgrade(self.writer, epoch)
            except StoreError:
                self.release(holder)
                raise
            return epoch

    def _wrest(self, me: Owner, other: Owner, seconds: float) -> int:
        """Take the store from a living process, whose next write will be refused."""
        while True:
            epoch = self.read(read_epoch, 0)
            new = OwnerFile.lock(self.path, epoch + 1, me)
            if self._keep(new, partial(raise_elsewhere, self.path, epoch, other, seconds)):
                self.writer.adopt(epoch + 1)
                self._file = new
                sweep(self.path, epoch + 1)
                return epoch + 1

    def _take(self, me: Owner) -> int:
        while True:
            epoch = self.read(read_epoch, 0)
            old = OwnerFile.lock(self.path, epoch, me)
            try:
                if self.read(read_epoch, 0) != epoch:
                    continue  # another one took it between our look and our lock
                if (
                    epoch == 0
                ):  # only now: a write by others could wait for an owner that is stopped
                    self.writer.initialise()
                new = OwnerFile.lock(self.path, epoch + 1, me)
                if self._keep(new, partial(self.writer.raise_epoch, epoch)):
                    self._file = new
                    sweep(self.path, epoch + 1)
                    return epoch + 1
            finally:
                old.close()

    def _keep(self, new: OwnerFile, raising: Callable[[], bool]) -> bool:
        """Raise the epoch; if that fails, let the lock of the next one go."""
        raised = False
        try:
            raised = raising()
        finally:
            if not raised:
                new.close()
        return raised

    def release(self, holder: object) -> None:
        """Give up what `holder` owns; of another holder nothing."""
        with self._claim:
            if self._holder is holder:
                self.writer.disown()
                self._holder = None
                if self._file is not None:
                    self._file.close()
                    self._file = None

    def shut(self) -> None:
        """Close the environment when the calls in it have ended."""
        with self._idle:
            self._closed = True
            while self._calls:
                self._idle.wait()
        self.writer.shut(self._was_closed)
        self._sync()
        self._kv.close()

    def rest(self) -> None:
        """At the process's end: give the ownership up, and have the disk hold all that was committed."""
        self.release(self._holder)
        self._sync()

    def _sync(self) -> None:
        if not self._kv.readonly:
            with contextlib.suppress(StoreError):
                self._kv.sync()

    def after_fork(self) -> None:
        """In a child: let go of the copy of the lock, so that it ends with its true holder."""
        # Asked on the thread that forked: a later one may be taken for the parent's that holds the lock.
        self._cut_off = self._calls > 0 or self.writer.busy
        if self._file is not None:
            self._file.after_fork()

    def shut_inherited(self) -> None:
        """In a child: close the copy of the environment, which leaves the parent's alone.

        Raises:
            StoreUnavailable: A call ran in it when the parent forked; closing would end the parent's call.
        """
        if self._cut_off:
            raise unavailable(
                self.path,
                "this process was forked while another worker used the store",
                "Start child processes by spawn or forkserver",
            )
        self._kv.close()


def replaced(path: Path) -> StoreUnavailable:
    """The error of a path whose files are other ones than those that are open."""
    return unavailable(
        path,
        "its files were removed or replaced while this process has them open, and what is written now would "
        "be lost",
        "Close all that uses it in this process (runtimes, graphs, LMDBCheckpointer.close()), then open it",
    )


def open_shared(path: Path, options: Options) -> Shared:
    """Open the environment of a path, and make the store if need be.

    Raises:
        NotAStore, StoreTooNew: It cannot be opened.
        StoreUnavailable: It cannot be opened.
    """
    make_folder(path)
    readonly = not os.access(path, os.W_OK)
    sync = options.survives == "power-loss"
    if not readonly and not (path / DATA_FILE).exists():
        _create(path, sync=sync)
    kv = _open_kv(path, sync=sync, readonly=readonly)
    shared = Shared(path, options, kv)
    try:
        shared.read(lambda _txn: None, None)
    except BaseException:  # whatever it is: give back what was taken, and let it pass
        kv.close()
        raise
    return shared


def _create(path: Path, *, sync: bool) -> None:
    """Make the file of an empty store beside its place, and put it there whole."""
    try:
        with tempfile.TemporaryDirectory(dir=path, ignore_cleanup_errors=True) as name:
            made = Path(name)
            kv = _open_kv(made, sync=sync, readonly=False)
            try:
                RecordWriter(kv, f"store {str(path)!r}").initialise()
            finally:
                kv.close()
            with contextlib.suppress(FileExistsError):  # another process was faster
                os.link(made / DATA_FILE, path / DATA_FILE)
        if sync:
            sync_folder(path)
    except OSError as error:
        if not (path / DATA_FILE).exists():
            cure = "Make the folder writable for this user, on a file system with links"
            raise unavailable(path, error.strerror or str(error), cure) from error


def _open_kv(path: Path, *, sync: bool, readonly: bool) -> LmdbKv:
    try:
        return LmdbKv(path, sync=sync, readonly=readonly)
    except (lmdb.InvalidError, lmdb.VersionMismatchError) as error:
        raise NotAStore(
            f"{str(path / DATA_FILE)!r} is not a store of beamweaver ({error}). Give another path",
            path=str(path),
        ) from error
    except (lmdb.Error, OSError) as error:
        raise unavailable(
            path, str(error), "Make the folder and its files readable and writable"
        ) from error
