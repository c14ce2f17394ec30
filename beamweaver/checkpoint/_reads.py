"""How threads are kept on an ordered key-value engine: the read side. Each read is one snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from beamweaver.checkpoint._history import Ask, Page, read_page
from beamweaver.checkpoint._image import read_head, read_one
from beamweaver.checkpoint._layout import (
    DUE,
    DUE_SINCE,
    ENDS,
    INBOX,
    LAST,
    MARKS,
    NAMES,
    RECORDS,
    ROWS,
    STATUS_CODES,
    corrupt,
    due_key,
    key_of_thread,
    number,
    status_key,
    tail,
    thread_key,
    unseal,
)
from beamweaver.checkpoint._meta import read_meta
from beamweaver.checkpoint._stream import WHOLE
from beamweaver.checkpoint.records import (
    HeadRow,
    InboxMessage,
    Record,
    StatusName,
    ThreadImage,
    ThreadRow,
    ThreadSummary,
)
from beamweaver.errors import InvalidCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from beamweaver.checkpoint._kv import Txn

__all__ = [
    "TxnStream",
    "check_paging",
    "id_of",
    "in_due_order",
    "read_history",
    "read_image",
    "read_inbox_threads",
    "read_marks",
    "read_row",
    "read_run_end",
    "read_run_number",
    "read_run_numbers",
    "read_sleepers",
    "read_thread_ids",
    "read_threads",
]

T = TypeVar("T")
_KEY_BYTES: Final = 511
_rows = msgspec.msgpack.Decoder(ThreadRow)
_records = msgspec.msgpack.Decoder(Record)
_messages = msgspec.msgpack.Decoder(InboxMessage)
_marks = msgspec.msgpack.Decoder(HeadRow)
_numbers = msgspec.msgpack.Decoder(int)


class TxnStream:
    """The records of one thread in a transaction. `tid` is the thread's part of its keys."""

    __slots__ = ("_prefix", "_txn")

    def __init__(self, txn: Txn, tid: bytes) -> None:
        self._txn = txn
        self._prefix = RECORDS + tid

    def get(self, seq: int) -> Record | None:
        """See `Stream.get`."""
        if not 0 <= seq <= LAST:
            return None
        return _get(self._txn, self._prefix + number(seq), _records)

    def back(self, before: int | None = None) -> Iterator[Record]:
        """See `Stream.back`."""
        prefix = self._prefix
        stop = tail(prefix) if before is None else prefix + number(min(max(before, 0), LAST))
        for key, value in self._txn.back(prefix, stop):
            yield _decode(key, value, _records)

    def ahead(self, start: int) -> Iterator[Record]:
        """See `Stream.ahead`."""
        prefix = self._prefix
        for key, value in self._txn.range(prefix + number(start), tail(prefix)):
            yield _decode(key, value, _records)


def read_image(
    txn: Txn, thread_id: str, seq: int | None, *, entries: bool = False
) -> ThreadImage | None:
    """See `Checkpointer.load`."""
    tid = thread_key(thread_id)
    row = None if tid is None else read_row(txn, tid)
    if tid is None or row is None:
        return None
    stream, marks = TxnStream(txn, tid), read_marks(txn, tid)
    if seq is not None:
        return read_one(stream, row, marks, seq, entries=entries)
    image = read_head(stream, row, marks, tuple(_inbox(txn, tid)))
    if image is None:
        raise corrupt(ROWS + tid, "no record of it has a checkpoint")
    return image


def read_history(txn: Txn, thread_id: str, before: int | None, ask: Ask) -> Page | None:
    """One page of `Checkpointer.history`."""
    tid = thread_key(thread_id)
    row = None if tid is None else read_row(txn, tid)
    if tid is None or row is None:
        return None
    return read_page(TxnStream(txn, tid), row, read_marks(txn, tid), before, ask)


def read_row(txn: Txn, tid: bytes) -> ThreadRow | None:
    """The row of a thread, or None."""
    return _get(txn, ROWS + tid, _rows)


def read_marks(txn: Txn, tid: bytes) -> HeadRow:
    """What is known of the moves of a thread's head."""
    return _get(txn, MARKS + tid, _marks) or WHOLE


def read_run_number(txn: Txn, thread_id: str, run_id: str) -> int | None:
    """See `Checkpointer.run_number`."""
    tid = thread_key(thread_id)
    try:
        data = run_id.encode()
    except UnicodeEncodeError:
        return None
    key = None if tid is None else NAMES + tid + data
    return _get(txn, key, _numbers) if key is not None and len(key) <= _KEY_BYTES else None


def read_run_numbers(txn: Txn, tid: bytes) -> dict[str, int]:
    """All names of a thread's runs, and their numbers."""
    prefix = NAMES + tid
    return {
        key[len(prefix) :].decode(): _decode(key, value, _numbers)
        for key, value in txn.range(prefix, tail(prefix))
    }


