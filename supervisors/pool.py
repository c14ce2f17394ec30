"""The real scheduler: any number of actors over few OS threads.

Who runs next on a worker: its *slot* (the actor that it woke last), then what group-commits if
nothing else waits or that has waited 2 ms, then bodies of users (`lo`) with framework actors (`hi`)
after each 32 of them. One active worker is right under the GIL; more come only where workers
block, seen at once where they say so (`Future.get`, `blocking`), else by the keeper's rule
(`keeper.py`). The wake-up rule, here too: enqueue, then read `active`; park, then read the queues.
"""

from __future__ import annotations

import logging
import threading
from _thread import allocate_lock, get_ident
from collections import deque
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from supervisors.clock import Clock, RealClock
from supervisors.errors import Forked, InvalidSpec, WorkersExhausted
from supervisors.keeper import Keeper
from supervisors.kill import Aside
from supervisors.scheduler import OnSlow, Runnable, Statistics, Waitable, Worker, here, park
from supervisors.threads import ThreadScheduler
from supervisors.timers import Timers

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = ["PoolScheduler", "PoolWorker"]

_logger = logging.getLogger("supervisors")
_QUANTUM = 64  # messages a turn
_STREAK = 256  # turns from the slot in a row
_LO_RUN = 32  # turns of users' bodies before a framework actor
_GATHER = 0.002  # seconds that a group-committing actor waits for company at most


class PoolWorker(Worker):
    """An OS thread of the pool."""

    __slots__ = ("began", "clock_id", "counted", "cpu", "cpu_at", "lo_run", "lock", "parked", "seen",
                 "slot", "streak", "tick", "told")  # fmt: skip

    def __init__(self, pool: PoolScheduler) -> None:
        """Make a worker that is to be started."""
        super().__init__(pool, _QUANTUM)
        self.slot: list[Runnable] = []
        self.lock = allocate_lock()
        self.lock.acquire()
        self.parked = False
        self.counted = False  # among the waiting ones
        self.streak = 0
        self.lo_run = 0
        self.tick = 0
        self.seen = -1
        self.clock_id: int | None = None
        self.cpu = 0.0
        self.cpu_at = 0.0
        self.began = 0.0  # about when the present turn began
        self.told = -1  # the turn of which it was told that it takes long


