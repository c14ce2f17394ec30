"""How threads are kept on an ordered key-value engine: the read side. Each read is one snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from beamweaver.checkpoint._image import Found, assemble
from beamweaver.checkpoint._layout import (
    ENDS,
    INBOX,
    NAMES,
    NUMBER_BYTES,
    RECORDS,
    ROWS,
    STATUS_CODES,
    corrupt,
    number,
    status_key,
    tail,
    thread_key,
    unseal,
)
from beamweaver.checkpoint.records import (
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

__all__ = ["check_paging", "read_image", "read_run_end", "read_run_number", "read_threads"]

T = TypeVar("T")
_rows = msgspec.msgpack.Decoder(ThreadRow)
_records = msgspec.msgpack.Decoder(Record)
_messages = msgspec.msgpack.Decoder(InboxMessage)
_numbers = msgspec.msgpack.Decoder(int)


def read_image(txn: Txn, thread_id: str, seq: int | None) -> ThreadImage | None:
    """See `Checkpointer.load`."""
    tid = thread_key(thread_id)
    row = None if tid is None else _get(txn, ROWS + tid, _rows)
    if tid is None or row is None:
        return None
    records = RECORDS + tid
    found = _head(txn, tid, row) if seq is None else _raw(txn, records, row, seq)
    if found is None:
        return None
    return assemble(found, lambda wanted: _get(txn, records + number(wanted), _records))


def read_run_number(txn: Txn, thread_id: str, run_id: str) -> int | None:
    """See `Checkpointer.run_number`."""
    tid = thread_key(thread_id)
    try:
        data = run_id.encode()
    except UnicodeEncodeError:
        return None
    key = None if tid is None else NAMES + tid + data
    return _get(txn, key, _numbers) if key is not None and len(key) <= _KEY_BYTES else None


def read_run_end(txn: Txn, thread_id: str, run: int) -> int | None:
    """See `Checkpointer.run_end`."""
    tid = thread_key(thread_id)
    return None if tid is None or run < 0 else _get(txn, ENDS + tid + number(run), _numbers)


def read_threads(
    txn: Txn, statuses: Iterable[StatusName] | None, after: str, limit: int
) -> list[ThreadSummary]:
    """See `Checkpointer.threads`."""
    wanted = check_paging(statuses, after)
    found: list[ThreadSummary] = []
    for status in wanted:
        prefix = status_key(status, b"")
        start = prefix + after.encode("utf-8", "surrogatepass") + b"\x00\x00" if after else prefix
        for key, value in txn.range(start, tail(prefix)):
            if len(found) >= limit:
                return found
            unseal(key, value)
            found.append(_summary(txn, key[len(prefix) :]))
    return found


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


_KEY_BYTES = 511


def _get(txn: Txn, key: bytes, decoder: msgspec.msgpack.Decoder[T]) -> T | None:
    value = txn.get(key)
    return None if value is None else _decode(key, value, decoder)


def _decode(key: bytes, value: bytes, decoder: msgspec.msgpack.Decoder[T]) -> T:
    try:
        return decoder.decode(unseal(key, value))
    except msgspec.DecodeError as error:
        raise corrupt(key, str(error)) from error


def _summary(txn: Txn, tid: bytes) -> ThreadSummary:
    row = _get(txn, ROWS + tid, _rows)
    if row is None:
        raise corrupt(ROWS + tid, "the index of statuses names it, and it is missing")
    return ThreadSummary(thread_id=row.thread_id, graph=row.graph, status=row.status, run=row.run)


def _head(txn: Txn, tid: bytes, row: ThreadRow) -> Found:
    """The newest checkpoint, what follows it, and the messages that wait."""
    records = RECORDS + tid
    entries: list[Record] = []
    for key, value in txn.back(records, tail(records)):
        record = _decode(key, value, _records)
        if record.checkpoint is not None:
            newest = entries[0] if entries else record
            return Found(
                row=row,
                checkpoint=record,
                entries=tuple(reversed(entries)),
                next_seq=newest.seq + 1,
                inbox=tuple(_inbox(txn, tid)),
            )
        entries.append(record)
    raise corrupt(ROWS + tid, "no record of it has a checkpoint")


def _inbox(txn: Txn, tid: bytes) -> Iterator[InboxMessage]:
    inbox = INBOX + tid
    for key, value in txn.range(inbox, tail(inbox)):
        yield _decode(key, value, _messages)


def _raw(txn: Txn, records: bytes, row: ThreadRow, seq: int) -> Found | None:
    """One checkpoint, raw."""
    if seq < 0:
        return None
    record = _get(txn, records + number(seq), _records)
    last = txn.last(records, tail(records))
    if record is None or record.checkpoint is None or last is None:
        return None
    next_seq = int.from_bytes(last[-NUMBER_BYTES:], "big") + 1
    return Found(row=row, checkpoint=record, entries=(), next_seq=next_seq, inbox=())
