"""Futures that suit actors: first result wins, several waiters, waits that never starve others."""

from __future__ import annotations

import logging
import sys
from _thread import allocate_lock
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

import pykka

from supervisors.errors import AlreadySet, CallingSelf, CallTimeout
from supervisors.kill import shield
from supervisors.scheduler import here, park

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator
    from types import TracebackType

    from supervisors.scheduler import Releasable, Scheduler

__all__ = ["Future"]

_logger = logging.getLogger("supervisors")

T = TypeVar("T")

_OptExcInfo = tuple[
    "type[BaseException] | None", "BaseException | None", "TracebackType | None"
]  # as pykka has it


class _Callback:
    """A callback in the place of a waiter."""

    __slots__ = ("_call", "_future")

    def __init__(self, call: Callable[[Any], object], future: object) -> None:
        self._call = call
        self._future = future

    def release(self) -> None:
        try:
            self._call(self._future)
        except Exception:  # the callback's own fault; who gave the result goes on
            _logger.exception("a callback of a future raised: %r", self._call)


class _Awaited:
    """An event loop's future in the place of a waiter."""

    __slots__ = ("_loop", "_waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None]) -> None:
        self._loop = loop
        self._waiter = waiter

    def release(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._settle)
        except RuntimeError:
            return  # the loop was closed: nobody waits any more

    def _settle(self) -> None:
        if not self._waiter.done():
            self._waiter.set_result(None)


class Future(pykka.Future[T]):
    """A value to come, as `pykka.Future`, made by `ActorSystem.future()` and by asks.

    `get()` on a worker lets the system's other actors run meanwhile; in a simulation
    it drives the simulation; `await` suits an asyncio event loop. Any number of threads and coroutines
    may wait. Only the first result counts.
    """

    _hook: Callable[..., Any] | None = None
    _hook_value: T

    def __init__(self, scheduler: Scheduler | None = None, target: object = None) -> None:
        """Make a pending future; `target` is the cell that is to answer, if one is."""
        self._scheduler = scheduler
        self._target = target
        self._claim = [True]
        self._waiters: list[Releasable] = []
        self._done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._traceback: TracebackType | None = None
        self.given_up = False

    def __repr__(self) -> str:
        state = "pending" if not self._done else "failed" if self._error else "done"
        return f"<supervisors.Future {state}>"

    def done(self) -> bool:
        """Tell whether the result is there, so that `get()` would not wait."""
        return self._done

    def get(self, *, timeout: float | None = None) -> T:
        """Return the value, waiting for it.

        Args:
            timeout: seconds to wait at most; None waits for ever

        Returns:
            what was set

        Raises:
            CallTimeout: nothing came in time (also a `pykka.Timeout`)
            CallingSelf: only the calling actor itself could give the answer
            BaseException: what was set as the exception
        """
        if not self._done:
            if self._hook is not None:
                return self._get_hooked(timeout)
            self._wait(timeout)
        if self._error is not None:
            raise self._error.with_traceback(self._traceback)
        return self._value  # type: ignore[return-value]  # done, so it is a T

    def __await__(self) -> Generator[Any, None, T]:
        """Wait in an asyncio event loop, which goes on meanwhile."""
        if self._hook is None and not self._done:
            from asyncio import get_running_loop  # noqa: PLC0415 - loaded already by whoever awaits

            loop = get_running_loop()
            waiter = loop.create_future()
            self.add_waiter(_Awaited(loop, waiter))
            yield from waiter
        return self.get()

    def _get_hooked(self, timeout: float | None) -> T:
        # The hook runs without a lock: two readers may both run it, neither waits for the other.
        if not hasattr(self, "_hook_value"):
            hook: Any = self._hook
            self._hook_value = hook(timeout)
        return self._hook_value

    def _wait(self, timeout: float | None) -> None:
        if timeout == inf:
            timeout = None  # what `CancelToken.remaining` says of no deadline
        worker = here.worker
        scheduler = self._scheduler if worker is None else worker.scheduler
        if worker is not None and self._target is not None:
            target = self._target
            if worker.cell is target or target in worker.nest:
                raise CallingSelf(
                    f"{target} waits for its own answer: call the method itself, or reply later"
                )
        with shield():
            over = self._park(timeout) if scheduler is None else scheduler.wait(self, timeout)
        if not over:
            raise CallTimeout(f"no answer within {timeout} s")

    def _park(self, timeout: float | None) -> bool:
        lock = allocate_lock()
        lock.acquire()
        self.add_waiter(lock)
        park(self, lock, timeout)
        return self._done

    def add_waiter(self, waiter: Releasable) -> None:
        """Release `waiter` once when the result is there."""
        self._waiters.append(waiter)
        if self._done:  # published before the waiters are woken: read again after appending
            self._wake()

    def drop_waiter(self, waiter: Releasable) -> None:
        """Forget a waiter that waits no more; one that was released already is none."""
        with suppress(ValueError):
            self._waiters.remove(waiter)

    def add_done_callback(self, call: Callable[[Future[T]], object]) -> None:
        """Call `call(self)` when the result is there, on the worker or thread that sets it.

        Args:
            call: must be short; what it raises is logged
        """
        self.add_waiter(_Callback(call, self))

    def set(self, value: T | None = None) -> None:
        """Set the value.

        Raises:
            AlreadySet: there is a result already
        """
        if not self.offer(value):
            raise AlreadySet("this future has a result already: each is set once")

    def set_exception(self, exc_info: _OptExcInfo | BaseException | None = None) -> None:
        """Set an exception: an instance, a triple of `sys.exc_info()`, or the one handled now.

        Raises:
            AlreadySet: there is a result already
        """
        if isinstance(exc_info, BaseException):
            error: BaseException | None = exc_info
        else:
            kind, error, _ = exc_info or sys.exc_info()
            if error is None and kind is not None:
                error = kind()
        if error is None:
            raise TypeError("set_exception() needs an exception, or one that is handled now")
        if not self.offer_error(error):
            raise AlreadySet("this future has a result already: each is set once")

    def set_get_hook(self, func: Callable[[float | None], T]) -> None:
        """Compute the value by `func(timeout)` at the first `get()`.

        Raises:
            AlreadySet: there is a result already
        """
        if not self._take():
            raise AlreadySet("this future has a result already: a hook cannot be set")
        self._hook = func

    def offer(self, value: T | None) -> bool:
        """Set the value if there is no result; return whether it was this one that counted."""
        with shield():
            if not self._take():
                return False
            self._value = value
            self._finish()
        return True

    def offer_error(self, error: BaseException) -> bool:
        """Set an exception if there is no result; return whether it was this one that counted."""
        with shield():
            if not self._take():
                return False
            self._error = error
            self._traceback = error.__traceback__
            self._finish()
        return True

    def _take(self) -> bool:
        try:
            self._claim.pop()
        except IndexError:
            return False
        return True

    def _finish(self) -> None:
        self._done = True
        if self._waiters:
            self._wake()

    def _wake(self) -> None:
        while self._waiters:
            try:
                waiter = self._waiters.pop(0)
            except IndexError:
                return
            try:
                waiter.release()
            except RuntimeError:
                continue  # a lock that was released already: its owner was woken otherwise
