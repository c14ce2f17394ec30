"""What a step added to a channel, instead of the whole value.

A channel that only grows, or whose keys are set and removed, need not store its value at each step. Its step
stores a *delta* on an older value, and a reader puts them together again. No reducer is called for
that: a delta says what is to be done in terms of the built-in types.

**The contract of a writer.** For each channel it keeps the version (the `seq` of the record that holds the
newest part of the value) and the `Chain`; both come with a loaded `ThreadImage`. When a step changes a
channel and can say what it changed:

1. It makes the operations: `appended(data)` where `data` is an *encoded value* of the channel's codec that
   holds only what was added, so the bytes of an update that was encoded already are taken as they are;
   `keys_set`, `keys_removed`, `replaced` likewise. Several operations of one step are done in order.
2. `delta = join(operations)`. If `chain.takes(len(delta))`, the checkpoint gets
   `deltas[channel] = DeltaRow(version, delta)`, and the chain becomes `chain.with_delta(len(delta))`; else it
   gets `writes[channel] = encode(value)`, and the chain becomes `Chain(len(data))`.
3. Either way the channel's version becomes the checkpoint's `seq`.

The first value of a channel, one that an `Overwrite` replaced, and one whose type changed are snapshots.

**Operations.** The value must be of the same built-in type as the payload:

| operation | value | payload | does |
|---|---|---|---|
| `appended` | list, tuple, deque, str, bytes, bytearray | the same | adds at the end |
| `keys_set` | dict and its kinds; set, frozenset | the same | sets the keys in order; adds the members |
| `keys_removed` | the same | list of keys or members | removes those that are there |
| `replaced` | list, deque | list of as many items as there are indexes | replaces the items at the indexes |

The stored form is msgpack: a delta is an array of operations `[code, payload, indexes]`; a value in parts is
the bytes `C1 C1` and an array of the encoded snapshot and the deltas on it, oldest first.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from beamweaver.checkpoint._marks import WALKED, Broken, type_name

__all__ = [
    "PARTS",
    "Operation",
    "appended",
    "in_parts",
    "join",
    "keys_removed",
    "keys_set",
    "put_together",
    "replaced",
]

PARTS: Final = WALKED + WALKED
"""How a value in parts begins; no walked value does."""
_APPEND: Final = 1
_SET: Final = 2
_REMOVE: Final = 3
_REPLACE: Final = 4
_encode: Final = msgspec.msgpack.Encoder().encode


class Operation(msgspec.Struct, array_like=True, frozen=True):
    """One change of a value: what is done, with which encoded payload, and where."""

    code: int
    payload: bytes
    indexes: tuple[int, ...] = ()


Decode: TypeAlias = Callable[[bytes], Any]
_deltas: Final = msgspec.msgpack.Decoder(tuple[Operation, ...])
_parts: Final = msgspec.msgpack.Decoder(tuple[bytes, ...])


def appended(data: bytes) -> Operation:
    """The encoded sequence `data` is added at the end.

    Example:
        >>> from beamweaver.checkpoint import Codec
        >>> codec = Codec()
        >>> delta = join([appended(codec.encode([3]))])
        >>> codec.decode(in_parts(codec.encode([1, 2]), [delta]))
        [1, 2, 3]
    """
    return Operation(_APPEND, data)


def keys_set(data: bytes) -> Operation:
    """The keys of the encoded mapping `data` are set, or the members of the encoded set are added."""
    return Operation(_SET, data)


def keys_removed(data: bytes) -> Operation:
    """The keys or members in the list `data`, encoded by `Codec.encode`, are removed."""
    return Operation(_REMOVE, data)


def replaced(indexes: Sequence[int], data: bytes) -> Operation:
    """The items at `indexes` are replaced by those of the encoded sequence `data`."""
    return Operation(_REPLACE, data, tuple(indexes))


def join(operations: Sequence[Operation]) -> bytes:
    """The delta of these operations, done in order."""
    return _encode(operations)


def in_parts(snapshot: bytes, deltas: Sequence[bytes]) -> bytes:
    """The encoded value of a snapshot and the deltas on it, oldest first."""
    return PARTS + _encode((snapshot, *deltas)) if deltas else snapshot


def put_together(
    data: bytes | memoryview, decode: Decode, decode_keys: Decode, *, plain: bool = False
) -> Any:
    """The value of parts.

    Args:
        data: What `in_parts` made.
        decode: Decodes an encoded value of the channel.
        decode_keys: Decodes a list of keys.
        plain: Whether they are decoded as plain data, in which a set is a list.

    Raises:
        Broken: The parts do not fit each other.
        msgspec.DecodeError: They are damaged.
    """
    snapshot, *deltas = _parts.decode(memoryview(data)[len(PARTS) :])
    folder = _PlainFolder(decode(snapshot)) if plain else _Folder(decode(snapshot))
    for delta in deltas:
        for operation in _deltas.decode(delta):
            code = operation.code
            keys = code == _REMOVE
            payload = decode_keys(operation.payload) if keys else decode(operation.payload)
            folder.do(operation, payload)
    return folder.value()


class _Folder:
    """A value to which operations are done. Immutable sequences are gathered and joined once."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._tail: list[Any] = []

    def value(self) -> Any:
        if self._tail:
            self._value, self._tail = _joined(self._value, self._tail), []
        return self._value

    def do(self, operation: Operation, payload: Any) -> None:
        code = operation.code
        if code == _APPEND and isinstance(self._value, (tuple, str, bytes)):
            _same(self._value, payload)
            self._tail.append(payload)
            return
        value = self.value()
        if code == _APPEND:
            _append(value, payload)
        elif code == _SET:
            self._value = _set(value, payload)
        elif code == _REMOVE:
            self._value = _remove(value, payload)
        elif code == _REPLACE:
            _replace(value, operation.indexes, payload)
        else:
            raise Broken(f"the operation {code} of a delta is unknown; upgrade beamweaver")


