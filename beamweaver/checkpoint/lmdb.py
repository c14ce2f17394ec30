"""Threads kept on a disk, in LMDB."""

from __future__ import annotations

import os
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from beamweaver.checkpoint._history import Ask, Page, history
from beamweaver.checkpoint._keys import count_keys, read_key
from beamweaver.checkpoint._lmdb_kv import DATA_FILE
from beamweaver.checkpoint._meta import read_asleep, read_epoch
from beamweaver.checkpoint._owner import has_locks, lives
from beamweaver.checkpoint._place import check_kind, unavailable
from beamweaver.checkpoint._reads import (
    check_paging,
    read_history,
    read_image,
    read_inbox_threads,
    read_run_end,
    read_run_number,
    read_sleepers,
    read_threads,
)
from beamweaver.checkpoint._registry import attach, check_options, detach, forget, settle
from beamweaver.checkpoint._retention import copy, delete, delete_runs, move_head, prune
from beamweaver.checkpoint._shared import Options, Shared
from beamweaver.checkpoint.base import Checkpointer
from beamweaver.errors import NotAStore, OwnershipLost, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from beamweaver.checkpoint.records import (
        Commit,
        MessageKey,
        StatusName,
        ThreadImage,
        ThreadRow,
        ThreadSummary,
    )

__all__ = ["LMDBCheckpointer"]


