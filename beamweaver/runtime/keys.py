"""Idempotency keys as users give them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from beamweaver.engine.calls import CallKind
from beamweaver.errors import InvalidCall

if TYPE_CHECKING:
    from beamweaver.checkpoint.codec import Codec
    from beamweaver.engine.calls import Call
    from beamweaver.limits import Limits

__all__ = ["give_key"]

_KEYED: Final = (CallKind.INVOKE, CallKind.RESUME, CallKind.CONTINUE)


def give_key(call: Call, key: object, codec: Codec, limits: Limits) -> None:
    """Have a call be taken once, however often it comes with this key.

    Raises:
        InvalidCall: The key is no text, empty or too long, or the message has no use for one.
    """
    if call.kind not in _KEYED:
        raise InvalidCall(
            f"idempotency_key is {key!r}, and a {call.kind.value} takes none: to say it twice does what "
            "once does; leave it out"
        )
    if not isinstance(key, str) or not key or "\0" in key or not _encodable(key):
        raise InvalidCall(
            f"idempotency_key is {key!r}; give a text without NUL and surrogates that names the message, "
            "such as the id of the event it comes from"
        )
    size = len(key.encode())
    if size > limits.message_key_bytes:
        raise InvalidCall(
            f"idempotency_key {key[:40]!r}… has {size} bytes; limits.message_key_bytes is "
            f"{limits.message_key_bytes}: give a shorter one, such as a digest of it"
        )
    call.key = key
    call.key_digest = codec.digest(_asks(call), "the message")


def _asks(call: Call) -> dict[str, object]:
    """What a message asks, beside how: two that ask the same may differ in their limits and notes."""
    resumes = call.kind is CallKind.RESUME
    return {
        "kind": call.kind.value,
        "graph": call.graph,
        "run_id": call.run_id if call.named else "",
        "input": b"" if call.input is None else call.input.digest,
        "answers": dict(call.answers) if call.answers is not None else None,
        "answer": [call.answer] if resumes and call.answers is None else [],
        "on_unfinished": call.on_unfinished,
        "rerun": list(call.rerun),
        "place": call.place,
    }


def _encodable(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)