class _PlainFolder(_Folder):
    """The same for plain data."""

    def do(self, operation: Operation, payload: Any) -> None:
        value = self.value()
        if operation.code == _SET and isinstance(value, list):
            self._value = value + [item for item in payload if item not in value]
        elif operation.code == _REMOVE and isinstance(value, list):
            self._value = [item for item in value if item not in payload]
        else:
            super().do(operation, payload)


def _joined(value: Any, tail: list[Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(item for part in (value, *tail) for item in part)
    empty: Any = type(value)()
    return empty.join((value, *tail))


def _same(value: Any, payload: Any) -> None:
    if type(value) is not type(payload):
        raise _unfit(value, payload)


def _unfit(value: Any, payload: Any) -> Broken:
    kind = type_name(type(value))
    return Broken(f"a delta of {type_name(type(payload))} does not fit a value of {kind}", kind)


def _append(value: Any, payload: Any) -> None:
    if not isinstance(value, (list, collections.deque, bytearray)):
        raise _unfit(value, payload)
    _same(value, payload)
    value.extend(payload)


def _set(value: Any, payload: Any) -> Any:
    _same(value, payload)
    if isinstance(value, dict):
        for key, item in payload.items():
            value[key] = item
        return value
    if isinstance(value, set):
        value |= payload
        return value
    if isinstance(value, frozenset):
        return value | payload
    raise _unfit(value, payload)


def _remove(value: Any, keys: Any) -> Any:
    if not isinstance(keys, list):
        raise _unfit(value, keys)
    if isinstance(value, dict):
        for key in keys:
            value.pop(key, None)
        return value
    if isinstance(value, set):
        value.difference_update(keys)
        return value
    if isinstance(value, frozenset):
        return value.difference(keys)
    raise _unfit(value, keys)


def _replace(value: Any, indexes: tuple[int, ...], payload: Any) -> None:
    if not isinstance(value, (list, collections.deque)) or len(indexes) != len(payload):
        raise _unfit(value, payload)
    for index, item in zip(indexes, payload, strict=True):
        if not 0 <= index < len(value):
            raise Broken(f"a delta replaces item {index} of {len(value)}", type_name(type(value)))
        value[index] = item