class PoolScheduler:
    """Runs cells and tasks on a pool of OS threads that grows while workers block.

    Starts no thread before the first actor.

    Args:
        base: how many workers may compute at once; 1 is right under the GIL
        max_workers: to how many the pool grows for workers that block without saying so
        max_waiting: how many more may wait in `Future.get` and `blocking()`; beyond that the
            wait raises `WorkersExhausted` instead of hanging
        keep_alive: seconds until an idle worker retires
    """

    def __init__(
        self,
        base: int = 1,
        max_workers: int = 128,
        *,
        max_waiting: int = 2048,
        keep_alive: float = 10.0,
    ) -> None:
        """Make a pool without threads."""
        if base < 1:
            raise InvalidSpec("base", base, "give at least one worker")
        if max_workers < base:
            raise InvalidSpec("max_workers", max_workers, f"give at least base ({base})")
        self.base = base
        self.max_workers = max_workers
        self.max_waiting = max_waiting
        self.keep_alive = keep_alive
        self.hi: deque[Runnable] = deque()
        self.lo: deque[Runnable] = deque()
        self.idle: deque[Runnable] = deque()
        self.idle_since = 0.0
        self.mu = threading.Lock()
        self.active = 0
        self.limit = base
        self.waiting = 0
        self.parked: list[PoolWorker] = []
        self.workers: dict[PoolWorker, threading.Thread] = {}
        self.abandoned = 0
        self.abandoned_total = 0
        self.closed = False
        self.clock: Clock = RealClock()
        self.keeper = Keeper(self)
        self.timers = Timers(self.clock, self.keeper.wake)
        self._spawned = 0
        self._dedicated: ThreadScheduler | None = None
        self._lost = False

    def start(self, clock: Clock | None) -> Clock:
        """Take the clock of the system that uses this pool; None: the machine's."""
        if clock is not None:
            self.clock = clock
            self.timers = Timers(clock, self.keeper.wake)
            clock.subscribe(self.keeper.wake)
        return self.clock

    # Making things runnable

    def submit(self, item: Runnable, worker: Worker | None, /) -> None:
        """Make `item` runnable: next on the calling worker if that has nothing planned."""
        if (
            type(worker) is PoolWorker
            and not worker.slot
            and worker.scheduler is self
            and not worker.blocked
            and item.lane != "idle"
        ):
            worker.slot.append(item)
            return
        self._enqueue(item)

    def submit_lazy(self, item: Runnable, worker: Worker | None, /) -> None:
        """Make `item` runnable behind everything else; at once if there is nothing else."""
        if self.hi or self.lo or self.idle:
            self._enqueue(item)
        else:
            self.submit(item, worker)

    def follow(self, item: Runnable, worker: Worker, /) -> None:
        """Run `item`, with which the turn of `worker` ends, if nothing else waits for a worker."""
        if (
            type(worker) is PoolWorker
            and worker.scheduler is self
            and not (self.hi or self.lo or self.idle or worker.slot or worker.blocked)
        ):
            worker.tick += 1
            item.turn(worker)
        else:
            self.submit_lazy(item, worker)

    def _enqueue(self, item: Runnable) -> None:
        if self.closed:
            self._check_fork(item)
            item.turn(Worker(self, _QUANTUM))  # all actors are dead: this drains a mailbox
            return
        lane = item.lane
        if lane == "hi":
            self.hi.append(item)
        elif lane == "lo":
            self.lo.append(item)
        else:
            if not self.idle:
                self.idle_since = self.clock.monotonic()
            self.idle.append(item)
        if self.active < self.limit:
            self.unpark()

    def _check_fork(self, item: object) -> None:
        if self._lost:
            raise Forked(f"{item!r} is in the parent process: make a new ActorSystem")

    def forked(self) -> bool:
        """Refuse everything from now on: the workers are in the parent process."""
        self.closed = self._lost = True
        self.mu = threading.Lock()
        self.workers.clear()
        self.parked.clear()
        if self._dedicated is not None:
            self._dedicated.forked()
        return True

    def dedicated(self) -> ThreadScheduler:
        """Return a scheduler that gives each actor a worker of its own, with these timers."""
        with self.mu:
            if self._dedicated is None:
                self._dedicated = ThreadScheduler(timers=self.timers)
                self._dedicated.clock = self.clock
        return self._dedicated

    def watch(self, seconds: float, call: OnSlow, /) -> None:
        """Have `call(what, seconds, stack)` called, by the keeper, for turns that take too long."""
        self.keeper.watch(seconds, call)

    def quiet(self, worker: Worker, /) -> bool:
        """Tell whether nothing waits for a worker."""
        return type(worker) is PoolWorker and not (self.hi or self.lo or self.idle or worker.slot)

    def take_back(self, item: Runnable, worker: Worker, /) -> bool:
        """Make `item` not runnable again if it is all that waits; the caller then runs it."""
        if self.hi or self.lo or not isinstance(worker, PoolWorker):
            return False
        try:
            if worker.slot:
                if self.idle or worker.slot[0] is not item:
                    return False
                taken = worker.slot.pop()
            elif len(self.idle) == 1 and self.idle[0] is item:
                taken = self.idle.popleft()
            else:
                return False
        except IndexError:
            return False
        if taken is item:
            return True
        self._enqueue(taken)  # others changed the queues between the look and the grasp
        return False

    def runnable(self) -> int:
        """Return how many wait in the queues."""
        return len(self.hi) + len(self.lo) + len(self.idle)

    # Workers

    def unpark(self) -> bool:
        """Put one more worker to work, if `limit` allows; return whether it did."""
        with self.mu:
            if self.active >= self.limit or self.closed:
                return False
            if self.parked:
                worker = self.parked.pop()
                worker.parked = False
                self.active += 1
                worker.lock.release()
            elif not self._spawn():
                return False
        if self.keeper.parked:
            self.keeper.wake()
        return True

    def _ensure_worker(self) -> None:
        """Try again for a worker if there is none to do what waits, or say so."""
        if not self.workers and not self.quiet_queues() and not self.closed:
            self.unpark()
            if not self.workers:
                raise WorkersExhausted(
                    "no OS thread can be started, so nothing will ever run: raise the "
                    "process's limit of threads, or make fewer"
                )

    def _spawn(self) -> bool:
        if len(self.workers) >= self.max_workers + self.max_waiting:
            return False
        worker = PoolWorker(self)
        self._spawned += 1
        thread = threading.Thread(
            target=self._work, args=(worker,), name=f"worker-{self._spawned}", daemon=True
        )
        self.workers[worker] = thread
        self.active += 1
        try:
            thread.start()
        except RuntimeError:
            del self.workers[worker]
            self.active -= 1
            _logger.exception("no more OS threads: %d workers", len(self.workers))
            return False
        return True

    def _work(self, worker: PoolWorker) -> None:
        here.worker = worker
        worker.ident = get_ident()
        self.keeper.meet(worker)
        while True:
            item = self._take(worker)
            if item is None:
                if not self._park(worker):
                    return
                continue
            worker.tick += 1
            try:
                item.turn(worker)
            except BaseException:  # our own fault: this worker serves others too
                _logger.exception("a turn raised: please report this as a bug of supervisors")
                worker.job = worker.cell = None
            if worker.blocked:  # a kill came between a declared wait and its block
                worker.blocked = 1
                self._exit(worker)
            item = None  # a worker at rest keeps nothing alive
            if worker.zombie:
                self._leave(worker)
                return
            if self.active > self.limit and not worker.slot and not self._park(worker):
                return

    def _take(self, worker: PoolWorker) -> Runnable | None:
        slot = worker.slot
        try:
            if slot:
                worker.streak += 1
                if worker.streak < _STREAK or self.quiet_queues():
                    return slot.pop()
                self._enqueue(slot.pop())
            worker.streak = 0
            hi, lo, idle = self.hi, self.lo, self.idle
            if idle and (not (hi or lo) or self.clock.monotonic() - self.idle_since >= _GATHER):
                self.idle_since = self.clock.monotonic()
                return idle.popleft()
            if lo and (worker.lo_run < _LO_RUN or not hi):
                worker.lo_run += 1
                return lo.popleft()
            if hi:
                worker.lo_run = 0
                return hi.popleft()
        except IndexError:
            return self._take(worker)  # somebody else was faster: look again
        return None

    def quiet_queues(self) -> bool:
        """Tell whether the queues are empty."""
        return not (self.hi or self.lo or self.idle)

    def _park(self, worker: PoolWorker) -> bool:
        """Rest until there is work; return False if the worker is to end."""
        with self.mu:
            self.active -= 1
            if self.closed:
                self.workers.pop(worker, None)
                return False
            if self.active < self.limit and not self.quiet_queues():
                self.active += 1
                return True
            worker.parked = True
            self.parked.append(worker)
        if worker.lock.acquire(timeout=self.keep_alive):
            return not self._closing(worker)
        return self._stay_or_retire(worker)

    def _closing(self, worker: PoolWorker) -> bool:
        if not self.closed:
            return False
        with self.mu:
            self.active -= 1
            self.workers.pop(worker, None)
        return True

    def _stay_or_retire(self, worker: PoolWorker) -> bool:
        with self.mu:
            if worker.parked and (len(self.parked) > self.base or self.closed):
                self.parked.remove(worker)
                self.workers.pop(worker, None)
                return False
        worker.lock.acquire()  # woken in this moment, or one of those that stay
        return not self._closing(worker)

    # Waiting

    def wait(self, waitable: Waitable, timeout: float | None, /) -> bool:
        """Wait for `waitable`; if the caller is a worker, another one takes its place."""
        lock = allocate_lock()
        lock.acquire()
        worker = here.worker
        if worker is None or worker.scheduler is not self:
            self._check_fork(waitable)
            self._ensure_worker()
            waitable.add_waiter(lock)
            park(waitable, lock, timeout)
            return waitable.done()
        job = worker.job
        self._enter(worker)
        try:
            waitable.add_waiter(lock)
            if job is not None and job.covers == 1:  # a kill may end this wait
                job.wake = lock
                if job.killed:
                    waitable.drop_waiter(lock)
                    return waitable.done()
            park(waitable, lock, timeout)
        finally:
            if job is not None:
                job.wake = None
            self._exit(worker)
        return waitable.done()

    def blocking(self) -> AbstractContextManager[None]:
        """Declare that the calling worker blocks inside: another one takes its place at once."""
        worker = here.worker
        if worker is None or worker.scheduler is not self:
            return nullcontext()
        return Aside(partial(self._enter, worker), partial(self._exit, worker))

    def _enter(self, worker: Worker) -> None:
        assert isinstance(worker, PoolWorker)
        if worker.blocked or worker.zombie:
            worker.blocked += 1
            return
        worker.counted = True
        with self.mu:
            if self.waiting >= self.max_waiting:
                worker.counted = False
                raise WorkersExhausted(
                    f"{self.waiting} workers wait already: raise max_waiting, or let actors "
                    "answer by messages instead of waiting for each other"
                )
            self.waiting += 1
            self.active -= 1
        worker.blocked = 1
        self.empty_slot(worker)
        if not self.quiet_queues():
            self.unpark()

    def _exit(self, worker: Worker) -> None:
        assert isinstance(worker, PoolWorker)
        worker.blocked -= 1
        if worker.blocked or not worker.counted:
            return
        worker.counted = False
        with self.mu:
            self.waiting -= 1
            if not worker.zombie:
                self.active += 1

    def empty_slot(self, worker: PoolWorker) -> bool:
        """Put what `worker` would run next at the head of the queues; return whether it was any."""
        try:
            item = worker.slot.pop()
        except IndexError:
            return False
        (self.hi if item.lane == "hi" else self.lo).appendleft(item)
        return True

    # Giving workers up

    def abandon(self, worker: Worker, /) -> None:
        """Give `worker` up: it leaves the pool when its code returns, if ever."""
        assert isinstance(worker, PoolWorker)
        with self.mu:
            if worker.zombie:
                return
            worker.zombie = True
            self.workers.pop(worker, None)
            self.abandoned += 1
            self.abandoned_total += 1
            if not worker.blocked:
                self.active -= 1
        self.empty_slot(worker)
        if not self.quiet_queues():
            self.unpark()

    def _leave(self, worker: PoolWorker) -> None:
        here.worker = None
        with self.mu:
            self.abandoned -= 1
        if self.empty_slot(worker):
            self.unpark()

    # The whole

    def statistics(self) -> Statistics:
        """Return what the pool is doing now."""
        own = self._dedicated
        with self.mu:
            return Statistics(
                workers=len(self.workers),
                active=self.active,
                waiting=self.waiting,
                parked=len(self.parked),
                limit=self.limit,
                runnable=self.runnable(),
                abandoned=self.abandoned + (0 if own is None else own.abandoned),
                abandoned_total=self.abandoned_total + (0 if own is None else own.abandoned_total),
                dedicated=0 if own is None else own.statistics().workers,
            )

    def shutdown(self, timeout: float) -> bool:
        """End all workers; return whether they ended within `timeout` seconds."""
        deadline = RealClock.monotonic() + timeout
        alone = self._dedicated is None or self._dedicated.shutdown(timeout)
        with self.mu:
            self.closed = True
            threads = list(self.workers.values())
            for worker in self.parked:
                worker.parked = False
                self.active += 1
                worker.lock.release()
            self.parked.clear()
        me = threading.current_thread()
        threads += self.keeper.close()
        for thread in threads:
            if thread is not me:
                thread.join(max(deadline - RealClock.monotonic(), 0))
        return alone and not any(thread.is_alive() for thread in threads if thread is not me)
