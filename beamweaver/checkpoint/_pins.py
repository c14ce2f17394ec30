"""Moments of stores that are held for those who look through a whole file, while nobody else has it open.

LMDB allows a process to open a path once. So who opens a store in earnest takes the place of a pin: it is
gone then, and who looked under it looks again.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from beamweaver.checkpoint._lmdb_kv import LmdbKv

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Pin", "Pins"]


class Pin:
    """A moment that is held.

    Attributes:
        txnid: The number of its transaction.
        lost: Whether it is held no longer, so that its pages may have been written over.
    """

    def __init__(self, txnid: int) -> None:
        self.txnid = txnid
        self.lost = False
        self.users = 1
        self.held = contextlib.ExitStack()


class Pins:
    """The pins of a process; whoever calls holds the lock of its registry."""

    def __init__(self) -> None:
        self._pins: dict[str, Pin] = {}

    def take(self, path: Path) -> Pin:
        """The pin of a path, for one more user.

        Raises:
            lmdb.Error: The store cannot be opened.
        """
        pin = self._pins.get(str(path))
        if pin is not None:
            pin.users += 1
            return pin
        kv = LmdbKv(path, sync=False, readonly=True)
        with contextlib.ExitStack() as held:
            held.callback(kv.close)
            pin = Pin(held.enter_context(kv.pinned()))
            pin.held = held.pop_all()
        self._pins[str(path)] = pin
        return pin

    def give_back(self, path: Path, pin: Pin) -> None:
        """One user less; the last one ends it."""
        pin.users -= 1
        if not pin.users and not pin.lost:
            self.end(path)

    def end(self, path: Path) -> None:
        """Another one is about to open the path: its pin is lost, if there is one."""
        pin = self._pins.pop(str(path), None)
        if pin is not None:
            pin.lost = True
            pin.held.close()
