"""References to actors: what may be passed around, and outlives its actor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import pykka
from pykka import messages
from pykka._envelope import Envelope

from supervisors.errors import ActorExit, CallingSelf, CallTimeout, Forked, MailboxFull, NoProc
from supervisors.events import Event
from supervisors.exits import NORMAL, Abnormal, ExitReason
from supervisors.future import Future
from supervisors.given import reason_of
from supervisors.inbox import ENDED, Inbox, Name
from supervisors.scheduler import here

if TYPE_CHECKING:
    from collections.abc import Callable

    from supervisors.mailbox import Cell

__all__ = ["ActorRef", "ListedRef", "StopRequest", "ref_of"]

A = TypeVar("A", bound=pykka.Actor)

_PYKKA = (
    messages._ActorStop,  # noqa: SLF001 - pykka exports it to implementors
    messages.ProxyCall,
    messages.ProxyGetAttr,
    messages.ProxySetAttr,
)


class StopRequest:
    """A system message: end for `reason`, as at the wish of the actor itself."""

    __slots__ = ("reason",)

    def __init__(self, reason: ExitReason) -> None:
        """Ask to end for `reason`."""
        self.reason = reason


class ActorRef(pykka.ActorRef[A]):
    """A reference to an actor. Two references to one actor are equal.

    Attributes:
        cell: the actor's cell, for code that sends much
    """

    cell: Cell

    def __init__(self, cell: Inbox) -> None:
        """Make the reference of `cell`; use `ref_of`, `cell.ref` or `actor.ref`."""
        whole: Any = cell  # every inbox is a `Cell`
        self.cell = whole
        self.actor_class = cell.actor_class
        self.actor_inbox = cell
        self.actor_stopped = cell  # type: ignore[assignment]  # the cell is its own stopped flag

    @property
    def _actor_weakref(self) -> Callable[[], Any]:  # type: ignore[override]  # proxies call it
        actor = self.cell.actor
        return lambda: getattr(actor, "hosted", actor)

    @property
    def actor_urn(self) -> str:  # type: ignore[override]  # made on demand, never assigned
        """The name of the actor in its system, as pykka's registry knows it."""
        return f"urn:actor:{id(self.cell.system):x}:{self.cell.number}"

    @property
    def name(self) -> str | Name | None:
        """The name under which the actor was started, if any."""
        return self.cell.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorRef) and other.cell is self.cell

    def __hash__(self) -> int:
        return hash(self.cell)

    def __repr__(self) -> str:
        return f"<ActorRef {self}>"

    def __str__(self) -> str:
        return repr(self.cell).strip("<>")

    def tell(self, message: object) -> None:
        """Send `message` and go on.

        Raises:
            NoProc: the actor has ended (a message that races with the end is a dead letter)
            MailboxFull: its mailbox has a limit, and no room
        """
        cell = self.cell
        if cell.stopped:
            raise self._gone()
        limit = cell.actor_class.mailbox_limit
        if limit is not None and len(cell.q) >= limit:
            self._full(limit, message)
            return
        cell.put(Envelope(message) if isinstance(message, _PYKKA) else message)

    def _gone(self) -> NoProc | Forked:
        if self.cell.system.lost:
            return Forked(f"{self} is in the parent process: make a new ActorSystem")
        return NoProc(self)

    def _full(self, limit: int, message: object) -> None:
        self._report_full(limit)
        if self.cell.actor_class.when_full == "refuse":
            raise MailboxFull(self, limit)
        self.cell.system.dead_letter(self.cell, message, Abnormal("mailbox full"))

    def _report_full(self, limit: int) -> None:
        cell = self.cell
        cell.system.emit(Event("mailbox_full", repr(cell), detail={"limit": limit}))

    @overload
    def ask(
        self, message: Any, *, block: Literal[False], timeout: float | None = None
    ) -> Future[Any]: ...

    @overload
    def ask(
        self, message: Any, *, block: Literal[True] = True, timeout: float | None = None
    ) -> Any: ...

    @overload
    def ask(
        self, message: Any, *, block: bool = True, timeout: float | None = None
    ) -> Any | Future[Any]: ...

    def ask(  # pyright: ignore[reportIncompatibleMethodOverride]  # its futures are pykka's, and more
        self, message: Any, *, block: bool = True, timeout: float | None = None
    ) -> Any:
        """Send `message` and wait for the reply.

        Args:
            message: what `on_receive` is given; its return value is the reply
            block: False returns a future at once
            timeout: seconds to wait at most; None waits for ever. A request whose turn has not
                come by then is dropped

        Raises:
            ActorExit: the actor ended before it answered; `NoProc` if it had ended before
            CallTimeout: no reply in time; the actor lives on
            MailboxFull: its mailbox has a limit, and no room
            CallingSelf: an actor asks itself and would wait for ever
        """
        cell = self.cell
        future: Future[Any] = Future(cell.scheduler, cell)
        limit = cell.actor_class.mailbox_limit
        if cell.stopped:
            future.offer_error(self._gone())
        elif limit is not None and len(cell.q) >= limit:
            self._report_full(limit)
            future.offer_error(MailboxFull(self, limit))
        else:
            cell.put(Envelope(message, future))
        if not block:
            return future
        try:
            return future.get(timeout=timeout)
        except (CallTimeout, CallingSelf):
            future.given_up = True
            raise

    async def ask_async(self, message: Any, *, timeout: float | None = None) -> Any:
        """Send `message` and await the reply, from an asyncio event loop.

        Args:
            message: what `on_receive` is given
            timeout: real seconds to wait at most; None waits for ever

        Raises:
            ActorExit, CallTimeout, MailboxFull: as `ask`. A request whose caller has gone, by the
                timeout or because it was cancelled, is dropped if its turn has not come
        """
        from asyncio import wait_for  # noqa: PLC0415 - loaded already by whoever awaits

        future = self.ask(message, block=False)
        try:
            return await wait_for(_awaiting(future), timeout)
        except TimeoutError:
            future.given_up = True
            raise CallTimeout(f"no answer from {self} within {timeout} s") from None
        except BaseException:  # a cancellation above all: nobody waits any more
            future.given_up = True  # of no consequence to one that was answered
            raise

    @overload
    def stop(
        self, *, block: Literal[True] = True, timeout: float | None = None,
        reason: ExitReason = NORMAL,
    ) -> bool: ...  # fmt: skip

    @overload
    def stop(
        self, *, block: Literal[False], timeout: float | None = None,
        reason: ExitReason = NORMAL,
    ) -> Future[bool]: ...  # fmt: skip

    @overload
    def stop(
        self, *, block: bool = True, timeout: float | None = None,
        reason: ExitReason = NORMAL,
    ) -> bool | Future[bool]: ...  # fmt: skip

    def stop(
        self,
        *,
        block: bool = True,
        timeout: float | None = None,
        reason: ExitReason = NORMAL,
    ) -> bool | Future[bool]:
        """End the actor after its present handler, ahead of the messages that wait.

        `on_stop(reason)` runs; waiting asks fail with `ActorExit(reason)`. Also the way to stop
        a supervisor from outside: it ends its children first.

        Args:
            block: wait until it has ended, `on_stop` and the release of its name included
            timeout: seconds to wait at most
            reason: why

        Returns:
            True if it ended, False if it had ended before; or a future of that

        Raises:
            ActorExit: it ended, but abnormally, and for another reason: `on_stop` raised, or it
                crashed or was killed before it came to stop
            CallTimeout: it did not end in time; the request stands
            CallingSelf: an actor cannot wait for its own end; use `self.exit()`
        """
        future: Future[bool] = Future(self.cell.scheduler, self.cell)
        worker = here.worker
        if block and worker is not None and worker.cell is self.cell:
            raise CallingSelf(f"{self} cannot wait for its own end: use self.exit()")
        if join(self.cell, future, reason_of(reason)):
            self.cell.put_system(StopRequest(reason))
        return future.get(timeout=timeout) if block else future


