"""Threads kept in memory, as encoded records: what a store on a disk would hold, without the disk."""

from __future__ import annotations

import heapq
import os
import socket
import threading
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

import msgspec

from beamweaver.checkpoint._history import Ask, Page, history, read_page
from beamweaver.checkpoint._image import read_head, read_one
from beamweaver.checkpoint._layout import STATUS_CODES, refused_id, thread_key
from beamweaver.checkpoint._memory_thread import (
    MemoryThread,
    PlannedThread,
    decode_key,
    refusal_of,
)
from beamweaver.checkpoint._prune import Pruning, all_rule, runs_rule
from beamweaver.checkpoint._reads import check_paging
from beamweaver.checkpoint._refusals import (
    check_names,
    no_target,
    unencodable,
)
from beamweaver.checkpoint._retention import copied_row, doomed_runs
from beamweaver.checkpoint._stream import find_head, moved
from beamweaver.checkpoint.base import Checkpointer, no_faults
from beamweaver.checkpoint.records import (
    Commit,
    InboxMessage,
    StatusName,
    ThreadImage,
    ThreadRow,
    ThreadSummary,
    decode_thread,
    encode_thread,
)
from beamweaver.errors import OwnershipLost, StoreBroken, StoreError, StoreFull, StoreOwned

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from beamweaver.checkpoint._prune import Rule
    from beamweaver.checkpoint.records import MessageKey

    _Encoded: TypeAlias = tuple[bytes, bytes, Sequence[bytes], bytes]

__all__ = ["MemoryCheckpointer"]

_encode = msgspec.msgpack.encode
_messages = msgspec.msgpack.Decoder(InboxMessage)


