"""What the actors of a runtime tell each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from beamweaver.checkpoint.entries import Memo
    from beamweaver.checkpoint.records import Commit
    from beamweaver.engine.effects import Attempt
    from beamweaver.errors import StoreError
    from beamweaver.runtime.calls import Pending
    from supervisors import Future
    from supervisors.mailbox import Cell

__all__ = [
    "AGAIN",
    "CHANGED",
    "CUT",
    "DRAIN",
    "RETIRE",
    "ROOM",
    "WAKE",
    "Acknowledged",
    "Call",
    "Claim",
    "Claimed",
    "DropTimer",
    "Fired",
    "Left",
    "Note",
    "Refused",
    "SetTimer",
    "Sleeps",
    "Write",
    "WriteAll",
]


class _Signal:
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


WAKE = _Signal("WAKE")
"""To a thread: calls wait for you, or you are to be taken up, or there is a place for you."""
AGAIN = _Signal("AGAIN")
"""To Recovery: look at the store once more."""
ROOM = _Signal("ROOM")
"""To Recovery: there is a place for the thread that you wanted to take up."""
DRAIN = _Signal("DRAIN")
"""To a thread: start nothing more, and come to rest."""
CUT = _Signal("CUT")
"""To a thread: stop what still runs."""
RETIRE = _Signal("RETIRE")
"""To a thread: leave the memory if nothing needs you."""
CHANGED = _Signal("CHANGED")
"""To a thread: what you know of yourself is void; claim the thread anew and read the store."""


class Claim:
    """To the writer: commits of older incarnations of this thread are stale from now on."""

    __slots__ = ("cell", "incarnation", "thread_id")

    def __init__(self, thread_id: str, incarnation: int, cell: Cell) -> None:
        self.thread_id = thread_id
        self.incarnation = incarnation
        self.cell = cell


class Claimed:
    """To a thread: the claim stands, and what older incarnations wrote is in the store."""

    __slots__ = ()


class Left:
    """To the writer: that incarnation of the thread's actor is gone and wrote all that it will."""

    __slots__ = ("incarnation", "thread_id")

    def __init__(self, thread_id: str, incarnation: int) -> None:
        self.thread_id = thread_id
        self.incarnation = incarnation


class Write(msgspec.Struct, gc=False, eq=False):
    """To the writer: make this durable and tell `cell`."""

    commit: Commit
    cell: Cell


class Note:
    """To a thread: a durable sub-step of an attempt ended well; `done` is set when that is kept."""

    __slots__ = ("attempt", "done", "memo")

    def __init__(self, attempt: Attempt, memo: Memo, done: Future[None]) -> None:
        self.attempt = attempt
        self.memo = memo
        self.done = done


class Call:
    """To a thread: the function of an attempt calls a graph; `calling` is told what it came to."""

    __slots__ = ("attempt", "calling")

    def __init__(self, attempt: Attempt, calling: Pending) -> None:
        self.attempt = attempt
        self.calling = calling


class WriteAll:
    """To the writer: make these of one thread durable, in one group, and tell `cell` of the last one."""

    __slots__ = ("cell", "commits")

    def __init__(self, commits: list[Commit], cell: Cell) -> None:
        self.commits = commits
        self.cell = cell


class Acknowledged(msgspec.Struct, gc=False, eq=False):
    """To a thread: the record `seq` is durable."""

    seq: int


class Refused:
    """To a thread: the record `seq` was not written."""

    __slots__ = ("error", "seq")

    def __init__(self, seq: int, error: StoreError) -> None:
        self.seq = seq
        self.error = error


class Sleeps:
    """To Recovery: the thread has left the memory and sleeps; wake it `seconds` from now."""

    __slots__ = ("seconds", "thread_id")

    def __init__(self, thread_id: str, seconds: float) -> None:
        self.thread_id = thread_id
        self.seconds = seconds


class SetTimer(msgspec.Struct, gc=False, eq=False):
    """To the timers: send `Fired(key)` to `cell` after `delay` seconds."""

    cell: Cell
    key: Any
    delay: float


class DropTimer(msgspec.Struct, gc=False, eq=False):
    """To the timers: forget this one."""

    cell: Cell
    key: Any


class Fired(msgspec.Struct, gc=False, eq=False):
    """To a thread: its timer `key` is due."""

    key: Any
