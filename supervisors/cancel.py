"""Cancellation that code takes part in: a token with a deadline, and waits that it wakes.

`cancellation()` is the token of the calling task or actor: it is cancelled when the task is killed, or
when the actor is asked to end or killed. Code that looks at it, or sleeps by it, ends at once and in
good order; all else is interrupted by the kill protocol (`kill.py`), or not at all.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ref

from supervisors.clock import RealClock
from supervisors.errors import CallTimeout, Cancelled
from supervisors.future import Future
from supervisors.scheduler import here

if TYPE_CHECKING:
    from collections.abc import Callable

    from supervisors.clock import Clock
    from supervisors.scheduler import Scheduler

__all__ = ["CancelToken", "Home", "cancellation"]


class Home(Protocol):
    """What a token needs: an `ActorSystem`."""

    clock: Clock
    scheduler: Scheduler


class CancelToken:
    """A wish that something ends, from somebody or at a deadline; it can be waited for.

    Args:
        system: whose clock and workers; None: those of plain code
        timeout: seconds until it is cancelled by itself; None: never
        parent: a token whose cancellation, and whose deadline, is this one's too

    Attributes:
        deadline: when it is cancelled by itself, on the system's monotonic clock; `inf` for never

    Example:
        >>> token = CancelToken()
        >>> token.wait(0.001), token.cancel(), token.wait(60)
        (False, True, True)
    """

    __slots__ = ("__weakref__", "_clock", "_line", "_over", "_scheduler", "deadline")

    def __init__(
        self,
        system: Home | None = None,
        *,
        timeout: float | None = None,
        parent: CancelToken | None = None,
    ) -> None:
        """Make a token that is not cancelled."""
        self._line: _Line | None = None
        self._clock: Clock = RealClock() if system is None else system.clock
        self._scheduler = None if system is None else system.scheduler
        self._over: Future[bool] = Future(self._scheduler)
        self.deadline = inf if timeout is None else self._clock.monotonic() + timeout
        if parent is not None:
            self.deadline = min(self.deadline, parent.deadline)
            self._line = _Line(self, parent)

    def __del__(self) -> None:
        if self._line is not None:
            self._line.cut()

    def cancel(self) -> bool:
        """Cancel, from any thread; who waits goes on. Return False if it was before."""
        return self._over.offer(True)

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled, or its deadline has passed."""
        return self._over.done() or self._clock.monotonic() >= self.deadline

    def remaining(self) -> float:
        """Return the seconds until the deadline, `inf` without one: a timeout for what is called."""
        if self._over.done():
            return 0.0
        return max(self.deadline - self._clock.monotonic(), 0.0)

    def raise_if_cancelled(self) -> None:
        """Raise `Cancelled` if it was cancelled, or its deadline has passed."""
        if self.cancelled:
            raise Cancelled("cancelled" if self._over.done() else "its deadline has passed")

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the cancellation, `seconds` at most; return whether it came.

        On a worker others run meanwhile; in a simulation it drives the simulation.
        """
        left = min(self.remaining(), inf if seconds is None else seconds)
        if left > 0:
            try:
                self._over.get(timeout=None if left == inf else left)
            except CallTimeout:
                return self.cancelled
        return self.cancelled

    def sleep(self, seconds: float) -> None:
        """Sleep `seconds`, or until the cancellation.

        Raises:
            Cancelled: it came, or the deadline passed
        """
        self.wait(seconds)
        self.raise_if_cancelled()

    def on_cancel(self, call: Callable[[], object]) -> None:
        """Have `call()` called once at a cancellation (not at the deadline): to close a socket, say.

        Args:
            call: runs where it is cancelled; must be short and raise nothing
        """
        if self._line is not None:
            self._line.keep(self)
        self._over.add_done_callback(lambda _: call())


class _Line:
    """From a parent token to a child. A parent lives long and has many: it holds no child that rests."""

    __slots__ = ("_child", "_kept", "_parent")

    def __init__(self, child: CancelToken, parent: CancelToken) -> None:
        self._child = ref(child)
        self._kept: CancelToken | None = None
        self._parent = parent._over  # noqa: SLF001 - two of one kind
        self._parent.add_waiter(self)

    def keep(self, child: CancelToken) -> None:
        """Hold the child: it has somebody to call."""
        self._kept = child

    def release(self) -> None:
        """Be told that the parent was cancelled."""
        child, self._kept = self._child(), None
        if child is not None:
            child.cancel()

    def cut(self) -> None:
        """The child is gone."""
        self._parent.drop_waiter(self)


def cancellation() -> CancelToken:
    """Return the token of the task or actor that calls; of plain code, one that nobody cancels.

    Example:
        >>> from supervisors import ActorSystem, Tasks, TaskSupervisor
        >>> def patient():
        ...     cancellation().wait(60)
        ...     return "tidied up"
        >>> with ActorSystem() as system:
        ...     tasks = Tasks(system.start(TaskSupervisor))
        ...     tasks.run(patient).shutdown() is None
        True
    """
    worker = here.worker
    cell: Any = None if worker is None else worker.cell
    if cell is None:
        return CancelToken()
    token: CancelToken = cell.cancel_token()
    return token