class MemoryCheckpointer(Checkpointer):
    """Keeps threads in this process, encoded as on a disk; they end with the process.

    `close()` gives ownership up and keeps what is stored, so it opens again like a store on a disk.

    Args:
        shallow: Keep nothing of a thread but its head: each commit removes the checkpoints before it.

    Example:
        >>> store = MemoryCheckpointer()
        >>> store.acquire()
        1
        >>> list(store.threads())
        []
    """

    durable: ClassVar[bool] = False

    def __init__(self, *, shallow: bool = False) -> None:
        self._shallow = shallow
        self.gains_by_groups = False
        self.blocks = False
        self._lock = threading.RLock()  # a fault may look into the store
        self._broken: StoreBroken | None = None
        self._threads: dict[str, MemoryThread] = {}
        self._by_status: dict[StatusName, set[str]] = {status: set() for status in STATUS_CODES}
        self._epoch = 0
        self._owned = False
        self._since = 0.0
        self._asleep_us = 0

    @property
    def identity(self) -> str:
        """This object: two memory stores are never the same."""
        return f"memory:{id(self):x}"

    def acquire(self, *, wait: float = 0.0, takeover: Literal["force"] | None = None) -> int:
        """Take ownership; see `Checkpointer.acquire`."""
        return self._patiently(self._take, wait, takeover)

    def _take(self, force: bool) -> int:
        with self._lock:
            if self._owned and not force:
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
            if None in results and self.faults is not no_faults:
                self.faults("sync.after")
            return results

    def _group(self, epoch: int, commits: Sequence[Commit]) -> list[StoreError | None]:
        """Write all or nothing. No engine is here that could refuse it, but faults can."""
        faults = self.faults
        if epoch != self._epoch or not self._owned or self._broken is not None:
            self._check(epoch)
        results: list[StoreError | None] = []
        accepted: list[tuple[Commit, _Encoded]] = []
        planned: dict[str, PlannedThread] | None = {} if len(commits) > 1 else None
        for commit in commits:
            encoded = self._encoded(commit, planned)
            if isinstance(encoded, StoreError):
                results.append(encoded)
                continue
            results.append(None)
            accepted.append((commit, encoded))
        if faults is not no_faults and accepted:
            for _ in accepted:
                faults("put.before")
                faults("put.after")
            faults("sync.before")
        for commit, encoded in accepted:
            self._keep(commit, *encoded)
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

    def _encoded(
        self, commit: Commit, planned: dict[str, PlannedThread] | None
    ) -> _Encoded | StoreError:
        """Record, row and messages, encoded; or why not. `planned` is None for a commit alone."""
        thread_id = commit.thread_id
        thread = self._threads.get(thread_id)
        if thread is None and thread_key(thread_id) is None:
            return refused_id(thread_id)
        try:
            if commit.run_names or commit.key is not None:
                check_names(commit)
            record = _encode(commit.record)  # as `encode_record`, without its call
            row = b"" if commit.thread is None else encode_thread(commit.thread)
            inbox = [_encode(message) for message in commit.inbox_put] if commit.inbox_put else ()
            key = b"" if commit.key is None else _encode(commit.key.row)
        except (ValueError, TypeError, OverflowError, msgspec.MsgspecError) as error:
            return unencodable(commit, error)
        if planned is None:
            checkpoint = commit.record.checkpoint
            if (
                thread is not None
                and checkpoint is not None
                and commit.record.seq == thread.next_seq
                and checkpoint.parent == thread.checkpoint
            ):
                return record, row, inbox, key  # the thread's next step: no further look is needed
            planned = {}
        plan = planned.get(thread_id)
        if plan is None:
            plan = planned[thread_id] = PlannedThread(thread)
        refusal = refusal_of(commit, thread, plan)
        if refusal is None:
            plan.take(commit)
        return refusal or (record, row, inbox, key)

    def _keep(
        self, commit: Commit, record: bytes, row: bytes, inbox: Sequence[bytes], key: bytes
    ) -> None:
        """Take an accepted commit in. Nothing here can fail."""
        thread = self._threads.get(commit.thread_id)
        if thread is None:
            thread = self._threads[commit.thread_id] = MemoryThread()
        seq = commit.record.seq
        thread.records[seq] = record
        thread.next_seq = seq + 1
        if commit.record.checkpoint is not None:
            thread.checkpoint = seq
        for cleared in commit.clears:
            thread.records.pop(cleared, None)
        if commit.thread is not None:
            thread.row = row
            self._index(commit.thread_id, thread, commit.thread)
            if thread.status == "sleeping":
                self._asleep_us = max(self._asleep_us, commit.record.at_us)
        if commit.run_names:
            thread.names.update(commit.run_names)
        if commit.run_ended is not None:
            thread.ends[commit.run_ended[0]] = commit.run_ended[1]
        if inbox or key or commit.inbox_drop:
            thread.keep_messages(commit, inbox, key)
        if self._shallow and commit.record.checkpoint is not None:
            pruning = Pruning(commit.thread_id, all_rule, None)
            while pruning.step(thread, thread.marks)[1]:
                pass

    def _index(self, thread_id: str, thread: MemoryThread, row: ThreadRow) -> None:
        status, thread.due = row.status, max(row.run.due_us, 0)
        if thread.status != status:
            if thread.status is not None:
                self._by_status[thread.status].discard(thread_id)
            self._by_status[status].add(thread_id)
            thread.status = status

    def load(
        self, thread_id: str, seq: int | None = None, *, entries: bool = False
    ) -> ThreadImage | None:
        """The head of a thread, or one checkpoint; see `Checkpointer.load`."""
        with self._lock:
            thread = self._threads.get(thread_id)
            if thread is None:
                return None
            row = decode_thread(thread.row)
            if seq is not None:
                return read_one(thread, row, thread.marks, seq, entries=entries)
            inbox = tuple(_messages.decode(thread.inbox[place]) for place in sorted(thread.inbox))
            return read_head(thread, row, thread.marks, inbox)

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
            with self._lock:
                thread = self._threads.get(thread_id)
                if thread is None:
                    return None
                return read_page(thread, decode_thread(thread.row), thread.marks, at, ask)

        return history(page_of, before=before, limit=limit, values=values)

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

    def message_key(self, thread_id: str, key: str) -> MessageKey | None:
        """What is kept of an idempotency key; see `Checkpointer.message_key`."""
        with self._lock:
            thread = self._threads.get(thread_id)
            found = None if thread is None else thread.keys.get(key)
            return None if found is None else decode_key(found)

    def message_keys(self, thread_id: str) -> int:
        """How many keys are kept; see `Checkpointer.message_keys`."""
        with self._lock:
            thread = self._threads.get(thread_id)
            return 0 if thread is None else len(thread.keys)

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

    def sleepers(
        self, *, after: tuple[int, str] | None = None, limit: int = 1_000
    ) -> Iterator[ThreadSummary]:
        """The sleeping threads by due time; see `Checkpointer.sleepers`."""
        least = (-1, b"") if after is None else (after[0], after[1].encode())
        with self._lock:
            asleep = ((self._threads[name].due, name) for name in self._by_status["sleeping"])
            places = ((due, name.encode(), name) for due, name in asleep)
            later = (place for place in places if place[:2] > least)
            found = [_summary(self._threads[name]) for *_, name in heapq.nsmallest(limit, later)]
        return iter(found)

    def asleep_us(self) -> int:
        """When a thread last fell asleep; see `Checkpointer.asleep_us`."""
        return self._asleep_us

    def inbox_threads(self, *, after: str = "", limit: int = 1_000) -> Iterator[str]:
        """Threads with messages, all of one moment; see `Checkpointer.inbox_threads`."""
        with self._lock:
            found = sorted(name for name, item in self._threads.items() if item.inbox)
        return iter([name for name in found if name > after][: max(limit, 0)])

    def set_head(self, epoch: int, thread_id: str, seq: int, row: ThreadRow | None = None) -> bool:
        """Make another checkpoint the head; see `Checkpointer.set_head`."""
        with self._lock:
            self._check(epoch)
            thread = self._threads.get(thread_id)
            if thread is None:
                return False
            thread.marks = moved(thread, thread.marks, seq, thread_id) or thread.marks
            if row is not None:
                thread.row = encode_thread(row)
                self._index(thread_id, thread, row)
            return True

    def copy_thread(self, epoch: int, source: str, target: str) -> bool:
        """Copy a thread; see `Checkpointer.copy_thread`."""
        with self._lock:
            self._check(epoch)
            if thread_key(target) is None:
                raise no_target(target, "no thread can have that id")
            thread = self._threads.get(source)
            if thread is None:
                return False
            if target in self._threads:
                raise no_target(target, "that thread exists")
            other = thread.copy()
            row = copied_row(decode_thread(thread.row), target)
            other.row = encode_thread(row)
            self._threads[target] = other
            self._index(target, other, row)
            return True

    def delete_runs(self, epoch: int, thread_id: str, run_ids: Iterable[str]) -> int:
        """Remove runs; see `Checkpointer.delete_runs`."""
        with self._lock:
            self._check(epoch)
            thread = self._threads.get(thread_id)
            head = None if thread is None else find_head(thread, thread.marks)
            if thread is None or head is None or head.checkpoint.checkpoint is None:
                return 0
            kept = {*decode_thread(thread.row).run.names, head.checkpoint.checkpoint.run_id}
            names = doomed_runs(thread.names, frozenset(run_ids), kept)
            removed = sum(self._prune_one(epoch, thread_id, runs_rule(frozenset(names))))
            for name, number in names.items():
                thread.names.pop(name, None)
                thread.ends.pop(number, None)
            return removed

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
        with self._lock:
            ids = sorted(self._threads) if thread_ids is None else list(thread_ids)
        return (count for name in ids for count in self._prune_one(epoch, name, rule))

    def _prune_one(self, epoch: int, thread_id: str, rule: Rule) -> Iterator[int]:
        pruning = Pruning(thread_id, rule, None)
        more = True
        while more:
            with self._lock:
                self._check(epoch)
                thread = self._threads.get(thread_id)
                if thread is None:
                    return
                count, more = pruning.step(thread, thread.marks)
            if count or more:
                yield count

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


def _summary(thread: MemoryThread) -> ThreadSummary:
    row = decode_thread(thread.row)
    return ThreadSummary(thread_id=row.thread_id, graph=row.graph, status=row.status, run=row.run)
