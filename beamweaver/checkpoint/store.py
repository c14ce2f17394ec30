"""How threads are kept on an ordered key-value engine: the write side.

One writer at a time commits groups. Inside its transaction it compares the store's epoch with the
caller's (one read), and each record's `seq` with the thread's next one. The next `seq`s are cached: as
the epoch was just checked, nobody else can have written, so the cache is exact.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from beamweaver.checkpoint._edits import TxnEditable, due_of, move_due, move_status
from beamweaver.checkpoint._keys import order_key, sealed_key
from beamweaver.checkpoint._layout import (
    APPLICATION,
    ENDS,
    EPOCH,
    FORMAT_VERSION,
    INBOX,
    META,
    NAMES,
    RECORDS,
    ROWS,
    number,
    read_number,
    refused_id,
    seal,
    seal_small,
    sealed,
    tail,
    thread_key,
)
from beamweaver.checkpoint._meta import (
    Meta,
    fence_of,
    read_asleep,
    read_epoch,
    read_meta,
    write_asleep,
)
from beamweaver.checkpoint._prune import Pruning, all_rule
from beamweaver.checkpoint._reads import TxnStream, read_marks, read_row
from beamweaver.checkpoint._refusals import (
    check_names,
    conflict,
    first_record,
    lost_parent,
    unencodable,
)
from beamweaver.checkpoint._retention import finish_job
from beamweaver.checkpoint._stream import checkpoint_of
from beamweaver.checkpoint.base import no_faults
from beamweaver.checkpoint.records import (
    Commit,
    StatusName,
    ThreadRow,
    encode_record,
    encode_thread,
)
from beamweaver.errors import OwnershipLost, StoreBroken, StoreError, StoreFull

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from beamweaver.checkpoint._kv import Kv, Txn
    from beamweaver.checkpoint.base import Faults

__all__ = ["ASLEEP_STEP_US", "RecordWriter"]

_HEADS: Final = 20_000
ASLEEP_STEP_US: Final = 300_000_000
"""How much later than the kept time a thread may fall asleep without that time being kept."""
_NOTHING: Final[tuple[()]] = ()
_pack = msgspec.msgpack.encode
T = TypeVar("T")


class _Head:
    """What the writer knows of a thread: the next `seq`, and the status and due time that the indices hold.

    `checkpoint` is the last one that was written here, or -1 if that is not known.
    """

    __slots__ = ("checkpoint", "due", "next_seq", "records", "status", "tid")

    def __init__(self, tid: bytes, next_seq: int, row: ThreadRow | None) -> None:
        self.tid = tid
        self.records = RECORDS + tid
        self.next_seq = next_seq
        self.status: StatusName | None = None if row is None else row.status
        self.due = due_of(row)
        self.checkpoint = -1


class _Item:
    """A commit, encoded. It is kept until its group is acknowledged."""

    __slots__ = ("commit", "error", "head", "key", "more", "tid", "value")

    def __init__(self, commit: Commit, tid: bytes, compress_above: int | None) -> None:
        self.commit = commit
        self.tid = tid
        self.key = RECORDS + tid + number(commit.record.seq)
        data = encode_record(commit.record)
        large = compress_above is not None and len(data) > compress_above
        self.value = seal_small(self.key, data) if large else seal(self.key, data)
        self.more = (
            _more(commit, tid)
            if commit.thread is not None
            or commit.inbox_put
            or commit.run_names
            or commit.run_ended is not None
            or commit.key is not None
            else _NOTHING
        )
        self.head: _Head | None = None
        self.error: StoreError | None = None

    def size(self) -> int:
        return len(self.value) + sum(len(value) for _, value in self.more)


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
    if commit.key is not None:
        pairs.append(sealed_key(tid, commit.key.row))
    return tuple(pairs)


class RecordWriter:
    """The write side of a store. Its methods may be called from any worker; one runs at a time.

    Args:
        kv: The engine.
        name: How messages call the store.
        max_bytes: Above how many bytes of pages in use a commit is refused; None for no limit.
        shallow: Whether a commit removes the checkpoints before the head.
        compress_above: Records of more bytes are compressed; None for none.
    """

    def __init__(
        self,
        kv: Kv,
        name: str,
        *,
        max_bytes: int | None = None,
        shallow: bool = False,
        compress_above: int | None = None,
    ) -> None:
        self._kv = kv
        self._shallow = shallow
        self._compress_above = compress_above
        self._name = name
        self._max_bytes = max_bytes
        self._lock = threading.RLock()  # a finalizer may release inside a call
        self._heads: OrderedDict[str, _Head] = OrderedDict()
        self._epoch = -1
        self._fence = b""
        self._broken: StoreBroken | None = None
        self._asleep_us: int | None = None
        """When a thread fell asleep, as the store has it; None if that is not known here."""

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
                txn.put(EPOCH, fence_of(expected + 1))
                txn.commit()
            finally:
                txn.abort()
            self._kv.sync()
            self.adopt(expected + 1)
            return True

    def adopt(self, epoch: int) -> None:
        """Write for this epoch from now on; it was raised elsewhere."""
        with self._lock:
            self._heads.clear()
            self._asleep_us = None
            self._epoch, self._fence = epoch, fence_of(epoch)

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
                self._heads.popitem(last=False)
            items: list[_Item | StoreError] = []
            for commit in commits:  # no comprehension here and below: that is a call
                items.append(self._prepared(commit))  # noqa: PERF401
            try:
                written = self._group(epoch, items, faults)
            except (OwnershipLost, StoreFull, StoreBroken) as error:
                self._note(error)
                raise
            except StoreError as error:
                self._one_by_one(epoch, items, faults, error)
            else:
                if written and faults is not no_faults:
                    faults("sync.after")
            results: list[StoreError | None] = []
            for item in items:
                results.append(item.error if isinstance(item, _Item) else item)  # noqa: PERF401
            return results

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold everybody else off over several transactions."""
        with self._lock:
            yield

    def snapshot(self, look: Callable[[Txn], T]) -> T:
        """What `look` finds in one snapshot, with no regard to who owns the store."""
        txn = self._kv.begin(write=False)
        try:
            return look(txn)
        finally:
            txn.abort()

    def transact(self, epoch: int, change: Callable[[Txn], T], *, changes: str = "") -> T:
        """Make some other change in one transaction.

        Args:
            epoch: The epoch of the caller.
            change: What is to be done; if it raises, nothing of it is.
            changes: The thread that it changes.

        Raises:
            OwnershipLost: The store's epoch is another.
            StoreError: It could not be written.
        """
        with self._lock:
            self._heads.pop(changes, None)
            txn = self._kv.begin(write=True)
            try:
                self._check(txn, epoch)
                result = change(txn)
                txn.commit()
            except StoreError as error:
                self._note(error)
                raise
            finally:
                txn.abort()
                self._heads.pop(changes, None)
            return result

    # ---- a group -------------------------------------------------------------------------------

    def _prepared(self, commit: Commit) -> _Item | StoreError:
        """A commit, encoded, or why it can never be stored."""
        head = self._heads.get(commit.thread_id)
        tid = head.tid if head is not None else thread_key(commit.thread_id)
        if tid is None:
            return refused_id(commit.thread_id)
        try:
            return _Item(commit, tid, self._compress_above)
        except (ValueError, TypeError, OverflowError, msgspec.MsgspecError) as error:
            return unencodable(commit, error)

    def _group(self, epoch: int, items: Sequence[_Item | StoreError], faults: Faults) -> bool:
        """One transaction; whether it wrote. After an error nothing of it is in the store."""
        txn = self._kv.begin(write=True)
        written: list[_Item] = []
        try:
            self._check(txn, epoch)
            for item in items:
                if isinstance(item, _Item) and self._admit(txn, item, written):
                    written.append(item)
            if self._max_bytes is not None:
                self._check_room(txn, written)
            loud = faults is not no_faults
            for item in written:
                if loud:
                    faults("put.before")
                self._write(txn, item)
                if loud:
                    faults("put.after")
            if self._shallow:
                _keep_heads(txn, written)
            if written:
                if loud:
                    faults("sync.before")
                txn.commit()
                return True
        except BaseException:  # whatever ends it, what the heads say is not in the store
            self._asleep_us = None
            for item in written:
                self._heads.pop(item.commit.thread_id, None)
            txn.abort()
            raise
        txn.abort()
        return False

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

    def _has(self, txn: Txn, item: _Item, parent: int, group: Sequence[_Item]) -> bool:
        """Whether the checkpoint exists that a commit follows, in the store or in its own group."""
        if parent < 0:
            return True
        if checkpoint_of(TxnStream(txn, item.tid).get(parent)) is not None:
            return True
        thread_id = item.commit.thread_id
        return any(
            other.commit.thread_id == thread_id
            and other.commit.record.seq == parent
            and other.commit.record.checkpoint is not None
            for other in group
        )

    def _admit(self, txn: Txn, item: _Item, group: Sequence[_Item]) -> bool:
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
        checkpoint = commit.record.checkpoint
        if seq == 0 and (commit.thread is None or checkpoint is None):
            item.error = first_record(commit)
            return False
        if checkpoint is not None:
            parent = checkpoint.parent
            if parent != head.checkpoint and not self._has(txn, item, parent, group):
                item.error = lost_parent(commit, parent)
                return False
            head.checkpoint = seq
        head.next_seq = seq + 1
        item.head = head
        return True

    def _find(self, txn: Txn, thread_id: str, tid: bytes) -> _Head:
        """Read a thread's head, and keep it."""
        records = RECORDS + tid
        finish_job(txn, tid)
        key = txn.last(records, tail(records))
        next_seq = 0 if key is None else read_number(key) + 1
        next_seq = max(next_seq, read_marks(txn, tid).floor)
        row = read_row(txn, tid)
        head = _Head(tid, next_seq, row)
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
                self._index(txn, head, commit.thread, commit.record.at_us)
            if commit.key is not None:
                order_key(txn, head.tid, commit.key)
        for place in commit.inbox_drop:
            txn.delete(INBOX + head.tid + number(place))

    def _index(self, txn: Txn, head: _Head, row: ThreadRow, at_us: int) -> None:
        """Move a thread in the indices of statuses and due times."""
        if head.status != row.status:
            move_status(txn, head.tid, head.status, row.status)
        elif row.status != "sleeping":
            return
        head.status = row.status
        due = due_of(row)
        move_due(txn, head.tid, head.due, due)
        head.due = due
        if row.status == "sleeping":
            self._fell_asleep(txn, at_us)

    def _fell_asleep(self, txn: Txn, at_us: int) -> None:
        """Keep the time, now and then, so that who opens the store knows whether the clock was set back."""
        if self._asleep_us is None:
            self._asleep_us = read_asleep(txn) or 0
        if at_us > self._asleep_us + ASLEEP_STEP_US:
            write_asleep(txn, at_us)
            self._asleep_us = at_us


def _keep_heads(txn: Txn, items: Sequence[_Item]) -> None:
    """Remove the checkpoints before those that were just written."""
    threads = {i.commit.thread_id: i.tid for i in items if i.commit.record.checkpoint is not None}
    for thread_id, tid in threads.items():
        pruning = Pruning(thread_id, all_rule, None)
        while pruning.step(TxnEditable(txn, tid), read_marks(txn, tid))[1]:
            pass
