"""The plain scheduler: an OS thread for each actor and each task.

For actors whose libraries want a thread of their own, and as a check that nothing depends on how the
pool schedules. Every rule of the pool holds, except that starting costs a thread, and that an
idle actor keeps one.
"""

from __future__ import annotations

import logging
import threading
from _thread import allocate_lock, get_ident
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from supervisors.clock import Clock, RealClock
from supervisors.errors import Forked, WorkersExhausted
from supervisors.inbox import ENDED, Inbox
from supervisors.kill import Aside
from supervisors.scheduler import OnSlow, Runnable, Statistics, Waitable, Worker, here, park
from supervisors.timers import Timers

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = ["ThreadScheduler"]

_logger = logging.getLogger("supervisors")
_QUANTUM = 64


class _Host(Worker):
    """The thread of one actor or task."""

    __slots__ = ("busy", "item", "lock")

    def __init__(self, scheduler: ThreadScheduler, item: Runnable) -> None:
        super().__init__(scheduler, _QUANTUM)
        self.item = item
        self.lock = allocate_lock()
        self.lock.acquire()
        self.busy = True

    def wait(self, more: int) -> None:
        """Count a declared wait, or the end of one."""
        self.blocked += more


class ThreadScheduler:
    """Gives each actor an OS thread for its life, and each task one for its run.

    Args:
        max_workers: how many threads there may be; then a start raises `WorkersExhausted`
    """

    def __init__(self, max_workers: int = 4096, *, timers: Timers | None = None) -> None:
        """Make a scheduler without threads; it may share the timers of another."""
        self.max_workers = max_workers
        self.abandoned = 0
        self.abandoned_total = 0
        self.clock: Clock = RealClock()
        self._tick = allocate_lock()
        self._tick.acquire()
        self.timers = Timers(self.clock, self._wake) if timers is None else timers
        self._hosts: dict[Runnable, _Host] = {}
        self._threads: dict[_Host, threading.Thread] = {}
        self._timing: threading.Thread | None = None
        self._mu = threading.Lock()
        self._closed = False
        self._lost = False
        self._beside = timers is not None

    def start(self, clock: Clock | None) -> Clock:
        """Take the clock of the system that uses this scheduler; None: the machine's."""
        if clock is not None:
            self.clock = clock
            self.timers = Timers(clock, self._wake)
            clock.subscribe(self._wake)
        return self.clock

    def submit(self, item: Runnable, worker: Worker | None, /) -> None:
        """Let the thread of `item` run; make it if there is none."""
        del worker
        if self._lost:
            raise Forked(f"{item} is in the parent process: make a new ActorSystem")
        if self._closed or (isinstance(item, Inbox) and item.phase == ENDED):
            item.turn(Worker(self, _QUANTUM))  # it only drains a mailbox
            return
        with self._mu:
            host = self._hosts.get(item)
            if host is None:
                self._host(item)
                return
            host.busy = True
            host.lock.release()

    submit_lazy = follow = submit

    def _host(self, item: Runnable) -> None:
        if len(self._threads) >= self.max_workers:
            raise WorkersExhausted(f"{self.max_workers} threads run: raise max_workers")
        host = _Host(self, item)
        thread = threading.Thread(target=self._work, args=(host,), name=repr(item), daemon=True)
        self._hosts[item] = host
        self._threads[host] = thread
        try:
            thread.start()
        except RuntimeError as error:
            del self._hosts[item], self._threads[host]
            raise WorkersExhausted("no OS thread can be started: make fewer actors") from error

    def _work(self, host: _Host) -> None:
        here.worker = host
        host.ident = get_ident()
        item = host.item
        while True:
            try:
                item.turn(host)
            except BaseException:  # our own fault: the host must still end its item
                _logger.exception("a turn raised: please report this as a bug of supervisors")
                host.job = host.cell = None
            host.blocked = 0  # nothing waits between two turns, whatever a kill has cut off
            if self._over(host, item):
                return
            host.lock.acquire()
            if self._closed:
                self._forget(host)
                return

    def _over(self, host: _Host, item: Runnable) -> bool:
        """Settle the end of a turn; return whether it was the thread's last."""
        with self._mu:
            if host.zombie:
                self.abandoned -= 1
                return True
            ended = not isinstance(item, Inbox) or item.phase == ENDED or self._closed
            if ended and host.lock.acquire(False):
                ended = False  # it was submitted again meanwhile
                host.lock.release()
            if not ended:
                host.busy = host.lock.locked() is False
                return False
            self._threads.pop(host, None)
            if self._hosts.get(item) is host:
                del self._hosts[item]
            return True

    def _forget(self, host: _Host) -> None:
        with self._mu:
            self._threads.pop(host, None)

    def quiet(self, worker: Worker, /) -> bool:
        """Tell whether no other thread has anything to do; never so beside another scheduler."""
        if self._beside:
            return False
        with self._mu:
            return not any(host.busy for host in self._hosts.values() if host is not worker)

    def take_back(self, item: Runnable, worker: Worker, /) -> bool:
        """Refuse: each actor runs on its own thread."""
        del item, worker
        return False

    def wait(self, waitable: Waitable, timeout: float | None, /) -> bool:
        """Wait on the calling thread; nobody else needs it."""
        if self._lost:
            raise Forked("the actors are in the parent process: make a new ActorSystem")
        worker = here.worker
        job = None if worker is None else worker.job
        lock = allocate_lock()
        lock.acquire()
        waitable.add_waiter(lock)
        try:
            if job is not None and job.covers == 1:  # a kill may end this wait
                job.wake = lock
                if job.killed:
                    waitable.drop_waiter(lock)
                    return waitable.done()
            with self.blocking():
                park(waitable, lock, timeout)
        finally:
            if job is not None:
                job.wake = None
        return waitable.done()

    def blocking(self) -> AbstractContextManager[None]:
        """Do no more than count: a thread that blocks is in nobody's way."""
        host = here.worker
        if not isinstance(host, _Host):
            return nullcontext()
        return Aside(partial(host.wait, 1), partial(host.wait, -1))

    def dedicated(self) -> ThreadScheduler:
        """Return itself: each actor has a thread of its own."""
        return self

    def watch(self, seconds: float, call: OnSlow, /) -> None:
        """Do nothing: a handler holds only its actor's own thread."""

    def forked(self) -> bool:
        """Refuse everything from now on: the threads are in the parent process."""
        self._closed = self._lost = True
        self._mu = threading.Lock()
        self._hosts.clear()
        self._threads.clear()
        return True

    def abandon(self, worker: Worker, /) -> None:
        """Give a thread up, in code that does not return."""
        assert isinstance(worker, _Host)
        with self._mu:
            if worker.zombie:
                return
            worker.zombie = True
            self.abandoned += 1
            self.abandoned_total += 1
            self._threads.pop(worker, None)
            if self._hosts.get(worker.item) is worker:
                del self._hosts[worker.item]

    def statistics(self) -> Statistics:
        """Return what the threads are doing now."""
        with self._mu:
            active = sum(host.busy for host in self._hosts.values())
            return Statistics(
                workers=len(self._threads),
                active=active,
                waiting=sum(host.blocked > 0 for host in self._threads),
                parked=len(self._threads) - active,
                limit=self.max_workers,
                abandoned=self.abandoned,
                abandoned_total=self.abandoned_total,
            )

    # Timers

    def _wake(self) -> None:
        if self._timing is None:
            with self._mu:
                if self._timing is None and not self._closed:
                    self._timing = threading.Thread(target=self._time, name="timers", daemon=True)
                    self._timing.start()
        try:
            self._tick.release()
        except RuntimeError:
            return  # it is awake, or about to be

    def _time(self) -> None:
        while not self._closed:
            self.timers.fire_due()
            deadline = self.timers.next_deadline()
            pause = -1.0
            if deadline is not None:
                left = max(deadline - self.clock.monotonic(), 0.0)
                pause = min(left, threading.TIMEOUT_MAX)
            self._tick.acquire(timeout=pause)

    def shutdown(self, timeout: float) -> bool:
        """End all threads; return whether they ended within `timeout` seconds."""
        end = RealClock.monotonic() + timeout
        with self._mu:
            self._closed = True
            hosts = dict(self._threads)
            timing = self._timing
        for host in hosts:
            try:
                host.lock.release()
            except RuntimeError:
                continue
        self._wake()
        threads = [*hosts.values(), *([] if timing is None else [timing])]
        me = threading.current_thread()
        for thread in threads:
            if thread is not me:
                thread.join(max(end - RealClock.monotonic(), 0))
        return not any(thread.is_alive() for thread in threads if thread is not me)
