"""How threads are moved, copied, pruned and deleted on an ordered key-value engine.

What is large is done in several transactions. A thread that is being deleted or copied has a *job* key
from the first to the last of them, and no row: nobody sees it. The next owner removes what a job left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from beamweaver.checkpoint._edits import AWAKE, TxnEditable, due_of, move_due, move_status
from beamweaver.checkpoint._layout import (
    DUE,
    ENDS,
    INBOX,
    JOBS,
    KEY_ORDER,
    KEYS,
    MARKS,
    NAMES,
    RECORDS,
    ROWS,
    STATUS_CODES,
    due_key,
    key_of_thread,
    number,
    seal,
    sealed,
    status_key,
    tail,
    thread_key,
    unseal,
)
from beamweaver.checkpoint._prune import CHUNK, Pruning, Rule, all_rule, make_plan, runs_rule
from beamweaver.checkpoint._reads import (
    TxnStream,
    id_of,
    read_marks,
    read_row,
    read_run_numbers,
    read_thread_ids,
)
from beamweaver.checkpoint._refusals import no_target
from beamweaver.checkpoint._stream import find_head, moved
from beamweaver.checkpoint.records import encode_thread
from beamweaver.errors import CorruptRecord, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from beamweaver.checkpoint._kv import Txn
    from beamweaver.checkpoint.records import ThreadRow
    from beamweaver.checkpoint.store import RecordWriter

__all__ = [
    "copied_row",
    "copy",
    "delete",
    "delete_runs",
    "doomed_runs",
    "finish_job",
    "finish_jobs",
    "keep_heads",
    "move_head",
    "prune",
]

_BYTES: Final = 8 << 20
"""How many bytes of records are copied in one transaction, unless a single one is larger."""
_IDS: Final = 1_000


def move_head(
    writer: RecordWriter, epoch: int, thread_id: str, seq: int, row: ThreadRow | None
) -> bool:
    """See `Checkpointer.set_head`."""
    tid = thread_key(thread_id)

    def change(txn: Txn) -> bool:
        old = None if tid is None else read_row(txn, tid)
        if tid is None or old is None:
            return False
        stream = TxnEditable(txn, tid)
        marks = moved(stream, read_marks(txn, tid), seq, thread_id)
        if marks is not None:
            stream.mark(marks)
        if row is not None:
            txn.put(*sealed(ROWS, tid, encode_thread(row)))
            if row.status != old.status:
                move_status(txn, tid, old.status, row.status)
            move_due(txn, tid, due_of(old), due_of(row))
        return True

    return writer.transact(epoch, change, changes=thread_id)


def delete(writer: RecordWriter, epoch: int, thread_id: str) -> bool:
    """See `Checkpointer.delete_thread`."""
    tid = thread_key(thread_id)

    def hide(txn: Txn) -> bool:
        if tid is None:
            return False
        if txn.get(ROWS + tid) is None:
            return txn.get(JOBS + tid) is not None  # an earlier call was cut off
        for key in _due_keys(txn, tid):
            txn.delete(key)
        for key in (ROWS + tid, MARKS + tid, *(status_key(s, tid) for s in STATUS_CODES)):
            txn.delete(key)
        _remove_some(txn, tid)
        return True

    with writer.alone():
        found = writer.transact(epoch, hide, changes=thread_id)
        if found and tid is not None:
            _remove_rest(writer, epoch, tid)
    return found


def _due_keys(txn: Txn, tid: bytes) -> list[bytes]:
    """Where the index of due times has a thread; of one whose row is damaged all is looked through."""
    try:
        due = due_of(read_row(txn, tid))
    except CorruptRecord:
        return [key for key in txn.keys(DUE, tail(DUE)) if key_of_thread(key) == tid]
    return [] if due == AWAKE else [due_key(due, tid)]


def finish_jobs(writer: RecordWriter, epoch: int) -> None:
    """Remove what an owner that died left of threads that it was deleting or copying."""
    with writer.alone():
        left = writer.transact(epoch, lambda txn: list(txn.keys(JOBS, tail(JOBS))))
        for key in left:
            _remove_rest(writer, epoch, key[len(JOBS) :])


def finish_job(txn: Txn, tid: bytes) -> None:
    """Remove what is left of a thread whose deletion was cut off, before there is a new one under its id."""
    while txn.get(JOBS + tid) is not None and not _remove_some(txn, tid):
        pass


def _remove_rest(writer: RecordWriter, epoch: int, tid: bytes) -> None:
    def more(txn: Txn) -> bool:
        return txn.get(JOBS + tid) is not None and not _remove_some(txn, tid)

    while writer.transact(epoch, more, changes=id_of(tid)):
        pass


def _remove_some(txn: Txn, tid: bytes) -> bool:
    """Remove some of a thread's keys; whether that was all. If not, a job stays."""
    keys: list[bytes] = []
    for kind in (INBOX, KEYS, KEY_ORDER, NAMES, ENDS, RECORDS):
        for key in txn.keys(kind + tid, tail(kind + tid)):
            keys.append(key)
            if len(keys) > CHUNK:
                break
    for key in keys[:CHUNK]:
        txn.delete(key)
    done = len(keys) <= CHUNK
    if done:
        txn.delete(JOBS + tid)
    else:
        txn.put(*sealed(JOBS, tid, b""))
    return done


def copy(writer: RecordWriter, epoch: int, source: str, target: str) -> bool:
    """See `Checkpointer.copy_thread`."""
    old, new = thread_key(source), thread_key(target)
    if new is None:
        raise no_target(target, "no thread can have that id")
    if old is None:
        return False
    with writer.alone():
        _remove_rest(writer, epoch, new)  # what a call that was cut off left of it
        copying = _Copying(old, new, target)
        try:
            while writer.transact(epoch, copying.step, changes=target):
                pass
        except StoreError:
            if copying.started:
                _remove_rest(writer, epoch, new)
            raise
    return copying.found


