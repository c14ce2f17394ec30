"""The side of a thread's actor that has commits on their way: those that wait for room too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beamweaver.engine import effects as fx
from beamweaver.runtime import messages as msg
from beamweaver.runtime.hands import Hands

if TYPE_CHECKING:
    from beamweaver.checkpoint.records import Commit
    from beamweaver.engine.machine import Machine
    from beamweaver.runtime.hub import Hub

__all__ = ["ROOM", "Writing"]

ROOM = ("room in the store",)
"""The key of the timer after which commits that found the store full are tried again."""
_FULL_SECONDS = 1.0


class Writing(Hands):
    """Sends commits ahead, and keeps those of a run that executes while the store is full.

    While it is full nothing is sent: what the machine asks to be written it keeps itself. All of it is
    sent again, in its order, when each commit that had been sent is answered; so no answer is taken for
    another's.
    """

    def __init__(self, hub: Hub, thread_id: str) -> None:
        super().__init__(hub, thread_id)
        self._handlers[fx.WriteAhead] = self._write_ahead
        self._unwritten: set[int] | None = None
        """While the store is full: the records after the one that found no room which have no answer yet."""

    def _write_ahead(self, effect: fx.WriteAhead) -> None:
        """Send a commit that nobody waits for: never inline, so that others follow it into its group."""
        writer = self._hub.writer
        assert writer is not None, "the writer starts before the threads"
        writer.put(msg.Write(effect.commit, self.cell))

    def _wait_for_room(self, machine: Machine, seq: int) -> None:
        """Record `seq` found no room, and those that follow it cannot be written without it."""
        self._unwritten = {c.record.seq for c in _on_their_way(machine) if c.record.seq > seq}
        self._handlers[fx.WriteCommit] = self._handlers[fx.WriteAhead] = self._keep
        self._look_for_room()

    def _look_for_room(self) -> None:
        assert self._hub.timers is not None, "the timers start before the threads"
        self._hub.timers.put(msg.SetTimer(self.cell, ROOM, _FULL_SECONDS))

    def _keep(self, effect: Any) -> None:
        """The machine has it in its window, or in flight."""

    def _write_again(self, machine: Machine) -> None:
        """Write what a full store refused, and what came after it."""
        if self._unwritten is None:
            return
        if self._unwritten:
            self._look_for_room()
            return
        self._wait_no_more()
        for commit in _on_their_way(machine):
            self._write(fx.WriteCommit(commit))

    def _wait_no_more(self) -> None:
        if self._unwritten is not None:
            self._unwritten = None
            self._handlers[fx.WriteCommit] = self._write
            self._handlers[fx.WriteAhead] = self._write_ahead


def _on_their_way(machine: Machine) -> list[Commit]:
    """The commits of a thread that are not acknowledged, the oldest first."""
    ahead = [flight.commit for flight in machine.window or ()]
    return ahead if machine.in_flight is None else [*ahead, machine.in_flight]
