"""The side of a thread's actor that has commits on their way: those that wait for room too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from beamweaver.engine import effects as fx
from beamweaver.runtime import messages as msg
from beamweaver.runtime.hands import Hands

if TYPE_CHECKING:
    from beamweaver.checkpoint.records import Commit
    from beamweaver.engine.machine import Machine
    from beamweaver.runtime.hub import Hub

__all__ = ["ROOM", "Writing"]

ROOM = ("room in the store",)
"""The key of the timer after which what the store refused is tried again."""
_LATER_SECONDS = 1.0
_TRIES: Final = 3
"""How often a run that nobody waits for is gone on with after the store refused one record."""


class Writing(Hands):
    """Sends commits ahead, and keeps those of a run that executes while the store is full.

    While it is full nothing is sent: what the machine asks to be written it keeps itself. All of it is
    sent again, in its order, when each commit that had been sent is answered; so no answer is taken for
    another's.
    """

    def __init__(self, hub: Hub, thread_id: str) -> None:
        super().__init__(hub, thread_id)
        self._handlers[fx.WriteAhead] = self._write_ahead
        self._refused_seq, self._refusals = -1, 0
        """Which record the store refused last, and how often though it was not full."""
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
        self._try_later()

    def _try_later(self) -> None:
        assert self._hub.timers is not None, "the timers start before the threads"
        self._hub.timers.put(msg.SetTimer(self.cell, ROOM, _LATER_SECONDS))

    def _again(self, seq: int, *, full: bool) -> bool:
        """Whether this record was refused the last time too."""
        again = seq == self._refused_seq
        self._refused_seq = seq
        self._refusals = (self._refusals if again else 0) + (not full)
        return again

    def _goes_on(self) -> bool:
        """Whether a run for which nobody waits goes on by itself after a refusal: a few times a record.

        A caller who waits hears of it instead, and may call again.
        """
        return self._refusals <= _TRIES and not self._hub.waiters.has(self.thread_id)

    def _keep(self, effect: Any) -> None:
        """The machine has it in its window, or in flight."""

    def _write_again(self, machine: Machine) -> None:
        """Write what a full store refused, and what came after it."""
        if self._unwritten is None:
            return
        if self._unwritten:
            self._try_later()
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