class _Copying:
    """A copy on its way; each step is one transaction."""

    def __init__(self, old: bytes, new: bytes, target: str) -> None:
        self._old = old
        self._new = new
        self._target = target
        self._next = RECORDS + old
        self.started = False
        self.found = False

    def step(self, txn: Txn) -> bool:
        """Copy some; whether there is more."""
        row = read_row(txn, self._old)
        if row is None:
            return False
        if not self.started:
            if txn.get(ROWS + self._new) is not None:
                raise no_target(self._target, "that thread exists")
            self.found = True
        if self._copy(txn, RECORDS):
            txn.put(*sealed(JOBS, self._new, b""))
            self.started = True
            return True
        for kind in (NAMES, ENDS):
            self._next = kind + self._old
            while self._copy(txn, kind):
                pass
        marks = txn.get(MARKS + self._old)
        if marks is not None:
            txn.put(*sealed(MARKS, self._new, unseal(MARKS + self._old, marks)))
        copied = copied_row(row, self._target)
        txn.put(*sealed(ROWS, self._new, encode_thread(copied)))
        move_status(txn, self._new, None, copied.status)
        txn.delete(JOBS + self._new)
        return False

    def _copy(self, txn: Txn, kind: bytes) -> bool:
        """Copy some keys of a kind; whether there are more."""
        prefix = kind + self._old
        pairs: list[tuple[bytes, bytes]] = []
        size = 0
        more = False
        for key, value in txn.range(self._next, tail(prefix)):
            if len(pairs) >= CHUNK or size > _BYTES:
                self._next, more = key, True
                break
            pairs.append((key, value))
            size += len(value)
        for key, value in pairs:
            placed = kind + self._new + key[len(prefix) :]
            txn.put(placed, seal(placed, unseal(key, value)))
        return more


def copied_row(row: ThreadRow, target: str) -> ThreadRow:
    """The row of a copy: an unfinished run in it goes on when a caller says so, not by itself."""
    if row.status in ("accepted", "running", "sleeping", "drained"):
        row = msgspec.structs.replace(row, status="cancelled", reason="copied")
    return msgspec.structs.replace(row, thread_id=target)


def keep_heads(txn: Txn, threads: Mapping[str, bytes]) -> None:
    """Remove the checkpoints before the newest ones of these threads, given with their keys' beginning."""
    for thread_id, tid in threads.items():
        pruning = Pruning(thread_id, all_rule, None)
        while pruning.step(TxnEditable(txn, tid), read_marks(txn, tid))[1]:
            pass


def prune(
    writer: RecordWriter, epoch: int, thread_ids: Iterable[str] | None, rule: Rule
) -> Iterator[int]:
    """See `Checkpointer.prune`."""
    damaged: CorruptRecord | None = None
    for thread_id in _all_ids(writer) if thread_ids is None else thread_ids:
        try:
            yield from _prune_one(writer, epoch, thread_id, rule)
        except CorruptRecord as error:
            damaged = damaged or error
    if damaged is not None:
        raise damaged


def _all_ids(writer: RecordWriter) -> Iterator[str]:
    after = ""
    while page := writer.snapshot(lambda txn, after=after: read_thread_ids(txn, after, _IDS)):  # type: ignore[misc] # a default binds the loop's value
        yield from page
        after = page[-1]


def _prune_one(writer: RecordWriter, epoch: int, thread_id: str, rule: Rule) -> Iterator[int]:
    tid = thread_key(thread_id)
    if tid is None:
        return
    plan = writer.snapshot(
        lambda txn: make_plan(TxnStream(txn, tid), read_marks(txn, tid), thread_id, rule)
    )
    if plan is None:
        return
    pruning = Pruning(thread_id, rule, plan)
    more = True
    while more:
        count, more = writer.transact(
            epoch,
            lambda txn: pruning.step(TxnEditable(txn, tid), read_marks(txn, tid)),
            changes=thread_id,
        )
        yield count


def delete_runs(writer: RecordWriter, epoch: int, thread_id: str, run_ids: frozenset[str]) -> int:
    """See `Checkpointer.delete_runs`."""
    tid = thread_key(thread_id)
    if tid is None:
        return 0
    names = writer.snapshot(lambda txn: _runs(txn, tid, run_ids))
    removed = sum(_prune_one(writer, epoch, thread_id, runs_rule(frozenset(names))))

    def forget(txn: Txn) -> None:
        for name, run in names.items():
            txn.delete(NAMES + tid + name.encode())
            txn.delete(ENDS + tid + number(run))

    if names:
        writer.transact(epoch, forget, changes=thread_id)
    return removed


def _runs(txn: Txn, tid: bytes, run_ids: frozenset[str]) -> dict[str, int]:
    """All names of the runs that have one of these names, but for the run at the head."""
    row = read_row(txn, tid)
    head = None if row is None else find_head(TxnStream(txn, tid), read_marks(txn, tid))
    if row is None or head is None or head.checkpoint.checkpoint is None:
        return {}
    numbers = read_run_numbers(txn, tid)
    return doomed_runs(numbers, run_ids, {*row.run.names, head.checkpoint.checkpoint.run_id})


def doomed_runs(numbers: dict[str, int], run_ids: frozenset[str], kept: set[str]) -> dict[str, int]:
    """All names of the runs that have one of these names; runs with a name in `kept` stay."""
    staying = {numbers[name] for name in kept if name in numbers}
    doomed = {numbers[name] for name in run_ids if name in numbers} - staying
    return {name: run for name, run in numbers.items() if run in doomed}
