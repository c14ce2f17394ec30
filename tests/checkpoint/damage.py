"""Damage: a value with a flipped bit, a file with a flipped, zeroed or cut part."""

from __future__ import annotations

import bisect

import msgspec

from beamweaver.checkpoint import Codec
from beamweaver.checkpoint._history import Ask
from beamweaver.checkpoint._layout import describe, seal
from beamweaver.checkpoint._reads import (
    id_of,
    read_history,
    read_image,
    read_inbox_threads,
    read_run_end,
    read_run_number,
    read_thread_ids,
    read_threads,
)
from beamweaver.errors import CorruptRecord, DeserializationError

PAGE = 4096


def hurt(txn, key):
    """Flip a bit of a stored value."""
    value = bytearray(txn.get(key))
    value[-1] ^= 1
    txn.put(key, bytes(value))


def damaged(original, path, chance):
    """Write a damaged copy of a file; how it was damaged."""
    data = bytearray(original)
    page = chance.randrange(len(data) // PAGE) * PAGE
    how = chance.choice(["bit", "head", "zero", "cut", "swap", "stale"])
    at = page + chance.randrange(PAGE)
    if how == "bit":
        data[at] ^= 1 << chance.randrange(8)
    elif how == "head":
        at = page + chance.randrange(64)
        data[at] = chance.randrange(256)
    elif how == "zero":
        length = chance.choice([1, 8, 512, PAGE])
        data[at : at + length] = bytes(len(data[at : at + length]))
    elif how == "cut":
        del data[at:]
    else:
        other = chance.randrange(len(data) // PAGE) * PAGE
        data[page : page + PAGE] = original[other : other + PAGE]
        if how == "swap":
            data[other : other + PAGE] = original[page : page + PAGE]
    path.write_bytes(data)
    return f"{how} at {at} of page {page // PAGE}"


class Pairs:
    """A read transaction on pairs in memory, one of which may be another."""

    def __init__(self, pairs):
        self.pairs = pairs
        self._places = {key: place for place, (key, _) in enumerate(pairs)}
        self.keys_of = [key for key, _ in pairs]
        self._other = None, b""

    def change(self, key, value):
        self._other = key, value

    def get(self, key):
        if key == self._other[0]:
            return self._other[1]
        place = self._places.get(key)
        return None if place is None else self.pairs[place][1]

    def range(self, start, stop):
        for key in self.keys_of[bisect.bisect_left(self.keys_of, start) :]:
            if key >= stop:
                return
            yield key, self.get(key)

    def keys(self, start, stop):
        return (key for key, _ in self.range(start, stop))

    def back(self, start, stop):
        for place in range(bisect.bisect_left(self.keys_of, stop) - 1, -1, -1):
            key = self.keys_of[place]
            if key < start:
                return
            yield key, self.get(key)

    def last(self, start, stop):
        return next((key for key, _ in self.back(start, stop)), None)


def told_of(txn, key):
    """All that a store tells about the thread of a key."""
    rest = key[2:] if key[:1] == b"S" else key[1:]
    name = id_of(rest[: rest.index(b"\0") + 1]) if b"\0" in rest else ""
    return [
        read_image(txn, name, None),
        read_history(txn, name, None, Ask(4, values=True)),
        [read_run_number(txn, name, run) for run in ("r", "alias")],
        read_run_end(txn, name, 1),
        read_threads(txn, ["waiting", "failed"], "", 9),
        read_inbox_threads(txn, "", 9),
        read_thread_ids(txn, "", 9),
    ]


def mutated(value, chance):
    """A value that is flipped, zeroed, cut or lengthened."""
    data = bytearray(value)
    at = chance.randrange(len(data))
    how = chance.randrange(4)
    if how == 0:
        data[at] ^= 1 << chance.randrange(8)
    elif how == 1:
        data[at : at + chance.choice([1, 4, len(data)])] = bytes(len(data[at : at + 4]))
    elif how == 2:
        del data[at:]
    else:
        data[at:at] = bytes(chance.randrange(256) for _ in range(chance.randint(1, 4)))
    return bytes(data)


def judge_mutation(txn, chance, expected):
    """Damage one value and read: an error, or the right answer. A text if it is neither."""
    key = chance.choice(txn.keys_of)
    right = txn.get(key)
    value = mutated(right, chance)
    txn.change(key, value)
    try:
        if key not in expected:
            txn.change(None, b"")
            expected[key] = told_of(txn, key)
            txn.change(key, value)
        same = told_of(txn, key) == expected[key]
    except CorruptRecord as error:
        return "" if error.key else f"an error without a key for {describe(key)}"
    finally:
        txn.change(None, b"")
    return "" if same else f"a wrong value for {describe(key)}: {value.hex()} for {right.hex()}"


def judge_forgery(txn, chance, codec=None):
    """Damage the content behind a right checksum: still no crash, an answer or an error."""
    key = chance.choice(txn.keys_of)
    payload = txn.get(key)[5:]
    if not payload:
        return ""
    txn.change(key, seal(key, mutated(payload, chance)))
    try:
        image = told_of(txn, key)[0]
        for data in {} if image is None else image.values.values():
            (codec or Codec()).decode(data)
    except (CorruptRecord, DeserializationError):
        pass
    except (msgspec.MsgspecError, ValueError, TypeError, KeyError, AttributeError) as error:
        return f"{type(error).__name__} {error} for {describe(key)}"
    finally:
        txn.change(None, b"")
    return ""
