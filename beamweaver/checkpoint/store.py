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

from beamweaver.checkpoint._edits import due_of, move_due, move_status
from beamweaver.checkpoint._items import Head, Item
from beamweaver.checkpoint._keys import order_key
from beamweaver.checkpoint._layout import (
    APPLICATION,
    EPOCH,
    FORMAT_VERSION,
    INBOX,
    META,
    NUMBER_BYTES,
    RECORDS,
    number,
    read_number,
    refused_id,
    seal,
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
from beamweaver.checkpoint._reads import TxnStream, read_marks, read_row
from beamweaver.checkpoint._refusals import (
    conflict,
    first_record,
    lost_parent,
    unencodable,
)
from beamweaver.checkpoint._retention import finish_job, keep_heads
from beamweaver.checkpoint._stream import checkpoint_of
from beamweaver.checkpoint.base import no_faults
from beamweaver.checkpoint.records import encode_record
from beamweaver.errors import OwnershipLost, StoreBroken, StoreError, StoreFull

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from beamweaver.checkpoint._kv import Kv, Txn
    from beamweaver.checkpoint.base import Faults
    from beamweaver.checkpoint.records import (
        Commit,
        ThreadRow,
    )

__all__ = ["ASLEEP_STEP_US", "RecordWriter"]

_HEADS: Final = 20_000
ASLEEP_STEP_US: Final = 300_000_000
"""How much later than the kept time a thread may fall asleep without that time being kept."""
_pack = msgspec.msgpack.encode
_UNENCODABLE: Final = (ValueError, TypeError, OverflowError, msgspec.MsgspecError)
"""What the encoding of a record raises."""
T = TypeVar("T")


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
        self._lock = threading.RLock()
        self._heads: OrderedDict[str, Head] = OrderedDict()
        self._demanding = shallow or max_bytes is not None or compress_above is not None
        self._shut: Callable[[], StoreError] | None = None
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
            self._check_disk()
            try:
                raised = self._raise_epoch(expected)
            except StoreError as error:
                self._note(error)
                raise
            if raised:
                self.adopt(expected + 1)
            return raised

    def _raise_epoch(self, expected: int) -> bool:
        txn = self._kv.begin(write=True)
        try:
            if read_epoch(txn) != expected:
                return False
            txn.put(EPOCH, fence_of(expected + 1))
            txn.commit()
        finally:
            txn.abort()
        self._kv.sync()
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

    def shut(self, why: Callable[[], StoreError]) -> None:
        """Refuse every commit from now on with that error; a commit that runs ends first."""
        with self._lock:
            self._shut = why

    @property
    def busy(self) -> bool:
        """Whether a commit, or another write, runs on another worker."""
        if not self._lock.acquire(blocking=False):
            return True
        self._lock.release()
        return False

    def commit(
        self, epoch: int, commits: Sequence[Commit], faults: Faults
    ) -> list[StoreError | None]:
        """Write a group; see `Checkpointer.commit`."""
        with self._lock:
            if self._shut is not None:
                raise self._shut()
            if len(commits) == 1 and (head := self._followed(commits[0])) is not None:
                return self._alone(epoch, commits[0], head, faults)
            return self._together(epoch, commits, faults)

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

    def _followed(self, commit: Commit) -> Head | None:
        """The thread of a commit that only puts the checkpoint after the last one, as most do."""
        record, head = commit.record, self._heads.get(commit.thread_id)
        checkpoint = record.checkpoint
        follows = (
            head is not None
            and checkpoint is not None
            and checkpoint.parent == head.checkpoint
            and record.seq == head.next_seq > 0  # a thread's first record is judged
            and commit.thread is None
            and not (commit.clears or commit.run_names or commit.inbox_put or commit.inbox_drop)
            and commit.run_ended is None
            and commit.key is None
            and not self._demanding
        )
        return head if follows else None

    def _alone(
        self, epoch: int, commit: Commit, head: Head, faults: Faults
    ) -> list[StoreError | None]:
        """`_together` for one commit that follows: one put, and nothing to judge but the epoch."""
        record, loud = commit.record, faults is not no_faults
        key = head.records + record.seq.to_bytes(NUMBER_BYTES, "big")
        try:
            value = seal(key, encode_record(record))
        except _UNENCODABLE:
            return self._together(epoch, [commit], faults)
        try:
            txn = self._kv.begin(write=True)
            try:
                self._check(txn, epoch)
                if loud:
                    faults("put.before")
                txn.put(key, value)
                if loud:
                    faults("put.after")
                    faults("sync.before")
                txn.commit()
                head.next_seq, head.checkpoint = record.seq + 1, record.seq
            finally:
                txn.abort()
        except BaseException as error:  # it may be in the store or not: the next commit looks
            self._heads.pop(commit.thread_id, None)
            if isinstance(error, StoreError):
                self._note(error)
                if not isinstance(error, (OwnershipLost, StoreFull, StoreBroken)):
                    return [error]
            raise
        if loud:
            faults("sync.after")
        return [None]

    def _together(
        self, epoch: int, commits: Sequence[Commit], faults: Faults
    ) -> list[StoreError | None]:
        while len(self._heads) > _HEADS:  # never within a group, whose threads must stay known
            self._heads.popitem(last=False)
        items: list[Item | StoreError] = []
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
            results.append(item.error if isinstance(item, Item) else item)  # noqa: PERF401
        return results

    def _prepared(self, commit: Commit) -> Item | StoreError:
        """A commit, encoded, or why it can never be stored."""
        head = self._heads.get(commit.thread_id)
        tid = head.tid if head is not None else thread_key(commit.thread_id)
        if tid is None:
            return refused_id(commit.thread_id)
        try:
            return Item(commit, tid, self._compress_above)
        except _UNENCODABLE as error:
            return unencodable(commit, error)

    def _group(self, epoch: int, items: Sequence[Item | StoreError], faults: Faults) -> bool:
        """One transaction; whether it wrote. After an error nothing of it is in the store."""
        txn = self._kv.begin(write=True)
        written: list[Item] = []
        try:
            self._check(txn, epoch)
            for item in items:
                if isinstance(item, Item) and self._admit(txn, item, written):
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
                keep_heads(
                    txn, {i.commit.thread_id: i.tid for i in written if i.commit.record.checkpoint}
                )
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
        items: Sequence[Item | StoreError],
        faults: Faults,
        refused: StoreError,
    ) -> None:
        """Write a group whose puts were refused so that only the culprit fails."""
        encoded = [item for item in items if isinstance(item, Item)]
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

    def _check_disk(self) -> None:
        """After a write that the disk lost, none is made."""
        if self._broken is not None:
            raise StoreBroken(self._broken.message, **self._broken.ids)

    def _check(self, txn: Txn, epoch: int) -> None:
        """The fence: the caller is the owner that the store names."""
        if self._broken is not None:
            self._check_disk()
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

    def _check_room(self, txn: Txn, items: Sequence[Item]) -> None:
        wanted = sum(item.size() for item in items)
        used = txn.used()
        if self._max_bytes is not None and items and used + wanted > self._max_bytes:
            raise StoreFull(
                f"{self._name} uses {used} bytes, {wanted} more are to be written, and max_bytes is "
                f"{self._max_bytes}; nothing was written. Raise max_bytes, or delete threads",
                used=used,
                max_bytes=self._max_bytes,
            )

    def _has(self, txn: Txn, item: Item, parent: int, group: Sequence[Item]) -> bool:
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

    def _admit(self, txn: Txn, item: Item, group: Sequence[Item]) -> bool:
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

    def _find(self, txn: Txn, thread_id: str, tid: bytes) -> Head:
        """Read a thread's head, and keep it."""
        records = RECORDS + tid
        finish_job(txn, tid)
        key = txn.last(records, tail(records))
        next_seq = 0 if key is None else read_number(key) + 1
        next_seq = max(next_seq, read_marks(txn, tid).floor)
        row = read_row(txn, tid)
        head = Head(tid, next_seq, row)
        self._heads[thread_id] = head
        return head

    def _write(self, txn: Txn, item: Item) -> None:
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

    def _index(self, txn: Txn, head: Head, row: ThreadRow, at_us: int) -> None:
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
