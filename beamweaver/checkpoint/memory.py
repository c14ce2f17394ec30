"""Threads kept in memory, as encoded records: what a store on a disk would hold, without the disk."""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING, ClassVar

import msgspec

from beamweaver.checkpoint._image import Found, assemble
from beamweaver.checkpoint._layout import STATUS_CODES, refused_id, thread_key
from beamweaver.checkpoint._reads import check_paging
from beamweaver.checkpoint.base import Checkpointer
from beamweaver.checkpoint.records import (
    Commit,
    InboxMessage,
    Record,
    StatusName,
    ThreadImage,
    ThreadSummary,
    decode_record,
    decode_thread,
    encode_record,
    encode_thread,
)
from beamweaver.checkpoint.store import check_names, conflict, first_record, unencodable
from beamweaver.errors import OwnershipLost, StoreBroken, StoreError, StoreFull, StoreOwned

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["MemoryCheckpointer"]

_encode = msgspec.msgpack.encode
_messages = msgspec.msgpack.Decoder(InboxMessage)


class _Thread:
    """All of one thread, encoded."""

    __slots__ = ("ends", "inbox", "names", "next_seq", "records", "row", "status")

    def __init__(self) -> None:
        self.next_seq = 0
        self.status: StatusName | None = None
        self.row = b""
        self.records: dict[int, bytes] = {}
        self.names: dict[str, int] = {}
        self.ends: dict[int, int] = {}
        self.inbox: dict[int, bytes] = {}


