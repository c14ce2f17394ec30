"""A scheduler that replays: one OS thread, an order drawn from a seed, a virtual clock.

Waiting drives the simulation: `Future.get` runs other actors, on the stack of the one that waits,
until the result is there. When nothing is runnable the clock jumps to the next timer; when
there is none, the wait can never end and `StuckError` names the seed and the waiters.

Its limits: turns are not interrupted between two lines; waits nest on one stack, so a chain of some
hundred nested asks exceeds Python's recursion limit, and a wait can end only after those that began
later; other OS threads may send, but a wait for them alone is an error.
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING

from supervisors.errors import InvalidSpec, StuckError
from supervisors.scheduler import OnSlow, Runnable, Statistics, Waitable, Worker, here
from supervisors.testing.clock import VirtualClock
from supervisors.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from supervisors.clock import Clock

__all__ = ["DeterministicScheduler"]

_QUANTA = (1, 1, 2, 64)  # messages a turn: mostly few, for many interleavings


class _Alarm:
    """A timer's target that does nothing: the clock may jump to it."""

    def put(self, message: object) -> None:
        """Do nothing."""


class DeterministicScheduler:
    """Runs actors one at a time, in an order drawn from `seed`. See the module.

    Args:
        seed: what the order is drawn from; the same seed gives the same run
        clock: the time; a `VirtualClock` of its own by default
        step_cost: virtual seconds that each turn takes, so that an endless loop meets its timeouts
        max_steps: turns after which a wait gives up with `StuckError`

    Attributes:
        steps: how many turns have run
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        clock: VirtualClock | None = None,
        step_cost: float = 0.0,
        max_steps: int = 10_000_000,
    ) -> None:
        """Make a simulation at its beginning."""
        self.seed = seed
        self.clock = VirtualClock() if clock is None else clock
        self.timers = Timers(self.clock, lambda: None)
        self.steps = 0
        self.abandoned = 0
        self._abandoned_total = 0
        self._random = random.Random(seed)  # noqa: S311 - replay, not secrecy
        self._step_cost = step_cost
        self._max_steps = max_steps
        self._runnable: list[Runnable] = []
        self._idle: list[Runnable] = []
        self._waiters: list[Waitable] = []
        self._worker = Worker(self, 1)
        self._worker.ident = get_ident()
        self._closed = False

    def start(self, clock: Clock | None) -> Clock:
        """Take the system's clock, which must be virtual; None: its own."""
        if clock is not None and clock is not self.clock:
            if not isinstance(clock, VirtualClock):
                raise InvalidSpec("clock", clock, "a simulation needs a VirtualClock")
            self.clock = clock
            self.timers = Timers(clock, lambda: None)
        return self.clock

    def submit(self, item: Runnable, worker: Worker | None, /) -> None:
        """Make `item` runnable."""
        del worker
        if self._closed:
            item.turn(Worker(self, 64))  # all actors are dead: this drains a mailbox
        elif item.lane == "idle":
            self._idle.append(item)
        else:
            self._runnable.append(item)

    submit_lazy = follow = submit

    def quiet(self, worker: Worker, /) -> bool:
        """Tell whether nothing is runnable; now and then deny it, to try the other way."""
        del worker
        return not self._runnable and not self._idle and self._random.random() < 0.75

    def take_back(self, item: Runnable, worker: Worker, /) -> bool:
        """Make `item` not runnable again if it is all that waits; now and then refuse."""
        del worker
        waiting = self._idle or self._runnable
        if self.runnable != 1 or waiting[0] is not item or self._random.random() < 0.25:
            return False
        waiting.clear()
        return True

    @property
    def runnable(self) -> int:
        """How many actors and tasks wait for their turn."""
        return len(self._runnable) + len(self._idle)

    # Driving

    def step(self) -> bool:
        """Give one turn to one that waits; return False if none does."""
        item = self._draw()
        if item is None:
            return False
        self.steps += 1
        if self._step_cost:
            self.clock.advance(self._step_cost)
            self.timers.fire_due()
        worker = self._worker
        before, job, cell = here.worker, worker.job, worker.cell
        here.worker, worker.job = worker, None
        worker.quantum = self._random.choice(_QUANTA)
        try:
            item.turn(worker)
        finally:
            here.worker, worker.job, worker.cell = before, job, cell
        return True

    def _draw(self) -> Runnable | None:
        runnable, idle = self._runnable, self._idle
        if idle and (not runnable or self._random.random() < 0.1):
            return idle.pop(self._random.randrange(len(idle)))
        if not runnable:
            return None
        index = self._random.randrange(len(runnable))
        runnable[index], runnable[-1] = runnable[-1], runnable[index]
        return runnable.pop()

    def jump(self) -> bool:
        """Move the clock to the next timer and send what is due; False if there is none."""
        deadline = self.timers.next_deadline()
        if deadline is None:
            return False
        self.clock.move_to(deadline)
        self.timers.fire_due()
        return True

    def settle(self) -> int:
        """Run until nothing is runnable, without moving the clock; return the number of turns."""
        before = self.steps
        while self.step():
            self._check_steps(before)
        return self.steps - before

    def run_for(self, seconds: float) -> None:
        """Run everything that happens in the next `seconds` of virtual time."""
        end = self.clock.monotonic() + seconds
        self.settle()
        while (deadline := self.timers.next_deadline()) is not None and deadline <= end:
            self.jump()
            self.settle()
        self.clock.move_to(end)

    def wait(self, waitable: Waitable, timeout: float | None, /) -> bool:
        """Drive the simulation until `waitable` is done, or `timeout` virtual seconds passed."""
        worker = here.worker
        job = None if worker is None else worker.job
        now = self.clock.monotonic()
        end = None if timeout is None else now + max(timeout, 0)
        alarm = None if end is None else self.timers.add(end - now, _Alarm(), None)
        self._waiters.append(waitable)
        before = self.steps
        try:
            while not waitable.done():
                if end is not None and self.clock.monotonic() >= end:
                    break
                if job is not None and job.killed and job.covers == 1:
                    break
                self._progress(before)
        finally:
            self._waiters.pop()
            if alarm is not None:
                alarm.cancel()
        return waitable.done()

    def _progress(self, before: int) -> None:
        self._check_steps(before)
        if self.step():
            return
        if not self.clock.autojump or not self.jump():
            raise StuckError(
                f"seed {self.seed}, turn {self.steps}: nothing is runnable and no timer is "
                f"pending, so this wait can never end; waiting: {self._waiters!r}"
            )

    def _check_steps(self, before: int) -> None:
        if self.steps - before >= self._max_steps:
            raise StuckError(
                f"seed {self.seed}: {self._max_steps} turns without an end; "
                f"waiting: {self._waiters!r}"
            )

    @contextmanager
    def blocking(self) -> Iterator[None]:
        """Do nothing: there is only one worker."""
        yield

    def dedicated(self) -> DeterministicScheduler:
        """Return itself: there is one worker."""
        return self

    def watch(self, seconds: float, call: OnSlow, /) -> None:
        """Do nothing: no time passes in a turn."""

    def forked(self) -> bool:
        """Go on: it has no other thread, so it can be forked."""
        return False

    def abandon(self, worker: Worker, /) -> None:
        """Count: the one worker cannot be replaced."""
        del worker
        self._abandoned_total += 1

    def statistics(self) -> Statistics:
        """Return what the simulation is doing now."""
        return Statistics(
            workers=1,
            waiting=len(self._waiters),
            limit=1,
            runnable=self.runnable,
            abandoned=self.abandoned,
            abandoned_total=self._abandoned_total,
        )

    def shutdown(self, timeout: float) -> bool:
        """Run what is left, and end."""
        del timeout
        self.settle()
        self._closed = True
        return True
