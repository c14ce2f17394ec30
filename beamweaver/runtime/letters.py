"""Messages of other processes, as files hold them."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final
from zlib import crc32

import msgspec

from beamweaver.checkpoint.records import InboxMessage, RejectedRow, encode_call
from beamweaver.engine.rows import call_row
from beamweaver.runtime.inbox import calls_of

if TYPE_CHECKING:
    from beamweaver.engine.calls import Call
    from beamweaver.engine.env import Env

__all__ = [
    "Letter",
    "NoLetter",
    "Refusal",
    "call_of",
    "letter_of",
    "open_letter",
    "open_refusal",
    "seal",
]

_LETTER: Final = b"BWL1"
_REFUSAL: Final = b"BWR1"
_VERBS: Final = frozenset({"invoke", "resume", "continue", "cancel"})
_CHECKSUM: Final = Struct(">I")


class NoLetter(ValueError):
    """A file holds no message, or a damaged one."""


class Letter(msgspec.Struct, array_like=True, frozen=True):
    """A message on its way to the owner of a store.

    Attributes:
        id: Of the message; also the file's name.
        thread_id: The thread.
        graph: The name of its graph.
        sent_us: When it was sent, rising with each message of a sender (UTC microseconds).
        kind: The verb.
        run_id: The run id that it brings, or got.
        call: The call, encoded.
        key: Its idempotency key; that of a message without one is its id.
        digest: Of what it asks.
        waits: Whether its sender waits for an outcome.
    """

    id: str
    thread_id: str
    graph: str
    sent_us: int
    kind: str
    run_id: str
    call: bytes
    key: str
    digest: bytes
    waits: bool


class Refusal(msgspec.Struct, array_like=True, frozen=True):
    """Why a message was rejected, where its thread does not keep it: for the sender."""

    thread_id: str
    row: RejectedRow


_letters: Final = msgspec.msgpack.Decoder(Letter)
_refusals: Final = msgspec.msgpack.Decoder(Refusal)


def letter_of(call: Call, thread_id: str, sent_us: int, env: Env) -> Letter:
    """A call as a letter.

    Raises:
        SerializationError: An answer cannot be stored.
    """
    return Letter(
        call.first_id or call.id,
        thread_id,
        call.graph,
        sent_us,
        call.kind.value,
        call.run_id,
        encode_call(call_row(call, env)),
        call.key or call.id,
        call.key_digest,
        call.waits,
    )


def call_of(letter: Letter, env: Env) -> Call:
    """The call that a letter brings.

    Raises:
        NoLetter: It is none that a sender makes.
        DeserializationError: A value cannot be read in the types of the graph that is here.
    """
    if (
        letter.kind not in _VERBS
        or not 0 < len(letter.key.encode()) <= env.limits.message_key_bytes
    ):
        raise NoLetter(f"no message has the verb {letter.kind!r} and the key {letter.key[:40]!r}")
    message = InboxMessage(0, letter.id, letter.kind, letter.run_id, letter.call)
    try:
        (call,) = calls_of([message], env, letter.graph)
    except (msgspec.MsgspecError, ValueError) as error:
        raise NoLetter(f"its call cannot be read: {error}") from error
    if call.kind.value != letter.kind:
        raise NoLetter(f"it says {letter.kind!r}, and its call {call.kind.value!r}")
    call.message = None
    call.key, call.key_digest = letter.key, letter.digest
    call.lasting = True
    return call


def seal(item: Letter | Refusal) -> bytes:
    """A letter, or a refusal of one, as the bytes of a file."""
    payload = msgspec.msgpack.encode(item)
    kind = _LETTER if isinstance(item, Letter) else _REFUSAL
    return kind + _CHECKSUM.pack(crc32(payload, crc32(kind))) + payload


def open_letter(data: bytes, name: str) -> Letter:
    """The letter in a file.

    Raises:
        NoLetter: It is none, or damaged, or another file's.
    """
    try:
        letter = _letters.decode(_payload(data, _LETTER))
    except msgspec.DecodeError as error:
        raise NoLetter(f"it cannot be read: {error}") from error
    if letter.id != name:
        raise NoLetter(f"it is message {letter.id!r}")
    return letter


def open_refusal(data: bytes) -> Refusal:
    """The refusal in a file.

    Raises:
        NoLetter: It is none, or damaged.
    """
    try:
        return _refusals.decode(_payload(data, _REFUSAL))
    except msgspec.DecodeError as error:
        raise NoLetter(f"it cannot be read: {error}") from error


def _payload(data: bytes, kind: bytes) -> bytes:
    if data[: len(kind)] != kind:
        raise NoLetter("no version of beamweaver writes such a file")
    start = len(kind) + _CHECKSUM.size
    payload = data[start:]
    if len(data) < start or _CHECKSUM.unpack(data[len(kind) : start])[0] != crc32(
        payload, crc32(kind)
    ):
        raise NoLetter("its checksum fails")
    return payload
