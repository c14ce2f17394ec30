"""Ending Python code that runs: claim, async exception, absorb; and the shield against it.

Python offers one way to interrupt a running OS thread from outside: an exception that is raised at
its next check, anywhere. `Job` makes that safe for the framework:

- one *claim* decides the outcome: the body's result, or the kill, never both;
- one *window* decides the injection: the exception is set only while the window lies open, and
  the body's guard waits for one that is under way and absorbs it, so that it never escapes
  into the worker's own code;
- framework calls made by the body close the window for their time (`shield`), so that no mailbox
  or queue is ever left half changed; a kill that comes meanwhile is raised when the call returns.

User code that swallows `BaseException`, or sits in C code, is not stopped by this. After its grace
period the worker is abandoned and replaced.
"""

from __future__ import annotations

import ctypes
import sys
from _thread import get_ident
from time import sleep
from typing import TYPE_CHECKING, Any

from supervisors.scheduler import here

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from supervisors.scheduler import Releasable, Worker

__all__ = ["Job", "Killed", "shield"]

_raise_in_thread = ctypes.pythonapi.PyThreadState_SetAsyncExc
_raise_in_thread.argtypes = (ctypes.c_ulong, ctypes.py_object)
_raise_in_thread.restype = ctypes.c_int
_RESTLESS = sys.version_info < (3, 12)


class Killed(BaseException):
    """Raised inside a body that was killed. Not an `Exception`, so that few handlers swallow it."""


class _Settled(BaseException):
    """Raised by a thread in itself."""


def _catch_up(ident: int) -> None:
    """Raise in the calling thread what may still be on its way; `ident` is its own.

    Taking the exception back would do, but the interpreter's mark that one is on its way goes only when
    one arrives: until then every thread stops for it at each call. So one is made to arrive; again, if
    Python has swallowed it in a destructor that happened to run here.
    """
    while True:
        _raise_in_thread(ident, ctypes.py_object(Killed))
        sleep(0)


def _calm(target: int) -> None:
    """Take that mark away after raising in another thread, which sets it again when it runs.

    While the mark is set, CPython 3.11 makes no progress in a thread with a trace function (a debugger,
    coverage): if the target sleeps in C, all of them would hang until it wakes.
    """
    me = get_ident()
    if me == target:
        return
    try:
        while True:
            _raise_in_thread(me, ctypes.py_object(_Settled))
            sleep(0)
    except _Settled:
        return


class Job:
    """A body under the kill protocol. Runs once."""

    __slots__ = ("claim", "covers", "inject", "injected", "killed", "outcome", "wake", "window",
                 "worker")  # fmt: skip

    def __init__(self, *, inject: bool = True) -> None:
        """Make a job that no worker has taken; `inject=False` forbids the async exception."""
        self.claim = [True]
        self.window: list[bool] = []
        self.inject = inject
        self.injected = False
        self.killed = False
        self.covers = 0
        self.worker: Worker | None = None
        self.wake: Releasable | None = None
        self.outcome: Any = None  # whatever the body returns or raises

    def perform(self, worker: Worker, body: Callable[..., Any], *args: Any) -> bool | None:
        """Run `body(*args)` on `worker`, the caller's; leave what it returned or raised in `outcome`.

        Returns:
            True if it returned, False if it raised, None if a killer owns the outcome.
        """
        outer = worker.job
        self.worker = worker
        worker.job = self
        returned = False
        try:
            try:
                self.window.append(True)
                if self.claim:  # read after the window is open: a killer claims before it looks
                    self.outcome = body(*args)
                    returned = True
            except BaseException as error:  # noqa: BLE001 - user code may raise anything
                returned = False
                self.outcome = error
            # a call, no `try` here: Python guards no line that is a bare `try:`, where a trace function runs
            self._close(worker.ident)
        except BaseException:  # noqa: BLE001, S110 - the one injected exception ends here
            pass
        worker.job = outer
        try:  # as `_claim`, without its call
            self.claim.pop()
        except IndexError:
            return None
        return returned

    def _close(self, ident: int) -> None:
        """Close the window for good; a kill that is on its way arrives here."""
        try:
            self.window.pop()
        except IndexError:
            while not self.injected:
                sleep(0)
            _catch_up(ident)

    def _claim(self) -> bool:
        try:
            self.claim.pop()
        except IndexError:
            return False
        return True

    def claim_kill(self) -> bool:
        """Take the outcome from the body, if it still runs or waits; True for the one winner."""
        if not self._claim():
            return False
        self.killed = True
        return True

    def interrupt(self) -> None:
        """Raise `Killed` in the body. For the winner of `claim_kill`, once."""
        if self.inject:
            try:
                self.window.pop()
            except IndexError:
                pass
            else:
                self._raise()
                return
        wake = self.wake
        if wake is not None:
            try:
                wake.release()
            except RuntimeError:
                return  # it was woken in this moment

    def _raise(self) -> None:
        if self.worker is not None:
            _raise_in_thread(self.worker.ident, ctypes.py_object(Killed))
            if _RESTLESS:
                _calm(self.worker.ident)
        self.injected = True

    def cover(self) -> None:
        """Close the window: no exception arrives until `uncover`. Nests."""
        if self.covers == 0:
            try:
                self.window.pop()
            except IndexError:
                while not self.injected:
                    sleep(0)
                raise Killed from None
        self.covers += 1

    def cover_late(self) -> None:
        """As `cover`, for what must be done in any case: it raises nothing, `uncover` does."""
        try:
            try:
                self.cover()
            except Killed:  # an injection was made: let it arrive now, if it has not
                assert self.worker is not None
                _catch_up(self.worker.ident)
            else:
                return
        except Killed:
            pass
        self.covers = 1

    def uncover(self) -> None:
        """Open the window again; raise `Killed` if a kill came meanwhile."""
        self.covers -= 1
        if self.covers == 0:
            if not self.injected:
                self.window.append(True)
            if self.killed:
                raise Killed


class _Shield:
    __slots__ = ("_job",)

    def __enter__(self) -> None:
        worker = here.worker
        self._job = None if worker is None else worker.job
        if self._job is not None:
            self._job.cover()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._job is not None:
            self._job.uncover()


class Aside:
    """Runs `leave()` before a block of user code and `back()` after it, whatever kill comes.

    Each runs covered. A kill between the two is raised in the block, or when it ends.
    """

    __slots__ = ("_back", "_job", "_leave")

    def __init__(self, leave: Callable[[], object], back: Callable[[], object]) -> None:
        """Keep both."""
        self._leave = leave
        self._back = back
        self._job: Job | None = None

    def __enter__(self) -> None:
        worker = here.worker
        job = self._job = None if worker is None else worker.job
        if job is None:
            self._leave()
            return
        job.cover()
        try:
            self._leave()
        except BaseException:  # nothing was left: the cover goes, and it passes
            job.uncover()
            raise
        try:
            job.uncover()
        except BaseException:  # a kill; the block is not entered, so nothing else goes back
            self.come_back()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.come_back()

    def come_back(self) -> None:
        """Run `back()`; raise `Killed` afterwards if a kill has come."""
        job = self._job
        if job is None:
            self._back()
            return
        job.cover_late()
        try:
            self._back()
        finally:
            job.uncover()


def shield() -> _Shield:
    """Keep a kill away from a block of code: it is raised when the block ends.

    For code in a task or an interruptible handler that must not be torn apart: it holds
    a lock of its own, or changes two things that belong together. Nests. The grace period of the
    kill runs on meanwhile, so the block must be short. Outside of a task it does nothing.

    Example:
        >>> with shield():
        ...     pass
    """
    return _Shield()