class MemoryCheckpointer(Checkpointer):
    """Keeps threads in this process, encoded as on a disk; they end with the process.

    `close()` gives ownership up and keeps what is stored, so it opens again like a store on a disk.

    Example:
        >>> store = MemoryCheckpointer()
        >>> store.acquire()
        1
        >>> list(store.threads())
        []
    """

    durable: ClassVar[bool] = False

    def __init__(self) -> None:
        self.gains_by_groups = False
        self.blocks = False
        self._lock = threading.RLock()  # a fault may look into the store
        self._broken: StoreBroken | None = None
        self._threads: dict[str, _Thread] = {}
        self._by_status: dict[StatusName, set[str]] = {status: set() for status in STATUS_CODES}
        self._epoch = 0
        self._owned = False
        self._since = 0.0

    @property
    def identity(self) -> str:
        """This object: two memory stores are never the same."""
        return f"memory:{id(self):x}"

    def acquire(self) -> int:
        """Take ownership, at once or not at all; see `Checkpointer.acquire`."""
        with self._lock:
            if self._owned:
                raise StoreOwned(
                    f"this memory store is owned by another runtime of this process ({os.getpid()}). "
                    "Close that runtime",
                    pid=os.getpid(),
                    host=socket.gethostname(),
                    since=self._since,
                )
            self._owned = True
            self._since = self.now()
            self._epoch += 1
            return self._epoch

    def release(self) -> None:
        """Give ownership up; see `Checkpointer.release`."""
        with self._lock:
            self._owned = False

    def close(self) -> None:
        """Give ownership up; what is stored stays; see `Checkpointer.close`."""
        self.release()

    def commit(self, epoch: int, commits: Sequence[Commit]) -> list[StoreError | None]:
        """Write a group; see `Checkpointer.commit`."""
        with self._lock:
            try:
                results = self._group(epoch, commits)
            except (OwnershipLost, StoreFull, StoreBroken) as error:
                self._broken = error if isinstance(error, StoreBroken) else None
                raise
            except StoreError as error:
                if len(commits) == 1:
                    return [error]
                return [self.commit(epoch, [commit])[0] for commit in commits]
            if None in results:
                self.faults("sync.after")
            return results

    def _group(self, epoch: int, commits: Sequence[Commit]) -> list[StoreError | None]:
        """Write all or nothing. No engine is here that could refuse it, but faults can."""
        faults = self.faults
        self._check(epoch)
        results: list[StoreError | None] = []
        accepted: list[tuple[Commit, bytes, bytes]] = []
        planned: dict[str, int] = {}
        for commit in commits:
            encoded = self._encoded(commit, planned.get(commit.thread_id))
            if isinstance(encoded, StoreError):
                results.append(encoded)
                continue
            results.append(None)
            planned[commit.thread_id] = commit.record.seq + 1
            accepted.append((commit, *encoded))
        for _ in accepted:
            faults("put.before")
            faults("put.after")
        if accepted:
            faults("sync.before")
        for commit, record, row in accepted:
            self._keep(commit, record, row)
        return results

    def _check(self, epoch: int) -> None:
        if self._broken is not None:
            raise StoreBroken(self._broken.message, **self._broken.ids)
        if epoch != self._epoch or not self._owned:
            raise OwnershipLost(
                f"this memory store is at epoch {self._epoch} and this write is of epoch {epoch}, or its "
                "owner released it. Nothing was written; acquire the store again",
                epoch=epoch,
                store_epoch=self._epoch,
            )

    def _encoded(self, commit: Commit, planned: int | None) -> tuple[bytes, bytes] | StoreError:
        """Record and row, encoded; or why this commit cannot be written."""
        thread = self._threads.get(commit.thread_id)
        next_seq = planned
        if next_seq is None:
            next_seq = 0 if thread is None else thread.next_seq
        if thread is None and thread_key(commit.thread_id) is None:
            return refused_id(commit.thread_id)
        try:
            check_names(commit)
            record = encode_record(commit.record)
            row = b"" if commit.thread is None else encode_thread(commit.thread)
        except (ValueError, TypeError, OverflowError, msgspec.MsgspecError) as error:
            return unencodable(commit, error)
        if commit.record.seq != next_seq:
            return conflict(commit, next_seq)
        if next_seq == 0 and (commit.thread is None or commit.record.checkpoint is None):
            return first_record(commit)
        return record, row

    def _keep(self, commit: Commit, record: bytes, row: bytes) -> None:
        """Take an accepted commit in. Nothing here can fail."""
        thread = self._threads.get(commit.thread_id)
        if thread is None:
            thread = self._threads[commit.thread_id] = _Thread()
        seq = commit.record.seq
        thread.records[seq] = record
        thread.next_seq = seq + 1
        for cleared in commit.clears:
            thread.records.pop(cleared, None)
        if commit.thread is not None:
            thread.row = row
            self._index(commit.thread_id, thread, commit.thread.status)
        if commit.run_names:
            thread.names.update(commit.run_names)
        if commit.run_ended is not None:
            thread.ends[commit.run_ended[0]] = commit.run_ended[1]
        for message in commit.inbox_put:
            thread.inbox[message.number] = _encode(message)
        for place in commit.inbox_drop:
            thread.inbox.pop(place, None)

    def _index(self, thread_id: str, thread: _Thread, status: StatusName) -> None:
        if thread.status != status:
            if thread.status is not None:
                self._by_status[thread.status].discard(thread_id)
            self._by_status[status].add(thread_id)
            thread.status = status

    def load(self, thread_id: str, seq: int | None = None) -> ThreadImage | None:
        """The head of a thread, or one checkpoint; see `Checkpointer.load`."""
        with self._lock:
            thread = self._threads.get(thread_id)
            found = None if thread is None else _found(thread, seq)
            if thread is None or found is None:
                return None
            records = thread.records

            def record_of(wanted: int) -> Record | None:
                data = records.get(wanted)
                return None if data is None else decode_record(data)

            return assemble(found, record_of)

    def run_number(self, thread_id: str, run_id: str) -> int | None:
        """The number of a run; see `Checkpointer.run_number`."""
        with self._lock:
            thread = self._threads.get(thread_id)
            return None if thread is None else thread.names.get(run_id)

    def run_end(self, thread_id: str, number: int) -> int | None:
        """The checkpoint that completed a run; see `Checkpointer.run_end`."""
        with self._lock:
            thread = self._threads.get(thread_id)
            return None if thread is None else thread.ends.get(number)

    def threads(
        self, *, statuses: Iterable[StatusName] | None = None, after: str = "", limit: int = 1_000
    ) -> Iterator[ThreadSummary]:
        """Threads by status and id, all of one moment; see `Checkpointer.threads`."""
        wanted = check_paging(statuses, after)
        found: list[ThreadSummary] = []
        with self._lock:
            for status in wanted:
                room = limit - len(found)
                ids = sorted(name for name in self._by_status[status] if name > after)
                found += [_summary(self._threads[name]) for name in ids[: max(room, 0)]]
        return iter(found)

    def delete_thread(self, epoch: int, thread_id: str) -> bool:
        """Remove all of a thread; see `Checkpointer.delete_thread`."""
        with self._lock:
            self._check(epoch)
            thread = self._threads.pop(thread_id, None)
            if thread is None:
                return False
            if thread.status is not None:
                self._by_status[thread.status].discard(thread_id)
            return True


def _found(thread: _Thread, seq: int | None) -> Found | None:
    """The head of a thread, or one raw checkpoint."""
    row = decode_thread(thread.row)
    if seq is not None:
        data = thread.records.get(seq)
        record = None if data is None else decode_record(data)
        if record is None or record.checkpoint is None:
            return None
        return Found(row=row, checkpoint=record, entries=(), next_seq=thread.next_seq, inbox=())
    entries: list[Record] = []
    for number in reversed(thread.records):  # they were put in the order of their numbers
        record = decode_record(thread.records[number])
        if record.checkpoint is not None:
            inbox = tuple(_messages.decode(thread.inbox[place]) for place in sorted(thread.inbox))
            return Found(
                row=row,
                checkpoint=record,
                entries=tuple(reversed(entries)),
                next_seq=thread.next_seq,
                inbox=inbox,
            )
        entries.append(record)
    return None


def _summary(thread: _Thread) -> ThreadSummary:
    row = decode_thread(thread.row)
    return ThreadSummary(thread_id=row.thread_id, graph=row.graph, status=row.status, run=row.run)