def read_run_end(txn: Txn, thread_id: str, run: int) -> int | None:
    """See `Checkpointer.run_end`."""
    tid = thread_key(thread_id)
    if tid is None or not 0 <= run <= LAST:
        return None
    return _get(txn, ENDS + tid + number(run), _numbers)


def read_threads(
    txn: Txn, statuses: Iterable[StatusName] | None, after: str, limit: int
) -> list[ThreadSummary]:
    """See `Checkpointer.threads`."""
    wanted = check_paging(statuses, after)
    found: list[ThreadSummary] = []
    for status in wanted:
        prefix = status_key(status, b"")
        for key, value in txn.range(_above(prefix, after), tail(prefix)):
            if len(found) >= limit:
                return found
            unseal(key, value)
            found.append(_summary(txn, key[len(prefix) :]))
    return found


def read_sleepers(txn: Txn, after: tuple[int, str] | None, limit: int) -> list[ThreadSummary]:
    """See `Checkpointer.sleepers`."""
    meta = read_meta(txn, "store")
    if meta is None or meta.version < DUE_SINCE:
        return in_due_order(read_threads(txn, ["sleeping"], "", LAST), after, limit)
    start = DUE if after is None else _above(due_key(after[0], b""), after[1])
    found: list[ThreadSummary] = []
    for key in txn.keys(start, tail(DUE)):
        if len(found) >= limit:
            break
        found.append(_summary(txn, key_of_thread(key)))
    return found


def in_due_order(
    found: Iterable[ThreadSummary], after: tuple[int, str] | None, limit: int
) -> list[ThreadSummary]:
    """A page of sleeping threads, of all of them."""

    def place(thread: ThreadSummary) -> tuple[int, bytes]:
        return max(thread.run.due_us, 0), thread.thread_id.encode()

    least = None if after is None else (after[0], after[1].encode())
    later = (thread for thread in found if least is None or place(thread) > least)
    return sorted(later, key=place)[: max(limit, 0)]


def read_thread_ids(txn: Txn, after: str, limit: int) -> list[str]:
    """The ids of all threads above `after`, in order, at most `limit`."""
    found: list[str] = []
    for key in txn.keys(_above(ROWS, after), tail(ROWS)):
        if len(found) >= limit:
            break
        found.append(id_of(key[len(ROWS) :]))
    return found


def read_inbox_threads(txn: Txn, after: str, limit: int) -> list[str]:
    """See `Checkpointer.inbox_threads`."""
    found: list[str] = []
    start = _above(INBOX, after)
    while len(found) < limit:
        key = next(txn.keys(start, tail(INBOX)), None)
        if key is None:
            break
        tid = key[len(INBOX) : key.index(b"\x00") + 1]
        found.append(id_of(tid))
        start = tail(INBOX + tid)
    return found


def id_of(tid: bytes) -> str:
    """The thread id of its part of a key."""
    return tid[:-1].decode("utf-8", "replace")


def check_paging(statuses: Iterable[StatusName] | None, after: str) -> list[StatusName]:
    """The statuses of a listing, in their order.

    Raises:
        InvalidCall: One is unknown, or `after` is given with other than one status.
    """
    given = set(STATUS_CODES) if statuses is None else set(statuses)
    unknown = sorted(given - set(STATUS_CODES))
    if unknown:
        raise InvalidCall(f"statuses has {unknown!r}; the statuses are {list(STATUS_CODES)}")
    if after and len(given) != 1:
        raise InvalidCall(f"after={after!r} needs exactly one status, and {len(given)} are given")
    return [status for status in STATUS_CODES if status in given]


def _above(prefix: bytes, after: str) -> bytes:
    """A key above all keys of the thread `after`, and below those of the next one."""
    return prefix + after.encode("utf-8", "surrogatepass") + b"\x01" if after else prefix


def _get(txn: Txn, key: bytes, decoder: msgspec.msgpack.Decoder[T]) -> T | None:
    value = txn.get(key)
    return None if value is None else _decode(key, value, decoder)


def _decode(key: bytes, value: bytes, decoder: msgspec.msgpack.Decoder[T]) -> T:
    try:
        return decoder.decode(unseal(key, value))
    except msgspec.DecodeError as error:
        raise corrupt(key, str(error)) from error


def _summary(txn: Txn, tid: bytes) -> ThreadSummary:
    row = read_row(txn, tid)
    if row is None:
        raise corrupt(ROWS + tid, "the index of statuses names it, and it is missing")
    return ThreadSummary(thread_id=row.thread_id, graph=row.graph, status=row.status, run=row.run)


def _inbox(txn: Txn, tid: bytes) -> Iterator[InboxMessage]:
    inbox = INBOX + tid
    for key, value in txn.range(inbox, tail(inbox)):
        yield _decode(key, value, _messages)
