"""The timer actor: one heap for all threads of a runtime."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from beamweaver.runtime.messages import DropTimer, Fired, SetTimer
from supervisors import Actor

if TYPE_CHECKING:
    from beamweaver.runtime.hub import Hub
    from supervisors.mailbox import Cell

__all__ = ["Timers"]

_TICK = object()
_GARBAGE = 1_000
"""Dropped timers that may rest in the heap before it is built again."""


class Timers(Actor):
    """Keeps the timers of all threads on the system's clock and arms only the earliest.

    It is a child of its own so that its state has an owner. When it crashes, the threads after it in the
    tree start again too, and set their timers from the store.
    """

    lane: ClassVar[Literal["hi"]] = "hi"
    isolated: ClassVar[bool] = False

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._due: dict[tuple[Cell, Any], int] = {}
        self._heap: list[tuple[float, int, tuple[Cell, Any]]] = []
        self._numbers = itertools.count()
        self._armed: tuple[float, Any] | None = None

    def on_start(self) -> None:
        """Be known to the runtime."""
        self._hub.timers = self.cell

    def on_receive(self, message: Any) -> None:
        """Set, drop, or fire what is due."""
        if type(message) is SetTimer:
            self._set(message)
        elif type(message) is DropTimer:
            self._due.pop((message.cell, message.key), None)
            self._sweep()
        else:
            self._armed = None
            self._fire()
        self._arm()

    def __len__(self) -> int:
        return len(self._due)

    def _set(self, message: SetTimer) -> None:
        number = next(self._numbers)
        key = (message.cell, message.key)
        self._due[key] = number
        due = self.system.clock.monotonic() + message.delay
        heapq.heappush(self._heap, (due, number, key))

    def _fire(self) -> None:
        now = self.system.clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            _due, number, key = heapq.heappop(self._heap)
            if self._due.get(key) == number:
                del self._due[key]
                key[0].put(Fired(key[1]))

    def _sweep(self) -> None:
        if len(self._heap) > 2 * len(self._due) + _GARBAGE:
            self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)

    def _arm(self) -> None:
        heap = self._heap
        while heap and self._due.get(heap[0][2]) != heap[0][1]:
            heapq.heappop(heap)
        if not heap:
            return
        due = heap[0][0]
        if self._armed is not None:
            if self._armed[0] <= due:
                return
            self._armed[1].cancel()
        delay = max(due - self.system.clock.monotonic(), 0.0)
        self._armed = (due, self.system.send_after(delay, self.cell, _TICK))
