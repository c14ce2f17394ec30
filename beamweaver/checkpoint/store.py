"""How threads are kept on an ordered key-value engine: the write side.

One writer at a time commits groups. Inside its transaction it compares the store's epoch with the
caller's (one read), and each record's `seq` with the thread's next one. The next `seq`s are cached: as
the epoch was just checked, nobody else can have written, so the cache is exact.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import msgspec

from beamweaver.checkpoint._layout import (
    APPLICATION,
    ENDS,
    EPOCH,
    FORMAT_VERSION,
    INBOX,
    META,
    NAMES,
    NUMBER_BYTES,
    RECORDS,
    ROWS,
    STATUS_CODES,
    corrupt,
    number,
    refused_id,
    seal,
    sealed,
    status_key,
    tail,
    thread_key,
    unseal,
)
from beamweaver.checkpoint.records import (
    Commit,
    StatusName,
    decode_thread,
    encode_record,
    encode_thread,
)
from beamweaver.errors import (
    NotAStore,
    OwnershipLost,
    StoreBroken,
    StoreConflict,
    StoreError,
    StoreFull,
    StoreTooNew,
)
from beamweaver.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from beamweaver.checkpoint._kv import Kv, Txn
    from beamweaver.checkpoint.base import Faults

__all__ = [
    "Meta",
    "RecordWriter",
    "check_names",
    "conflict",
    "first_record",
    "read_epoch",
    "read_meta",
    "unencodable",
]

_HEADS: Final = 20_000
_NOTHING: Final[tuple[()]] = ()
_pack = msgspec.msgpack.encode
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


class _Head:
    """What the writer knows of a thread: the next `seq` and the status that the index holds."""

    __slots__ = ("next_seq", "records", "status", "tid")

    def __init__(self, tid: bytes, next_seq: int, status: StatusName | None) -> None:
        self.tid = tid
        self.records = RECORDS + tid
        self.next_seq = next_seq
        self.status = status


class _Item:
    """A commit, encoded. It is kept until its group is acknowledged."""

    __slots__ = ("commit", "error", "head", "key", "more", "tid", "value")

    def __init__(self, commit: Commit, tid: bytes) -> None:
        self.commit = commit
        self.tid = tid
        self.key = RECORDS + tid + number(commit.record.seq)
        self.value = seal(self.key, encode_record(commit.record))
        self.more = _more(commit, tid) if _has_more(commit) else _NOTHING
        self.head: _Head | None = None
        self.error: StoreError | None = None

    def size(self) -> int:
        return len(self.value) + sum(len(value) for _, value in self.more)


def _has_more(commit: Commit) -> bool:
    return (
        commit.thread is not None
        or commit.inbox_put != ()
        or commit.run_names != ()
        or commit.run_ended is not None
    )


def _more(commit: Commit, tid: bytes) -> tuple[tuple[bytes, bytes], ...]:
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
    return tuple(pairs)


class RecordWriter:
    """The write side of a store. Its methods may be called from any worker; one runs at a time.

    Args:
        kv: The engine.
        name: How messages call the store.
        max_bytes: Above how many bytes of pages in use a commit is refused; None for no limit.
    """

    def __init__(self, kv: Kv, name: str, *, max_bytes: int | None = None) -> None:
        self._kv = kv
        self._name = name
        self._max_bytes = max_bytes
        self._lock = threading.RLock()  # a finalizer may release inside a call
        self._heads: dict[str, _Head] = {}
        self._epoch = -1
        self._fence = b""
        self._broken: StoreBroken | None = None

    def initialise(self) -> None:
        """Write what a new store says of itself, unless it is written."""
        txn = self._kv.begin(write=True)
        try:
            if read_meta(txn, self._name) is None:
                txn.put(META, seal(META, _pack(Meta(APPLICATION, FORMAT_VERSION))))
                txn.commit()
        finally:
            txn.abort()

    def raise_epoch(self, expected: int) -> bool:
        """Become the owner after epoch `expected`, durably; False if the epoch is another by now."""
        with self._lock:
            txn = self._kv.begin(write=True)
            try:
                if read_epoch(txn) != expected:
                    return False
                fence = seal(EPOCH, _pack(expected + 1))
                txn.put(EPOCH, fence)
                txn.commit()
            finally:
                txn.abort()
            self._kv.sync()
            self._heads.clear()
            self._epoch, self._fence = expected + 1, fence
            return True

    def disown(self) -> None:
        """Refuse every commit from now on, until the epoch is raised again."""
        with self._lock:
            self._epoch, self._fence = -1, b""
            self._heads.clear()

    def commit(
        self, epoch: int, commits: Sequence[Commit], faults: Faults
    ) -> list[StoreError | None]:
        """Write a group; see `Checkpointer.commit`."""
        with self._lock:
            while len(self._heads) > _HEADS:  # never within a group, whose threads must stay known
                del self._heads[next(iter(self._heads))]
            items = [self._prepared(commit) for commit in commits]
            try:
                written = self._group(epoch, items, faults)
            except (OwnershipLost, StoreFull, StoreBroken) as error:
                self._note(error)
                raise
            except StoreError as error:
                self._one_by_one(epoch, items, faults, error)
            else:
                if written:
                    faults("sync.after")
            return [item.error if isinstance(item, _Item) else item for item in items]

    def delete_thread(self, epoch: int, thread_id: str) -> bool:
        """Remove all of a thread; see `Checkpointer.delete_thread`."""
        tid = thread_key(thread_id)
        with self._lock:
            txn = self._kv.begin(write=True)
            try:
                self._check(txn, epoch)
                if tid is None or txn.get(ROWS + tid) is None:
                    return False
                for key in _keys_of(txn, tid):
                    txn.delete(key)
                self._heads.pop(thread_id, None)
                txn.commit()
            except StoreError as error:
                self._note(error)
                raise
            finally:
                txn.abort()
            return True

    # ---- a group -------------------------------------------------------------------------------

    def _prepared(self, commit: Commit) -> _Item | StoreError:
        """A commit, encoded, or why it can never be stored."""
        head = self._heads.get(commit.thread_id)
        tid = head.tid if head is not None else thread_key(commit.thread_id)
        if tid is None:
            return refused_id(commit.thread_id)
        try:
            return _Item(commit, tid)
        except (ValueError, TypeError, OverflowError, msgspec.MsgspecError) as error:
            return unencodable(commit, error)

    def _group(self, epoch: int, items: Sequence[_Item | StoreError], faults: Faults) -> bool:
        """One transaction; whether it wrote. After an error nothing of it is in the store."""
        txn = self._kv.begin(write=True)
        written: list[_Item] = []
        try:
            self._check(txn, epoch)
            for item in items:
                if isinstance(item, _Item) and self._admit(txn, item):
                    written.append(item)  # noqa: PERF401 known even if a later one raises
            if self._max_bytes is not None:
                self._check_room(txn, written)
            for item in written:
                faults("put.before")
                self._write(txn, item)
                faults("put.after")
            if written:
                faults("sync.before")
                txn.commit()
        except BaseException:  # whatever ends it, what the heads say is not in the store
            for item in written:
                self._heads.pop(item.commit.thread_id, None)
            raise
        finally:
            txn.abort()
        return bool(written)

    def _one_by_one(
        self,
        epoch: int,
        items: Sequence[_Item | StoreError],
        faults: Faults,
        refused: StoreError,
    ) -> None:
        """Write a group whose puts were refused so that only the culprit fails."""
        encoded = [item for item in items if isinstance(item, _Item)]
        if len(encoded) == 1:
            encoded[0].error = refused
            return
        for item in encoded:
            try:
                written = self._group(epoch, [item], faults)
            except StoreError as error:
                self._note(error)
                if isinstance(error, StoreBroken):
                    raise
                item.error = error
            else:
                if written:
                    faults("sync.after")

    def _note(self, error: StoreError) -> None:
        if isinstance(error, StoreBroken):
            self._broken = error

    def _check(self, txn: Txn, epoch: int) -> None:
        """The fence: the caller is the owner that the store names."""
        if self._broken is not None:
            raise StoreBroken(self._broken.message, **self._broken.ids)
        if epoch == self._epoch and txn.get(EPOCH) == self._fence:
            return
        now = read_epoch(txn)
        raise OwnershipLost(
            f"{self._name} is at epoch {now} and this write is of epoch {epoch}: "
            + ("another owner took the store" if now != epoch else "its owner released the store")
            + ". Nothing was written; acquire the store again",
            epoch=epoch,
            store_epoch=now,
        )

    def _check_room(self, txn: Txn, items: Sequence[_Item]) -> None:
        wanted = sum(item.size() for item in items)
        used = txn.used()
        if self._max_bytes is not None and items and used + wanted > self._max_bytes:
            raise StoreFull(
                f"{self._name} uses {used} bytes, {wanted} more are to be written, and max_bytes is "
                f"{self._max_bytes}; nothing was written. Raise max_bytes, or delete threads",
                used=used,
                max_bytes=self._max_bytes,
            )

    def _admit(self, txn: Txn, item: _Item) -> bool:
        """Whether an item's `seq` is the next one; if not, the item carries its error."""
        commit = item.commit
        item.error = None
        head = self._heads.get(commit.thread_id)
        if head is None:
            try:
                head = self._find(txn, commit.thread_id, item.tid)
            except StoreError as error:
                item.error = error
                return False
        seq = commit.record.seq
        if seq != head.next_seq:
            item.error = conflict(commit, head.next_seq)
            return False
        if seq == 0 and (commit.thread is None or commit.record.checkpoint is None):
            item.error = first_record(commit)
            return False
        head.next_seq = seq + 1
        item.head = head
        return True

    def _find(self, txn: Txn, thread_id: str, tid: bytes) -> _Head:
        """Read a thread's head, and keep it."""
        records = RECORDS + tid
        key = txn.last(records, tail(records))
        next_seq = 0 if key is None else int.from_bytes(key[-NUMBER_BYTES:], "big") + 1
        row = txn.get(ROWS + tid)
        try:
            status = None if row is None else decode_thread(unseal(ROWS + tid, row)).status
        except msgspec.DecodeError as error:
            raise corrupt(ROWS + tid, str(error)) from error
        head = _Head(tid, next_seq, status)
        self._heads[thread_id] = head
        return head

    def _write(self, txn: Txn, item: _Item) -> None:
        """All puts and deletes of one commit."""
        commit, head = item.commit, item.head
        if head is None:
            raise StoreError("a commit that was not admitted is never written")
        txn.put(item.key, item.value)
        for seq in commit.clears:
            txn.delete(head.records + number(seq))
        if item.more:
            for key, value in item.more:
                txn.put(key, value)
            if commit.thread is not None:
                self._index(txn, head, commit.thread.status)
        for place in commit.inbox_drop:
            txn.delete(INBOX + head.tid + number(place))

    def _index(self, txn: Txn, head: _Head, status: StatusName) -> None:
        """Move a thread in the index of statuses."""
        if head.status == status:
            return
        if head.status is not None:
            txn.delete(status_key(head.status, head.tid))
        txn.put(status_key(status, head.tid), seal(status_key(status, head.tid), b""))
        head.status = status


