"""The rules that the records of a store keep among themselves, checked in one pass in the order of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from beamweaver.checkpoint._edits import AWAKE, due_of
from beamweaver.checkpoint._layout import (
    APPLICATION,
    ASLEEP,
    DUE,
    DUE_SINCE,
    ENDS,
    EPOCH,
    FORMAT_VERSION,
    INBOX,
    JOBS,
    KEY_ORDER,
    KEYS,
    MARKS,
    META,
    NAMES,
    RECORDS,
    ROWS,
    STATUS_CODES,
    STATUSES,
    due_key,
    key_of_thread,
    read_number,
    unseal,
)
from beamweaver.checkpoint._meta import Meta
from beamweaver.checkpoint._stream import PRUNED
from beamweaver.checkpoint.records import HeadRow, InboxMessage, MessageKey, Record, ThreadRow
from beamweaver.errors import CorruptRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from beamweaver.checkpoint.records import Checkpoint

__all__ = ["Audit"]

_KINDS: Final[dict[bytes, Any]] = {
    RECORDS: msgspec.msgpack.Decoder(Record),
    ROWS: msgspec.msgpack.Decoder(ThreadRow),
    NAMES: msgspec.msgpack.Decoder(int),
    ENDS: msgspec.msgpack.Decoder(int),
    INBOX: msgspec.msgpack.Decoder(InboxMessage),
    MARKS: msgspec.msgpack.Decoder(HeadRow),
    KEYS: msgspec.msgpack.Decoder(MessageKey),
    KEY_ORDER: msgspec.msgpack.Decoder(tuple[str, str]),
    STATUSES: None,
    DUE: None,
    JOBS: None,
}
_metas: Final = msgspec.msgpack.Decoder(Meta)
_numbers: Final = msgspec.msgpack.Decoder(int)
Finding = tuple[bytes, str]


class Audit:
    """Takes the pairs of a store in order and tells what does not fit."""

    def __init__(self) -> None:
        self.keys = 0
        self.threads = 0
        self._gaps: list[tuple[bytes, bytes | None]] = []
        self._of = b""
        self._line = _Line()
        self._jobs: set[bytes] = set()
        self._with_records: set[bytes] = set()
        self._others: dict[bytes, bytes] = {}
        self._status: dict[bytes, bytes] = {}
        self._due: dict[bytes, bytes] = {}
        self._version = 0
        self._rows: set[bytes] = set()
        self._singles: set[bytes] = set()

    def skip(self, start: bytes, stop: bytes | None) -> None:
        """Keys are lost here: what is missing in this range is no finding of its own."""
        self._gaps.append((start, stop))

    def take(self, key: bytes, value: bytes, reason: str) -> Iterator[Finding]:
        """Judge one pair; `reason` tells why its value could not be read."""
        self.keys += 1
        if key[:1] == b"\x00":
            self._singles.add(key)
            yield from self._single(key, value, reason)
            return
        kind, tid = key[:1], _tid(key)
        if kind not in _KINDS or not tid:
            yield key, "no version of beamweaver writes such a key"
            return
        self._note(kind, tid, key)
        item: Any = None
        try:
            payload = unseal(key, value) if not reason else b""
            decoder = _KINDS[kind]
            if decoder is not None and not reason:
                item = decoder.decode(payload)
        except CorruptRecord as error:
            reason = error.message.partition("is damaged: ")[2].partition(". ")[0]
        except msgspec.DecodeError as error:
            reason = str(error)
        if reason:
            yield key, reason
        yield from self._fits(kind, tid, key, item)

    def _note(self, kind: bytes, tid: bytes, key: bytes) -> None:
        if kind == JOBS:
            self._jobs.add(tid)
        elif kind == STATUSES:
            self._status[tid] = key
        elif kind == DUE:
            self._due[tid] = key
        elif kind == RECORDS:
            self._with_records.add(tid)
        elif kind == ROWS:
            self._rows.add(tid)
            self.threads += 1
        else:
            self._others.setdefault(tid, key)

    def _fits(self, kind: bytes, tid: bytes, key: bytes, item: Any) -> Iterator[Finding]:
        """What an item says of itself must be what its key says."""
        if kind == RECORDS:
            if tid != self._of:
                self._of, self._line = tid, _Line()
            # Of a thread that is being deleted some are gone, rightly. Jobs come before records.
            found = self._line.take(key, item)
            yield from () if tid in self._jobs else found
        elif kind == ROWS and item is not None:
            if item.thread_id.encode("utf-8", "replace") + b"\x00" != tid:
                yield key, f"it is the row of thread {item.thread_id!r}"
            indexed = self._status.get(tid)
            wanted = STATUSES + STATUS_CODES[item.status] + tid
            if indexed != wanted and not self._gap(wanted):
                yield key, f"its status {item.status!r} is not in the index of statuses"
            yield from self._due_fits(key, tid, item)
        elif kind == INBOX and item is not None and item.number != read_number(key):
            yield key, f"it is message {item.number}"
        elif kind == KEYS and item is not None and key != KEYS + tid + item.key.encode():
            yield key, f"it is the key {item.key!r}"

    def finish(self, *, complete: bool) -> Iterator[Finding]:
        """What is missing."""
        if complete:
            yield from ((key, "it is missing") for key in (META, EPOCH) if key not in self._singles)
        for tid in sorted(self._rows - self._with_records):
            if not self._gap(RECORDS + tid):
                yield ROWS + tid, "the thread has no records"
        owners = self._rows | self._jobs
        orphans = {tid: RECORDS + tid for tid in self._with_records}
        for tid, key in {**self._due, **self._status, **self._others, **orphans}.items():
            if tid not in owners and not self._gap(ROWS + tid):
                yield key, "there is no thread of that id"

    def _due_fits(self, key: bytes, tid: bytes, row: ThreadRow) -> Iterator[Finding]:
        """The index of due times has what sleeps, and nothing else."""
        due, indexed = due_of(row), self._due.get(tid)
        wanted = None if due == AWAKE else due_key(due, tid)
        if wanted is not None and indexed != wanted and self._version >= DUE_SINCE:
            if not self._gap(wanted):
                yield key, "it sleeps, and its due time is not in the index of due times"
        elif wanted is None and indexed is not None:
            yield indexed, "the thread does not sleep"

    def _single(self, key: bytes, value: bytes, reason: str) -> Iterator[Finding]:
        """The keys of the store itself."""
        if key not in (META, EPOCH, ASLEEP):
            yield key, "no version of beamweaver writes such a key"
            return
        try:
            payload = unseal(key, value)
            if key != META:
                _numbers.decode(payload)
                return
            meta = _metas.decode(payload)
        except (CorruptRecord, msgspec.DecodeError) as error:
            yield key, reason or str(error)
            return
        self._version = meta.version
        if meta.application != APPLICATION or meta.version > FORMAT_VERSION:
            yield key, f"the store is of {meta.application!r}, format {meta.version}"

    def _gap(self, key: bytes) -> bool:
        return any(start <= key and (stop is None or key < stop) for start, stop in self._gaps)


def _tid(key: bytes) -> bytes:
    head, nul, _ = key_of_thread(key).partition(b"\x00")
    return head + nul if nul else b""


class _Line:
    """The records of one thread, the oldest first: what later ones need of earlier ones is there."""

    def __init__(self) -> None:
        self._held: dict[int, frozenset[str]] = {}
        self._live: set[int] = set()
        self._bad: set[int] = set()

    def take(self, key: bytes, record: Record | None) -> Iterator[Finding]:
        """Judge the next record; None stands for one that is damaged."""
        seq = read_number(key)
        if record is None:
            self._bad.add(seq)
            return
        if record.seq != seq:
            yield key, f"it is record {record.seq}"
        if record.checkpoint is None:
            return
        for reason in self._misses(seq, record.checkpoint):
            yield key, reason
        self._held[seq] = frozenset([*record.checkpoint.writes, *record.checkpoint.deltas])
        if record.checkpoint.source != PRUNED:
            self._live.add(seq)

    def _misses(self, seq: int, checkpoint: Checkpoint) -> Iterator[str]:
        for name, delta in checkpoint.deltas.items():
            if not self._holds(delta.base, name):
                yield f"the value of {name!r} that it adds to, in record {delta.base}, is missing"
        if checkpoint.source == PRUNED:
            return
        if checkpoint.versions is None:
            parent = checkpoint.parent
            if parent >= 0 and parent not in self._live and parent not in self._bad:
                yield f"the checkpoint that it follows, in record {parent}, is missing"
            return
        for name, version in checkpoint.versions.items():
            own = version == seq and (name in checkpoint.writes or name in checkpoint.deltas)
            if not own and not self._holds(version, name):
                yield f"the value of {name!r}, in record {version}, is missing"

    def _holds(self, seq: int, channel: str) -> bool:
        return seq in self._bad or channel in self._held.get(seq, ())
