"""How values that msgpack lacks are written, and the two errors that travel up with a path.

A *walked* value is the byte 0xC1 (which msgpack never uses) and a msgpack tree. In the tree, a list whose
first item is one of these marks (an empty msgpack extension) stands for something else than a list.
The numbers are stored: they are never reused.
"""

from __future__ import annotations

import enum
from typing import Final

__all__ = ["SCALARS", "WALKED", "Broken", "Mark", "Refused", "step_into", "type_name"]

WALKED: Final = b"\xc1"
SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})


class Mark(enum.IntEnum):
    """What a marked list stands for, and what follows the mark."""

    TUPLE = 1  # items
    SET = 2  # members
    FROZENSET = 3  # members
    INT = 4  # two's complement, big endian
    TEXT = 5  # a str with lone surrogates: UTF-8 that holds them
    BYTEARRAY = 6  # bytes
    MAP = 7  # a dict with other than scalar keys: key, value, …
    ORDERED_DICT = 8  # key, value, …
    DEFAULT_DICT = 9  # factory, key, value, …
    COUNTER = 10  # key, count, …
    DEQUE = 11  # maxlen, items
    RANGE = 12  # start, stop, step
    COMPLEX = 13  # real, imaginary
    FRACTION = 14  # numerator, denominator
    DECIMAL = 15  # text
    UUID = 16  # 16 bytes
    PATH = 17  # class, text
    DATE = 18  # ISO text
    TIME = 19  # ISO text without zone, fold, zone
    DATETIME = 20  # ISO text without zone, fold, zone
    TIMEDELTA = 21  # days, seconds, microseconds
    TIMEZONE = 22  # days, seconds, microseconds, name or None
    ZONE = 23  # IANA key
    ENUM = 24  # class, member's name; or class, None, value for a combined flag
    OBJECT = 25  # class, state
    EXCEPTION = 26  # built-in class, args, attributes


class _Travelling(Exception):
    """Travels up from where a value cannot be stored or read, and gathers the path."""

    def __init__(self, reason: str, kind: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind
        self.steps: list[str] = []

    def path(self, start: str) -> str:
        """The path from `start` to the place."""
        return start + "".join(reversed(self.steps))


class Refused(_Travelling):
    """A value cannot be stored."""


class Broken(_Travelling):
    """A stored value cannot be read back."""


def step_into(key: object) -> str:
    """One step of a path: `.name`, `[3]`, `['two words']`."""
    if isinstance(key, str) and key.isidentifier():
        return f".{key}"
    text = repr(key)
    return f"[{text if len(text) <= 40 else text[:37] + '...'}]"


def type_name(kind: type) -> str:
    """A type as messages name it."""
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"