class LMDBCheckpointer(Checkpointer):
    """Keeps threads in a folder on a local disk.

    Making one touches no disk, beyond a look at what the path is; the store is opened, and made if need
    be, at its first use. Checkpointers of one real path share one environment in a process. One
    process at a time owns a store; any process may read it meanwhile.

    Args:
        path: The store's folder. Its parent must exist.
        survives: What an acknowledged commit survives. `"power-loss"`: it is on the disk.
            `"process-kill"`: the operating system has it; it survives the death of the process, but a
            power cut may then leave the **whole file unreadable**.
        max_bytes: Above how many bytes of data a commit is refused with `StoreFull`; None: only the
            disk ends it. Deleting threads makes room.
        shallow: Keep nothing of a thread but its head: each commit removes the checkpoints before it.
        compress_above: Records of more bytes than this are compressed with zlib; None for none. It may
            change from one opening to the next.

    Raises:
        NotAStore: The path is a file, or a folder with other content.
        StoreUnavailable: The path cannot be, or this platform has no file locks.
        StoreOptionsDiffer: The path is open in this process with other options.
        ValueError: An option is wrong.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> store = LMDBCheckpointer(folder.name + "/state.lmdb", survives="process-kill")
        >>> store.load("order-17") is None
        True
        >>> store.acquire()
        1
        >>> store.close(); folder.cleanup()
    """

    durable: ClassVar[bool] = True
    takeover_seconds: float = 5.0
    """How long a forced takeover waits for a write of the old owner to end, in seconds."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        survives: Literal["power-loss", "process-kill"] = "power-loss",
        max_bytes: int | None = None,
        shallow: bool = False,
        compress_above: int | None = None,
    ) -> None:
        if survives not in ("power-loss", "process-kill"):
            raise ValueError(f"survives is {survives!r}; give 'power-loss' or 'process-kill'")
        for name, size in (("max_bytes", max_bytes), ("compress_above", compress_above)):
            number = isinstance(size, int) and not isinstance(size, bool)
            if size is not None and not (number and size > 0):
                raise ValueError(f"{name} is {size!r}; give a number of bytes, or None")
        text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        if not text or "\x00" in text:
            raise ValueError(f"path is {path!r}; give the path of a folder")
        self._path = Path(os.path.realpath(text))
        self._options = Options(survives, max_bytes, shallow, compress_above)
        self.gains_by_groups = True
        self.blocks = survives == "power-loss"
        if not has_locks():
            raise unavailable(
                self._path, "this platform has no fcntl locks", "Use Linux, macOS or WSL"
            )
        check_kind(self._path)
        check_options(self._path, self._options)
        self._token = object()  # stands for this one; the environment must not keep it alive
        self._opening = threading.RLock()
        self._shared: Shared | None = None
        self._finalizer: weakref.finalize[[Shared, object], LMDBCheckpointer] | None = None

    def __repr__(self) -> str:
        return f"LMDBCheckpointer({str(self._path)!r}, survives={self._options.survives!r})"

    @property
    def identity(self) -> str:
        """The real path."""
        return str(self._path)

    @property
    def exists(self) -> bool:
        """Whether its file is there."""
        return (self._path / DATA_FILE).exists()

    @property
    def spool(self) -> Path | None:
        """The folder `inbox` in the store's own."""
        return self._path / "inbox"

    @property
    def survives(self) -> str:
        """What an acknowledged commit survives."""
        return self._options.survives

    def owner_lives(self) -> bool | None:
        """Whether a process owns the store now; see `Checkpointer.owner_lives`."""
        shared = self._existing()
        if shared is None:
            return False
        epoch = -1
        found: bool | None = False
        # An owner that comes meanwhile raises the epoch.
        while found is False and epoch != (epoch := shared.read(read_epoch, 0)):
            found = lives(self._path, epoch)
        return found

    def lost(self) -> StoreError | None:
        """Whether its files were removed or replaced; see `Checkpointer.lost`."""
        shared = self._shared
        return None if shared is None else shared.lost()

    def acquire(self, *, wait: float = 0.0, takeover: Literal["force"] | None = None) -> int:
        """Take ownership; see `Checkpointer.acquire`."""

        def take(force: bool) -> int:
            seconds = self.takeover_seconds if force else None
            settle()  # its owner may be one that nobody holds any more
            return self._opened().acquire(self._token, self.now(), seconds)

        return self._patiently(take, wait, takeover)

    def release(self) -> None:
        """Give ownership up; see `Checkpointer.release`."""
        shared = self._shared
        if shared is not None and shared.pid == os.getpid():
            shared.release(self._token)

    def commit(self, epoch: int, commits: Sequence[Commit]) -> list[StoreError | None]:
        """Write a group; see `Checkpointer.commit`."""
        shared = self._shared
        if shared is None or shared.pid != os.getpid():
            shared = self._owned(epoch)
        # No `busy()`, which takes a lock twice: the writer has one of its own, for which a close waits.
        return shared.writer.commit(epoch, commits, self.faults)

    def set_head(self, epoch: int, thread_id: str, seq: int, row: ThreadRow | None = None) -> bool:
        """Make another checkpoint the head; see `Checkpointer.set_head`."""
        shared = self._owned(epoch)
        with shared.busy():
            return move_head(shared.writer, epoch, thread_id, seq, row)

    def copy_thread(self, epoch: int, source: str, target: str) -> bool:
        """Copy a thread; see `Checkpointer.copy_thread`."""
        shared = self._owned(epoch)
        with shared.busy():
            return copy(shared.writer, epoch, source, target)

    def delete_runs(self, epoch: int, thread_id: str, run_ids: Iterable[str]) -> int:
        """Remove runs; see `Checkpointer.delete_runs`."""
        shared = self._owned(epoch)
        with shared.busy():
            return delete_runs(shared.writer, epoch, thread_id, frozenset(run_ids))

    def prune(
        self,
        epoch: int,
        thread_ids: Iterable[str] | None = None,
        *,
        keep_last: int = 1,
        older_than: float | None = None,
    ) -> Iterator[int]:
        """Remove old checkpoints; see `Checkpointer.prune`."""
        rule = self._rule(keep_last, older_than)
        shared = self._owned(epoch)
        return shared.each(prune(shared.writer, epoch, thread_ids, rule))

    def delete_thread(self, epoch: int, thread_id: str) -> bool:
        """Remove all of a thread; see `Checkpointer.delete_thread`."""
        shared = self._owned(epoch)
        with shared.busy():
            return delete(shared.writer, epoch, thread_id)

    def load(
        self, thread_id: str, seq: int | None = None, *, entries: bool = False
    ) -> ThreadImage | None:
        """The head of a thread, or one checkpoint; see `Checkpointer.load`."""
        shared = self._existing()
        if shared is None:
            return None
        return shared.read(lambda txn: read_image(txn, thread_id, seq, entries=entries), None)

    def history(
        self,
        thread_id: str,
        *,
        before: int | None = None,
        limit: int | None = None,
        values: bool = True,
    ) -> Iterator[ThreadImage]:
        """The checkpoints of a thread, newest first; see `Checkpointer.history`."""

        def page_of(at: int | None, ask: Ask) -> Page | None:
            shared = self._existing()
            if shared is None:
                return None
            return shared.read(lambda txn: read_history(txn, thread_id, at, ask), None)

        return history(page_of, before=before, limit=limit, values=values)

    def run_number(self, thread_id: str, run_id: str) -> int | None:
        """The number of a run; see `Checkpointer.run_number`."""
        shared = self._existing()
        if shared is None:
            return None
        return shared.read(lambda txn: read_run_number(txn, thread_id, run_id), None)

    def run_end(self, thread_id: str, number: int) -> int | None:
        """The checkpoint that completed a run; see `Checkpointer.run_end`."""
        shared = self._existing()
        if shared is None:
            return None
        return shared.read(lambda txn: read_run_end(txn, thread_id, number), None)

    def message_key(self, thread_id: str, key: str) -> MessageKey | None:
        """What is kept of an idempotency key; see `Checkpointer.message_key`."""
        shared = self._existing()
        if shared is None:
            return None
        return shared.read(lambda txn: read_key(txn, thread_id, key), None)

    def message_keys(self, thread_id: str) -> int:
        """How many keys are kept; see `Checkpointer.message_keys`."""
        shared = self._existing()
        return 0 if shared is None else shared.read(lambda txn: count_keys(txn, thread_id), 0)

    def threads(
        self, *, statuses: Iterable[StatusName] | None = None, after: str = "", limit: int = 1_000
    ) -> Iterator[ThreadSummary]:
        """Threads by status and id, all of one snapshot; see `Checkpointer.threads`."""
        wanted = check_paging(statuses, after)
        shared = self._existing()
        if shared is None:
            return iter(())
        nothing: list[ThreadSummary] = []
        return iter(shared.read(lambda txn: read_threads(txn, wanted, after, limit), nothing))

    def sleepers(
        self, *, after: tuple[int, str] | None = None, limit: int = 1_000
    ) -> Iterator[ThreadSummary]:
        """The sleeping threads by due time, all of one snapshot; see `Checkpointer.sleepers`."""
        shared = self._existing()
        if shared is None:
            return iter(())
        nothing: list[ThreadSummary] = []
        return iter(shared.read(lambda txn: read_sleepers(txn, after, limit), nothing))

    def asleep_us(self) -> int | None:
        """When a thread last fell asleep; see `Checkpointer.asleep_us`."""
        shared = self._existing()
        nothing: int | None = 0
        return nothing if shared is None else shared.read(read_asleep, nothing)

    def inbox_threads(self, *, after: str = "", limit: int = 1_000) -> Iterator[str]:
        """Threads with messages, all of one snapshot; see `Checkpointer.inbox_threads`."""
        shared = self._existing()
        if shared is None:
            return iter(())
        nothing: list[str] = []
        return iter(shared.read(lambda txn: read_inbox_threads(txn, after, limit), nothing))

    def compact(self, target: str | os.PathLike[str]) -> None:
        """Write a copy without free pages into a new folder: one moment of the store, durably.

        It needs no ownership and writes nothing into this store, but while it runs the pages of that
        moment are not used again, so a store that is written meanwhile grows. To put the copy in the
        store's place, close all that use it and rename the folders.

        Args:
            target: The path of the new store; nothing may be there, or an empty folder.

        Raises:
            NotAStore: Something is there, or this store holds nothing yet.
            StoreUnavailable: The target cannot be written.
        """
        place = Path(os.path.realpath(os.fsdecode(target)))
        shared = self._existing()
        if shared is None:
            raise NotAStore(f"{self!r} holds nothing that could be copied", path=str(self._path))
        shared.copy_to(place)

    def close(self) -> None:
        """Release ownership and close; see `Checkpointer.close`.

        A runtime or graph that was given a checkpointer releases the store at its own close, and leaves the
        checkpointer open. The files are let go when the last checkpointer of the path in this process is
        closed (or collected as garbage): close it before you replace, move or remove the folder.
        """
        with self._opening:
            shared, self._shared = self._shared, None
            finalizer, self._finalizer = self._finalizer, None
            if shared is not None and finalizer is not None:
                finalizer.detach()
                detach(shared, self._token)

    def _opened(self) -> Shared:
        """The environment, opened and made if need be."""
        shared = self._attached(create=True)
        if shared is None:
            raise unavailable(self._path, "it vanished", "Try again")
        return shared

    def _existing(self) -> Shared | None:
        """The environment, opened if the store exists."""
        return self._attached(create=False)

    def _owned(self, epoch: int) -> Shared:
        """The environment for a write; who has not opened it owns nothing."""
        shared = self._existing()
        if shared is None:
            raise OwnershipLost(
                f"{self!r} does not exist; acquire it before writing", epoch=epoch, store_epoch=0
            )
        return shared

    def _attached(self, *, create: bool) -> Shared | None:
        shared = self._shared
        if shared is not None and shared.pid == os.getpid() and shared.fits():
            return shared
        with self._opening:
            shared = self._shared
            if shared is not None and shared.pid == os.getpid() and shared.fits():
                return shared
            shared = attach(self._path, self._options, create=create)
            self.close()  # the one before: another process's, or its files were replaced
            if shared is not None:
                self._shared = shared
                self._finalizer = weakref.finalize(self, forget, shared, self._token)
                self._finalizer.atexit = False  # the registry sees to that
            return shared
