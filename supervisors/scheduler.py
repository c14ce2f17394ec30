"""The seam between actors and what runs them: the protocol, and the worker that runs now."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from supervisors.clock import Clock
    from supervisors.kill import Job
    from supervisors.timers import Timers

__all__ = [
    "Lane",
    "OnSlow",
    "Runnable",
    "Scheduler",
    "Statistics",
    "Waitable",
    "Worker",
    "here",
    "park",
]

Lane: TypeAlias = Literal["hi", "lo", "idle"]
"""Where a runnable waits: `hi` (framework), `lo` (bodies of users), `idle` (when all else rests)."""


OnSlow: TypeAlias = "Callable[[object, float, str], object]"
"""Told of a turn that takes long: whose, for how many seconds by now, and the stack."""


class Runnable(Protocol):
    """Something that a worker gives a turn: an actor's cell, or a task."""

    @property
    def lane(self) -> Lane:
        """Where it waits."""
        ...

    def turn(self, worker: Worker, /) -> None:
        """Run one slice on `worker`. It raises nothing."""
        ...


class Waitable(Protocol):
    """Something that a worker waits for: a future."""

    def done(self) -> bool:
        """Tell whether the wait is over."""
        ...

    def add_waiter(self, waiter: Releasable, /) -> None:
        """Release `waiter` once when the wait is over, at once if it is over already."""
        ...

    def drop_waiter(self, waiter: Releasable, /) -> None:
        """Forget a waiter that waits no more."""
        ...


class Releasable(Protocol):
    """A locked lock, or what looks like one."""

    def release(self) -> object:
        """Wake who waits."""
        ...


class Worker:
    """Who runs turns: an OS thread of a pool, or the one thread of a simulation.

    Attributes:
        scheduler: whose worker this is
        cell: what has its turn now, or None
        nest: the cells that are suspended below it on this worker's stack
        job: the interruptible body that runs now, or None
        quantum: how many messages a turn may handle
        blocked: how many declared waits are open on this worker's stack
        zombie: it was abandoned: it does not come back to the pool
        ident: the identifier of its OS thread
    """

    __slots__ = ("blocked", "cell", "ident", "job", "nest", "quantum", "scheduler", "zombie")

    def __init__(self, scheduler: Scheduler, quantum: int) -> None:
        """Make a worker of `scheduler`."""
        self.scheduler = scheduler
        self.cell: object = None
        self.nest: list[object] = []
        self.job: Job | None = None
        self.quantum = quantum
        self.blocked = 0
        self.zombie = False
        self.ident = 0


class _Here(threading.local):
    worker: Worker | None = None


here = _Here()
"""`here.worker` is the worker that runs the calling code, or None on a thread of the program's."""


def park(waitable: Waitable, lock: threading.Lock, timeout: float | None) -> None:
    """Sleep until `lock`, a waiter of `waitable`, is released, `timeout` seconds at most.

    A wait that was given up leaves nothing behind: what is polled for years must not grow.
    """
    try:
        lock.acquire(timeout=-1 if timeout is None else min(max(timeout, 0), threading.TIMEOUT_MAX))
    finally:
        if not waitable.done():
            waitable.drop_waiter(lock)


class Statistics(msgspec.Struct, frozen=True):
    """What a scheduler is doing now.

    Attributes:
        workers: OS threads that it has, without abandoned ones
        active: workers that run or look for work
        waiting: workers in a declared wait (`Future.get`, `blocking`)
        parked: workers at rest
        limit: how many may be active now
        runnable: actors and tasks that wait for a worker
        abandoned: workers given up in code that does not return; they end when it does
        abandoned_total: how many were ever given up
        dedicated: OS threads of actors that have one of their own
    """

    workers: int = 0
    active: int = 0
    waiting: int = 0
    parked: int = 0
    limit: int = 0
    runnable: int = 0
    abandoned: int = 0
    abandoned_total: int = 0
    dedicated: int = 0


class Scheduler(Protocol):
    """What runs cells and tasks, waits, and keeps timers."""

    abandoned: int  # workers given up, that have not returned

    @property
    def timers(self) -> Timers:
        """The pending timers."""
        ...

    def start(self, clock: Clock | None) -> Clock:
        """Take the clock of the system that uses this scheduler; None: choose one. Return it."""
        ...

    def submit(self, item: Runnable, worker: Worker | None, /) -> None:
        """Make `item` runnable, next on `worker` (the caller's) if that has nothing planned."""
        ...

    def submit_lazy(self, item: Runnable, worker: Worker | None, /) -> None:
        """Make `item` runnable behind everything that waits."""
        ...

    def follow(self, item: Runnable, worker: Worker, /) -> None:
        """Make `item` runnable as the last thing that a turn of `worker` does; or run it at once."""
        ...

    def quiet(self, worker: Worker, /) -> bool:
        """Tell whether nothing waits for a worker."""
        ...

    def take_back(self, item: Runnable, worker: Worker, /) -> bool:
        """Make `item` not runnable again if it is all that waits; the caller then runs it."""
        ...

    def wait(self, waitable: Waitable, timeout: float | None, /) -> bool:
        """Wait up to `timeout` seconds; return whether it is over. Others run meanwhile."""
        ...

    def blocking(self) -> AbstractContextManager[None]:
        """Declare that the calling worker blocks inside the context."""
        ...

    def abandon(self, worker: Worker, /) -> None:
        """Give `worker` up, in code that does not return, and replace it."""
        ...

    def dedicated(self) -> Scheduler:
        """Return what gives each of its actors a worker of its own; timers are shared."""
        ...

    def watch(self, seconds: float, call: OnSlow, /) -> None:
        """Have `call(what, seconds, stack)` called for turns that take longer than `seconds`."""
        ...

    def forked(self) -> bool:
        """Hear that this process is a fork; return whether the workers are lost."""
        ...

    def statistics(self) -> Statistics:
        """Return what it is doing now."""
        ...

    def shutdown(self, timeout: float) -> bool:
        """End all workers; return whether all ended within `timeout` seconds."""
        ...
