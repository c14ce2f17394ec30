"""The keys and values of a store on an ordered key-value engine. `docs/store-format.md` describes them.

A key begins with one byte for its kind; a thread id ends with NUL, so that no thread's keys are a
prefix of another's; numbers are 8 bytes, big endian, so that they sort. A value is a CRC-32 of key,
format and payload, then the format byte, then the payload: a value under a wrong key fails too.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, get_args
from zlib import compress, crc32, decompress, error

from beamweaver.checkpoint.records import StatusName
from beamweaver.errors import CorruptRecord, StoreError
from beamweaver.limits import DEFAULT_LIMITS

__all__ = [
    "APPLICATION",
    "ASLEEP",
    "DUE",
    "DUE_SINCE",
    "ENDS",
    "EPOCH",
    "FORMAT_VERSION",
    "INBOX",
    "JOBS",
    "KEYS",
    "KEY_ORDER",
    "LAST",
    "MARKS",
    "META",
    "NAMES",
    "NUMBER_BYTES",
    "RECORDS",
    "ROWS",
    "STATUSES",
    "STATUS_CODES",
    "corrupt",
    "describe",
    "due_key",
    "key_of_thread",
    "number",
    "read_number",
    "refused_id",
    "seal",
    "seal_small",
    "sealed",
    "status_key",
    "tail",
    "thread_key",
    "unseal",
]

APPLICATION: Final = "beamweaver"
FORMAT_VERSION: Final = 2
"""Rises when older code could not read what newer code writes, or would not write what newer code needs."""
DUE_SINCE: Final = 2
"""The first format with an index of due times."""

META: Final = b"\x00meta"
EPOCH: Final = b"\x00epoch"
ASLEEP: Final = b"\x00asleep"
RECORDS: Final = b"R"
ROWS: Final = b"T"
STATUSES: Final = b"S"
DUE: Final = b"D"
NAMES: Final = b"N"
ENDS: Final = b"E"
INBOX: Final = b"I"
MARKS: Final = b"H"
JOBS: Final = b"J"
KEYS: Final = b"K"
KEY_ORDER: Final = b"Q"

NUMBER_BYTES: Final = 8
LAST: Final = (1 << 8 * NUMBER_BYTES) - 1
"""The highest number that a key can hold; no record has it."""
STATUS_CODES: Final[dict[StatusName, bytes]] = {
    name: bytes([code]) for code, name in enumerate(get_args(StatusName), start=1)
}

_KIND_NAMES: Final = {
    RECORDS: "record",
    ROWS: "thread",
    STATUSES: "status",
    DUE: "due",
    NAMES: "run_name",
    ENDS: "run_end",
    INBOX: "inbox",
    MARKS: "head",
    JOBS: "job",
    KEYS: "message_key",
    KEY_ORDER: "key_order",
}
_HEADER: Final = Struct(">IB")
_PLAIN: Final = 1
_ZLIB: Final = 2
_PLAIN_BYTE: Final = bytes([_PLAIN])
_ZLIB_BYTE: Final = bytes([_ZLIB])
_FAST: Final = 1


def thread_key(thread_id: str) -> bytes | None:
    """A thread id as the part of a key, or None if no thread can have this id."""
    try:
        data = thread_id.encode()
    except UnicodeEncodeError:
        return None
    if not data or len(data) > DEFAULT_LIMITS.thread_id_bytes or b"\x00" in data:
        return None
    return data + b"\x00"


def number(value: int) -> bytes:
    """A number from 0 to `LAST` as a part of a key."""
    return value.to_bytes(NUMBER_BYTES, "big")


def status_key(status: StatusName, tid: bytes) -> bytes:
    """The key of a thread in the index of statuses."""
    return STATUSES + STATUS_CODES[status] + tid


def due_key(due_us: int, tid: bytes) -> bytes:
    """The key of a sleeping thread in the index of due times."""
    return DUE + number(min(max(due_us, 0), LAST)) + tid


def key_of_thread(key: bytes) -> bytes:
    """The thread's part of a key, and what follows it."""
    if key[:1] == DUE:
        return key[1 + NUMBER_BYTES :]
    return key[2:] if key[:1] == STATUSES else key[1:]


def tail(prefix: bytes) -> bytes:
    """A key above all keys with this prefix, which ends with a NUL or a status code."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def seal(key: bytes, payload: bytes) -> bytes:
    """A payload with its checksum and format, ready to be stored under `key`."""
    return _HEADER.pack(crc32(payload, crc32(key + _PLAIN_BYTE)), _PLAIN) + payload


def seal_small(key: bytes, payload: bytes) -> bytes:
    """The same for a large payload, compressed where that makes it smaller."""
    packed = compress(payload, _FAST)
    if len(packed) >= len(payload):
        return seal(key, payload)
    return _HEADER.pack(crc32(packed, crc32(_ZLIB_BYTE, crc32(key))), _ZLIB) + packed


def read_number(key: bytes) -> int:
    """The number at the end of a key."""
    return int.from_bytes(key[-NUMBER_BYTES:], "big")


def sealed(prefix: bytes, suffix: bytes, payload: bytes) -> tuple[bytes, bytes]:
    """A key and its sealed value."""
    key = prefix + suffix
    return key, seal(key, payload)


def unseal(key: bytes, value: bytes) -> bytes:
    """The payload of a stored value.

    Raises:
        CorruptRecord: The checksum fails, or the format is unknown.
    """
    if len(value) < _HEADER.size:
        raise corrupt(key, "it is cut short")
    checksum, format_ = _HEADER.unpack_from(value)
    payload = value[_HEADER.size :]
    if crc32(payload, crc32(key + value[4:5])) != checksum:
        raise corrupt(key, "its checksum fails")
    if format_ == _PLAIN:
        return payload
    if format_ != _ZLIB:
        raise corrupt(key, f"its format {format_} is unknown")
    try:
        return decompress(payload)
    except error as failure:
        raise corrupt(key, str(failure)) from failure


def describe(key: bytes) -> str:
    """A key as text: `record/order-17/3`."""
    if key[:1] == b"\x00":
        return key[1:].decode("ascii", "replace")
    kind = _KIND_NAMES.get(key[:1], f"kind {key[:1]!r}")
    tid, _, suffix = key_of_thread(key).partition(b"\x00")
    parts = [kind, tid.decode("utf-8", "replace")]
    if key[:1] in (RECORDS, ENDS, INBOX, KEY_ORDER):
        parts.append(str(int.from_bytes(suffix, "big")))
    elif suffix:
        parts.append(suffix.decode("utf-8", "replace"))
    return "/".join(parts)


def corrupt(key: bytes, reason: str) -> CorruptRecord:
    """The error of a stored value that cannot be trusted."""
    name = describe(key)
    return CorruptRecord(
        f"stored value {name!r} is damaged: {reason}. Restore the store from a backup, or delete that thread",
        key=name,
    )


def refused_id(thread_id: str) -> StoreError:
    """The error of a thread id that no key can hold."""
    return StoreError(
        f"thread id {thread_id!r} cannot be stored: give 1 to {DEFAULT_LIMITS.thread_id_bytes} bytes of "
        "UTF-8 without NUL",
        thread_id=thread_id,
    )
