"""What the demo's child tells its parent, a line each, through a pipe.

A line is shorter than a pipe's atomic size, so a killed child never leaves half of one.

Example:
    >>> decode_line(encode_line(Acknowledged("t", "id", "read")))
    Acknowledged(thread='t', task='id', node='read')
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

__all__ = ["Acknowledged", "Finished", "Line", "Ready", "Started", "decode_line", "encode_line"]


class _Line(msgspec.Struct, frozen=True, array_like=True):
    pass


class Ready(_Line, frozen=True, array_like=True, tag="r"):
    """The child has opened the store."""


class Started(_Line, frozen=True, array_like=True, tag="s"):
    """An attempt of a task begins."""

    thread: str
    task: str
    node: str
    attempt: int


class Acknowledged(_Line, frozen=True, array_like=True, tag="a"):
    """A task's result is durable."""

    thread: str
    task: str
    node: str


class Finished(_Line, frozen=True, array_like=True, tag="f"):
    """All threads are complete, and the report is written."""


Line: TypeAlias = Ready | Started | Acknowledged | Finished

_decoder = msgspec.json.Decoder(Line)


def encode_line(line: Line) -> bytes:
    """A line as bytes, with its end."""
    return msgspec.json.encode(line) + b"\n"


def decode_line(data: bytes) -> Line:
    """A line from its bytes.

    Raises:
        msgspec.ValidationError: It is none.
    """
    return _decoder.decode(data)