class ListedRef(ActorRef[Any]):
    """The reference that pykka's registry has: an actor that ends badly is no obstacle to `stop_all`."""

    def stop(self, *, block: bool = True, timeout: float | None = None, **more: Any) -> Any:
        """End the actor, as `ActorRef.stop`."""
        try:
            return super().stop(block=block, timeout=timeout, **more)
        except ActorExit:
            return True

    __hash__ = ActorRef.__hash__


async def _awaiting(future: Future[Any]) -> Any:
    return await future


def join(cell: Inbox, future: Future[bool], reason: ExitReason | None = None) -> bool:
    """Have `future` set to True when the actor of `cell` has ended, to False if it had before.

    With a `reason`, another and abnormal end is an `ActorExit` (OTP's `gen_server:stop/3`).
    """
    book = cell.pages()
    with cell.system.lock:
        alive = cell.phase != ENDED
        if alive:
            book.joiners = (*book.joiners, (future, reason))
    if not alive:
        future.offer(False)
    return alive


def ref_of(cell: Inbox) -> ActorRef[Any]:
    """Return the reference of `cell`, made at first use."""
    ref = cell._ref  # noqa: SLF001 - the slot is there for this
    if ref is None:
        ref = cell._ref = ActorRef(cell)  # noqa: SLF001
    found: ActorRef[Any] = ref
    return found
