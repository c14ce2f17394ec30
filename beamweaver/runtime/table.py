"""The table of a runtime's threads: which have an actor, which run, wait for a place, or rest."""

from __future__ import annotations

import threading
from itertools import islice
from typing import TYPE_CHECKING

from beamweaver.runtime.messages import RETIRE, ROOM, WAKE

if TYPE_CHECKING:
    from beamweaver.limits import Limits
    from beamweaver.runtime.waiters import Waiters
    from supervisors import Future
    from supervisors.mailbox import Cell

__all__ = ["ThreadTable"]

_RECOVERY = ""
"""Stands for Recovery among threads; none has this id."""


class ThreadTable:
    """Where each thread of a runtime is. It is no actor: callers and actors read it under one lock.

    A thread *runs* while its actor holds a place; `limits.threads_running` says how many there are. The
    others wait in order of arrival, Recovery among them. A thread that a node of this runtime called
    gets a place beyond the limit, for its caller holds one and waits for it.

    An actor whose thread has nothing to do *rests*; beyond `limits.threads_idle` those that have rested
    longest leave the memory.

    Attributes:
        actors: thread id -> cell of its actor.
        draining: Whether everything is to come to rest.
    """

    def __init__(self, limits: Limits, waiters: Waiters) -> None:
        self.limits = limits
        self.actors: dict[str, Cell] = {}
        self.draining = False
        self._waiters = waiters
        self._lock = threading.Lock()
        self._supervisor: Cell | None = None
        self._starting: set[str] = set()
        self._marks: dict[str, object] = {}
        """Threads that Recovery wants taken up; each mark is one wish."""
        self._running: set[str] = set()
        self._waiting: dict[str, Cell] = {}
        self._wanted = ""
        """The thread for which Recovery waits."""
        self._promised = ""
        """The thread whose place Recovery was given, and has not passed on."""
        self._resting: dict[str, Cell] = {}
        self._looked = False
        """Whether Recovery has looked for what ran under an earlier thread supervisor."""
        self._undrained: set[str] = set()
        self._drained: list[Future[None]] = []

    # Actors -------------------------------------------------------------------------------------

    def wake(self, thread_id: str, *, recover: bool = False) -> Cell | None:
        """Wake the thread's actor.

        Args:
            thread_id: The thread.
            recover: Whether what a dead process left of it is to be taken up.

        Returns:
            The thread supervisor, which must be asked to start an actor; None if there is, or will be, one.
        """
        with self._lock:
            if recover:
                self._marks[thread_id] = object()
                if self._promised == thread_id:
                    self._promised = ""
            cell = self.actors.get(thread_id)
            if cell is None:
                if thread_id in self._starting:
                    return None
                self._starting.add(thread_id)
                if self.draining:
                    self._undrained.add(thread_id)
                return self._supervisor
        cell.put(WAKE)
        return None

    def enter(self, thread_id: str, cell: Cell) -> bool:
        """The thread's new actor is there.

        Returns:
            False if its supervisor is not the present one: it is about to end, and another one may be
            there already, which must not be replaced.
        """
        with self._lock:
            if cell.parent is not self._supervisor:
                return False
            self.actors[thread_id] = cell
            self._starting.discard(thread_id)
            self._resting.pop(thread_id, None)
            if self.draining:
                self._undrained.add(thread_id)
            return True

    def failed_to_start(self, thread_id: str) -> bool:
        """The thread's actor could not start; whether one is wanted still."""
        with self._lock:
            cell = self.actors.get(thread_id)
            if thread_id not in self._starting and (cell is None or not cell.stopped):
                return False
            self._starting.discard(thread_id)
            self.actors.pop(thread_id, None)
            if self._waiters.has(thread_id) or thread_id in self._marks:
                return True
            told = self._remove(thread_id)
        _tell(told)
        return False

    def leave(self, thread_id: str, cell: Cell) -> bool:
        """The thread's actor wants to leave; False if calls wait for it, or Recovery does."""
        with self._lock:
            if self.actors.get(thread_id) is not cell:
                return True
            if self._waiters.has(thread_id) or thread_id in self._marks:
                return False
            told = self._remove(thread_id)
        _tell(told)
        return True

    def gone(self, thread_id: str) -> None:
        """The thread has no actor and none is on its way."""
        with self._lock:
            told = self._remove(thread_id)
        _tell(told)

    def begin(self, supervisor: Cell | None) -> None:
        """A new thread supervisor, or none yet: no actor of the one before counts any more."""
        with self._lock:
            self._supervisor = supervisor
            self.actors = {}
            for table in (self._starting, self._marks, self._running, self._waiting, self._resting):
                table.clear()
            self._promised = ""
            self._looked = False
            if self.draining:
                # Recovery starts an actor for each of those that callers wait for, or that ran.
                self._undrained = {_RECOVERY, *self._waiters.threads()}

    def _remove(self, thread_id: str) -> list[tuple[Cell, object]]:
        self.actors.pop(thread_id, None)
        self._starting.discard(thread_id)
        return self._come_to_rest(thread_id)

    def _come_to_rest(self, thread_id: str) -> list[tuple[Cell, object]]:
        """Whom to tell what, now that the thread needs nothing."""
        self._marks.pop(thread_id, None)
        self._running.discard(thread_id)
        self._waiting.pop(thread_id, None)
        self._resting.pop(thread_id, None)
        if self.draining:
            self._undrained.discard(thread_id)
            self._tell_drained()
        return self._grant() if self._waiting else []

    # Recovery's wishes --------------------------------------------------------------------------

    def mark_of(self, thread_id: str) -> object | None:
        """What stands for Recovery's last wish to have the thread taken up; None if there is none."""
        return self._marks.get(thread_id)

    def reserve(self, thread_id: str, recovery: Cell) -> bool:
        """Hold a place for a thread that is to be taken up, which `wake` follows.

        Returns:
            False if there is none; `recovery` gets `ROOM` when it has one.
        """
        with self._lock:
            if thread_id in self._running or thread_id in self._waiting:
                return True
            if self.draining or len(self._running) < self.limits.threads_running:
                self._running.add(thread_id)
                return True
            self._waiting[_RECOVERY], self._wanted = recovery, thread_id
            return False

    def unreserve(self) -> None:
        """A new Recovery: what the one before waited for, or was given, is nobody's."""
        with self._lock:
            self._waiting.pop(_RECOVERY, None)
            thread_id, self._promised = self._promised, ""
            if not thread_id or thread_id in self.actors or thread_id in self._starting:
                return
            self._running.discard(thread_id)
            told = self._grant()
        _tell(told)

    def recovered(self) -> None:
        """Recovery has looked at all threads: each that ran under an earlier supervisor has an actor."""
        with self._lock:
            self._looked = True
            self._undrained.discard(_RECOVERY)
            self._tell_drained()

    # Places -------------------------------------------------------------------------------------

    def take_place(self, thread_id: str, cell: Cell) -> bool:
        """Hold a place, from now on until `rest`; False if the thread has to wait for `WAKE`."""
        with self._lock:
            if self.actors.get(thread_id) is not cell:
                return False
            if thread_id not in self._running and not self._may_run(thread_id):
                self._waiting[thread_id] = cell  # one that waited before keeps its turn
                return False
            self._running.add(thread_id)
            self._waiting.pop(thread_id, None)
            self._resting.pop(thread_id, None)
            return True

    def _may_run(self, thread_id: str) -> bool:
        return (
            len(self._running) < self.limits.threads_running
            or self.draining
            or self._waiters.has_nested(thread_id)
        )

    def rest(self, thread_id: str, cell: Cell, mark: object | None) -> bool:
        """The thread has nothing to do: its place is free, and its actor may be asked to leave.

        Args:
            thread_id: The thread.
            cell: Its actor.
            mark: Recovery's last wish that it knows of.

        Returns:
            False if there is a later wish.
        """
        with self._lock:
            if self.actors.get(thread_id) is not cell or thread_id in self._waiting:
                return True
            wish = self._marks.get(thread_id)
            if wish is not None and wish is not mark:
                return False
            told = self._come_to_rest(thread_id)
            self._resting[thread_id] = cell
            surplus = len(self._resting) - self.limits.threads_idle
            if surplus > 0:
                for oldest in list(islice(self._resting, surplus)):
                    told.append((self._resting.pop(oldest), RETIRE))
        _tell(told)
        return True

    def _grant(self) -> list[tuple[Cell, object]]:
        """Give free places to those that wait longest."""
        told: list[tuple[Cell, object]] = []
        while self._waiting and len(self._running) < self.limits.threads_running:
            thread_id = next(iter(self._waiting))
            cell = self._waiting.pop(thread_id)
            if thread_id == _RECOVERY:
                thread_id = self._promised = self._wanted
                self._waiting.pop(thread_id, None)
                told.append((cell, ROOM))
            else:
                told.append((cell, WAKE))
            self._running.add(thread_id)
        return told

    # Draining -----------------------------------------------------------------------------------

    def drain(self, done: Future[None]) -> list[Cell]:
        """Set `done` when every thread has come to rest; the actors that there are."""
        with self._lock:
            self.draining = True
            self._undrained = {*self.actors, *self._starting}
            if not self._looked:
                self._undrained.add(_RECOVERY)
            self._drained.append(done)
            self._tell_drained()
            return list(self.actors.values())

    def undrained(self) -> list[Cell]:
        """The actors that have not come to rest."""
        with self._lock:
            return [self.actors[t] for t in self._undrained if t in self.actors]

    def _tell_drained(self) -> None:
        if not self._undrained:
            while self._drained:
                self._drained.pop().offer(None)

    # Seeing -------------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        """How many threads hold a place."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """How many wait for one, Recovery counted as one."""
        return len(self._waiting)


def _tell(told: list[tuple[Cell, object]]) -> None:
    for cell, message in told:
        cell.put(message)
