"""What becomes of actor systems in a forked process: their workers stay in the parent."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Protocol

from supervisors.inbox import Inbox

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Forkable", "refuse", "watch"]


class Forkable(Protocol):
    """Something that must know when this process is a fork."""

    def forked(self) -> None:
        """Hear that this process is a fork of the one where it was made."""
        ...


def refuse(cells: Sequence[Inbox]) -> None:
    """Have these actors, and all that they supervise, take no more messages."""
    waiting = list(cells)
    while waiting:
        cell = waiting.pop()
        cell.stopped = True
        book = cell.book
        waiting += [kid for kid in (book.kids if book else ()) if isinstance(kid, Inbox)]


class _Watch:
    """The systems of this process. The interpreter keeps hooks for ever, so there is one for all."""

    def __init__(self) -> None:
        self._systems: weakref.WeakSet[Forkable] = weakref.WeakSet()
        self._hooked = False

    def add(self, system: Forkable) -> None:
        if not self._hooked and hasattr(os, "register_at_fork"):
            self._hooked = True
            os.register_at_fork(after_in_child=self._tell)
        self._systems.add(system)

    def _tell(self) -> None:
        for system in list(self._systems):
            system.forked()


watch = _Watch().add
"""Have `system.forked()` called in each process that is forked from this one."""