def _keys_of(txn: Txn, tid: bytes) -> list[bytes]:
    """Every key of a thread."""
    keys: list[bytes] = []
    for kind in (RECORDS, NAMES, ENDS, INBOX):
        keys += [key for key, _ in txn.range(kind + tid, tail(kind + tid))]
    keys.append(ROWS + tid)
    keys += [status_key(status, tid) for status in STATUS_CODES]
    return keys


def check_names(commit: Commit) -> None:
    """See that a commit's run ids can be keys.

    Raises:
        ValueError: One is empty, too long, or not text.
    """
    for name, _ in commit.run_names:
        size = len(name.encode())
        if not 0 < size <= DEFAULT_LIMITS.run_id_bytes:
            raise ValueError(
                f"run id {name!r} has {size} bytes; give 1 to {DEFAULT_LIMITS.run_id_bytes}"
            )


def unencodable(commit: Commit, error: Exception) -> StoreError:
    """The error of a commit that has no bytes."""
    return StoreError(
        f"record {commit.record.seq} of thread {commit.thread_id!r} cannot be encoded: {error}",
        thread_id=commit.thread_id,
        seq=commit.record.seq,
    )


def conflict(commit: Commit, next_seq: int) -> StoreConflict:
    """The error of a record that is not the next one."""
    return StoreConflict(
        f"record {commit.record.seq} of thread {commit.thread_id!r} is not the next one, which is "
        f"{next_seq}; it was not written. Load the thread again",
        thread_id=commit.thread_id,
        seq=commit.record.seq,
        next_seq=next_seq,
    )


def first_record(commit: Commit) -> StoreError:
    """The error of a first record that brings no row or no checkpoint."""
    return StoreError(
        f"the first record of thread {commit.thread_id!r} must bring the thread's row and a checkpoint",
        thread_id=commit.thread_id,
        seq=0,
    )
