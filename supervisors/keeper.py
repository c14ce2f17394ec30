"""The pool's keeper: one OS thread that fires timers and grows the pool where workers block.

The rule of growth. Each tick (2 ms, longer when nothing waits), if actors are runnable and none was
taken since the last tick, there are added as many workers again as there are blocked ones, up to
`max_workers`. A worker whose CPU clock moved counts as computing, not blocked; for those one
worker a tick is added, up to 2 x cores + 2 in all. A clock that stands still may also mean that the
worker waits for the interpreter lock: so while the process as a whole is busy, a clock must have
stood still for 50 ms to mean "blocked". Where the clock cannot be read, a worker that holds a
turn over 10 ms counts as blocked. What a stuck worker would run next is taken from it.

The keeper rests while nothing is active and no timer is due.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
import time
import traceback
from _thread import allocate_lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from supervisors.pool import PoolScheduler, PoolWorker
    from supervisors.scheduler import OnSlow

__all__ = ["Keeper"]

_logger = logging.getLogger("supervisors")
_TICK = 0.002
_SLOW_TICK = 0.008  # when nothing waits
_PATIENCE = 0.05  # while the process is busy, how long a clock must stand still
_NO_CLOCK = 0.01  # without CPU clocks, how long a turn may last
_BUSY = 0.5  # the share of a tick that makes a process busy
_RESTS = 4  # quiet ticks before the keeper rests
_COMPUTING = 2 * (os.cpu_count() or 1) + 2


class Keeper:
    """The keeper of one pool. Its thread starts with the pool's first worker or timer."""

    def __init__(self, pool: PoolScheduler) -> None:
        """Make the keeper of `pool`, without a thread."""
        self._pool = pool
        self._lock = allocate_lock()
        self._lock.acquire()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self.parked = True
        self._quiet = 0
        self._wall = 0.0
        self._process = 0.0
        self._slow = math.inf
        self._on_slow: OnSlow = lambda *_: None

    def wake(self) -> None:
        """Have the keeper look at its timers and workers now."""
        if self._thread is None:
            self._start()
        try:
            self._lock.release()
        except RuntimeError:
            return  # it is awake, or about to be

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._pool.closed:
                thread = threading.Thread(target=self._run, name="keeper", daemon=True)
                self._thread = thread
                thread.start()

    def close(self) -> list[threading.Thread]:
        """End the thread, now that the pool is closed; return it, if there is one."""
        with self._starting:
            thread = self._thread
        if thread is None:
            return []
        try:
            self._lock.release()
        except RuntimeError:
            return [thread]
        return [thread]

    def meet(self, worker: PoolWorker) -> None:
        """Get to know the CPU clock of `worker`, which calls this."""
        get_clock = getattr(time, "pthread_getcpuclockid", None)
        if get_clock is not None:
            worker.clock_id = get_clock(worker.ident)

    def _run(self) -> None:
        pool = self._pool
        while not pool.closed:
            try:
                pool.timers.fire_due()
                pause = self._tick()
            except Exception:  # our own fault: no timer would fire without the keeper
                _logger.exception("the keeper failed: please report this as a bug of supervisors")
                pause = _SLOW_TICK
            pause = self._until_timer(pause)
            if pause is None or pause > 0:
                self._lock.acquire(timeout=-1 if pause is None else pause)
            self.parked = False

    def _until_timer(self, pause: float | None) -> float | None:
        deadline = self._pool.timers.next_deadline()
        if deadline is None:
            return pause
        left = min(max(deadline - self._pool.clock.monotonic(), 0.0), threading.TIMEOUT_MAX)
        return left if pause is None else min(left, pause)

    def _tick(self) -> float | None:
        """Look at the workers; return seconds until the next look, None to rest."""
        pool = self._pool
        if pool.active == 0 and pool.quiet_queues():
            self._quiet += 1
            if self._quiet < _RESTS:
                return _SLOW_TICK
            self.parked = True
            if pool.active == 0:  # read again after `parked` is set: unpark reads it after `active`
                return None
            self.parked = False
        self._quiet = 0
        now = time.monotonic()
        process = time.process_time()
        busy = process - self._process > _BUSY * (now - self._wall)
        self._wall, self._process = now, process
        return self._look(now, busy=busy)

    def _look(self, now: float, *, busy: bool) -> float:
        pool = self._pool
        with pool.mu:
            workers = [w for w in pool.workers if not w.parked and not w.blocked]
        taken = blocked = computing = 0
        for worker in workers:
            if worker.tick != worker.seen:
                worker.seen = worker.tick
                worker.began = now
                taken += 1
                self._read_clock(worker, now)
                continue
            if now - worker.began > self._slow and worker.told != worker.tick:
                self._tell(worker, now - worker.began)
            pool.empty_slot(worker)
            if self._blocked(worker, now, busy=busy):
                blocked += 1
            else:
                computing += 1
        if pool.quiet_queues():
            self._shrink(blocked)
            return _SLOW_TICK
        if not taken:
            self._grow(blocked, computing)
        return _TICK

    def watch(self, seconds: float, call: OnSlow) -> None:
        """Have `call` told of turns that take longer than `seconds`."""
        self._slow = seconds
        self._on_slow = call

    def _tell(self, worker: PoolWorker, seconds: float) -> None:
        worker.told = worker.tick
        frame = sys._current_frames().get(worker.ident)  # noqa: SLF001 - the documented way
        stack = "" if frame is None else "".join(traceback.format_stack(frame))
        self._on_slow(worker.cell, seconds, stack)

    def _read_clock(self, worker: PoolWorker, now: float) -> None:
        worker.cpu_at = now
        if worker.clock_id is not None:
            try:
                worker.cpu = time.clock_gettime(worker.clock_id)
            except OSError:
                worker.clock_id = None

    def _blocked(self, worker: PoolWorker, now: float, *, busy: bool) -> bool:
        if worker.clock_id is None:
            return now - worker.cpu_at > _NO_CLOCK
        before, since = worker.cpu, worker.cpu_at
        self._read_clock(worker, now)
        if worker.cpu != before:
            return False
        worker.cpu_at = since
        return not busy or now - since > _PATIENCE

    def _grow(self, blocked: int, computing: int) -> None:
        pool = self._pool
        more = blocked
        if computing and pool.active < _COMPUTING:
            more += 1
        if not blocked and not computing:  # nobody works at all: let one try
            more = 1
        with pool.mu:
            room = pool.max_workers - pool.active
            more = min(more, room)
            if more > 0:
                pool.limit = max(pool.limit, pool.active + more)
        for _ in range(more):
            if not pool.unpark():
                return

    def _shrink(self, blocked: int) -> None:
        pool = self._pool
        with pool.mu:
            pool.limit = max(pool.base, pool.base + blocked, pool.limit // 2)
