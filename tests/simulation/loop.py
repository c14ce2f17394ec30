"""The event loop of the async nodes of a simulated process, on the scheduler's turns and clock."""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context

    from supervisors.scheduler import Worker
    from supervisors.testing import DeterministicScheduler
    from supervisors.timers import TimerRef

__all__ = ["SimLoop"]


class _Later(asyncio.TimerHandle):
    __slots__ = ("timer",)

    timer: TimerRef


class SimLoop(asyncio.AbstractEventLoop):
    """As much of an event loop as coroutines need which wait for futures and for time.

    It is given turns as actors are, between theirs, and in each it runs some of what is ready.

    Args:
        scheduler: Gives it turns.
        wrong: Hears of callbacks that raised.
    """

    lane = "lo"

    def __init__(self, scheduler: DeterministicScheduler, wrong: list[str]) -> None:
        self._scheduler = scheduler
        self._wrong = wrong
        self._ready: deque[asyncio.Handle] = deque()
        self._waits = False
        """Whether it waits for a turn."""

    def turn(self, worker: Worker) -> None:
        """Run what is ready, up to what a turn may take."""
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            for _number in range(min(worker.quantum, len(self._ready))):
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            events._set_running_loop(before)
        self._waits = False
        if self._ready:
            self._wake()

    def put(self, handle: Any) -> None:
        """A timer is due."""
        self._ready.append(handle)
        self._wake()

    def bury(self) -> None:
        """End all that runs on it; nobody hears of that."""
        for task in asyncio.all_tasks(self):
            coroutine: Any = task.get_coro()
            coroutine.close()

    def _wake(self) -> None:
        if not self._waits:
            self._waits = True
            self._scheduler.submit(self, None)

    # What asyncio asks for ----------------------------------------------------------------------

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.put(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = _Later(self.time() + delay, callback, args, self, context)
        handle.timer = self._scheduler.timers.add(delay, self, handle)
        return handle

    def _timer_handle_cancelled(self, handle: Any) -> None:
        handle.timer.cancel()

    def time(self) -> float:
        return self._scheduler.clock.monotonic()

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coroutine: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coroutine, loop=self, **options)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if "exception" in context:  # else a task went with its process
            self._wrong.append(f"the node loop: {context}")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False
