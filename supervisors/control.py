"""Orders to a running actor: suspend, resume, drain, look inside, end it later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykka._envelope import Envelope
from pykka.messages import _ActorStop

from supervisors.errors import NoProc
from supervisors.future import Future
from supervisors.given import cell_of, delay_of, reason_of
from supervisors.inbox import SUSPENDED
from supervisors.kill import shield
from supervisors.mailbox import Order
from supervisors.ref import ref_of

if TYPE_CHECKING:
    from supervisors.exits import ExitReason
    from supervisors.inbox import Inbox
    from supervisors.ref import ActorRef
    from supervisors.system import ActorSystem
    from supervisors.timers import TimerRef

__all__ = ["drain", "exit_after", "get_state", "resume", "suspend"]


def suspend(actor: ActorRef[Any], *, timeout: float | None = 5.0) -> None:
    """Have ordinary messages wait until `resume`; exit signals and stops are served.

    Args:
        actor: whom; after its present handler
        timeout: seconds to wait for that
    """
    _order(actor, lambda cell: cell.hold(SUSPENDED), timeout)


def resume(actor: ActorRef[Any], *, timeout: float | None = 5.0) -> None:
    """Serve ordinary messages again."""
    _order(actor, lambda cell: cell.resume(SUSPENDED), timeout)


def get_state(actor: ActorRef[Any], *, timeout: float | None = 5.0) -> dict[str, object]:
    """Return the attributes of the actor, between two handlers; also of a suspended one."""
    found: dict[str, object] = _order(actor, lambda cell: dict(vars(cell.actor)), timeout)
    return found


def _order(actor: ActorRef[Any], apply: Any, timeout: float | None) -> Any:
    cell = cell_of(actor)
    done: Future[Any] = Future(cell.scheduler, cell)
    if cell.stopped:
        raise NoProc(actor)
    cell.put_system(Order(apply, done))
    return done.get(timeout=timeout)


def drain(actor: ActorRef[Any], *, timeout: float | None = None) -> bool:
    """Refuse new messages, have the waiting ones handled, then end the actor normally.

    Args:
        actor: whom
        timeout: seconds to wait for the end

    Returns:
        False if it had ended, or was ending, before
    """
    cell = cell_of(actor)
    ended: Future[Any] = Future(cell.scheduler, cell)
    with shield():
        with cell.system.lock:
            if cell.stopped:
                return False
            cell.stopped = True
        cell.put(Envelope(_ActorStop(), ended))
    ended.get(timeout=timeout)
    return True


class _Exit:
    """A timer's target: sends an exit signal."""

    __slots__ = ("_cell", "_system")

    def __init__(self, system: ActorSystem, cell: Inbox) -> None:
        self._system = system
        self._cell = cell

    def put(self, reason: Any) -> None:
        self._system.exit(ref_of(self._cell), reason)


def exit_after(
    system: ActorSystem, delay: float, actor: ActorRef[Any], reason: ExitReason
) -> TimerRef:
    """Send an exit signal in `delay` seconds; `KILLED` kills. `cancel()` takes it back."""
    cell = cell_of(actor)
    with shield():
        return system.scheduler.timers.add(
            delay_of(delay), _Exit(system, cell), reason_of(reason), owners=cell.timer_set()
        )
