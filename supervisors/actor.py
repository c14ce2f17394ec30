"""Actors: objects whose handlers run one at a time, that end alone and tell of it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, TypeAlias

import pykka

from supervisors import death
from supervisors.events import Event
from supervisors.exits import NORMAL, ExitReason
from supervisors.future import Future
from supervisors.given import cell_of, reason_of
from supervisors.mailbox import Cell, Continue
from supervisors.ref import ActorRef, StopRequest

if TYPE_CHECKING:
    from supervisors.inbox import Inbox
    from supervisors.scheduler import Lane
    from supervisors.signals import Down, Exit
    from supervisors.system import ActorSystem

__all__ = ["Actor", "Execution", "MonitorRef", "Reply"]

Execution: TypeAlias = Literal["pooled", "thread"]
"""What runs an actor: the workers of all, or one of its own."""


class MonitorRef:
    """A standing monitor; `cancel()` takes it back."""

    __slots__ = ("_key", "_target", "_watch", "token")

    def __init__(self, target: Inbox, observer: Inbox, token: object) -> None:
        """Monitor `target` for `observer`; `Down` carries `token`, or this object if it is None."""
        self._target = target
        self.token = self if token is None else token
        self._watch = death.Watch(self.token)
        self._key = death.monitor(target, observer, self._watch)

    def cancel(self) -> bool:
        """End the monitor; no `Down` of it is seen afterwards, one that is on its way included.

        Returns:
            True if the actor still lived as far as this monitor knew
        """
        self._watch.live = False
        return death.demonitor(self._target, self._key)


class Reply:
    """An answer that an actor owes; made by `Actor.defer()`. Any worker may give it, once."""

    __slots__ = ("_cell", "_future")

    def __init__(self, cell: Inbox, future: Future[Any] | None) -> None:
        """Owe `future` an answer; None if nobody waits for one."""
        self._cell = cell
        self._future = future

    def set(self, value: object = None) -> bool:
        """Answer with `value`; return whether somebody could still be waiting for it."""
        if self._future is None:
            return False
        self._settle()
        return self._future.offer(value)

    def set_exception(self, error: BaseException) -> bool:
        """Answer with `error`, which the asker's `get()` raises."""
        if self._future is None:
            return False
        self._settle()
        return self._future.offer_error(error)

    def _settle(self) -> None:
        book = self._cell.book
        if book is not None and book.deferred is not None and self._future is not None:
            book.deferred.discard(self._future)


class Actor(pykka.Actor):
    """An actor. Subclass it, and start it by `ActorSystem.start(MyActor, ...)`.

    Everything of it runs in slices on the workers of the system's scheduler, one at a time:
    `__init__` and `on_start`, then a handler for each message. An exception in any of them ends the
    actor with the reason `Crashed(error)`, an exception in the handler of an ask too: the asker gets
    `ActorExit`, with the error as its cause. To answer with an error and live on, raise `Refuse`.

    Class attributes:
        lane: where it waits for a worker: `"hi"`, `"lo"` or `"idle"`
        execution: `"pooled"`, or `"thread"`: it has a worker of its own, for libraries that want one
        isolated: its handlers have a `contextvars.Context` of their own
        interruptible: a kill interrupts a handler that runs (costs about a microsecond a message);
            otherwise the kill waits for the end of the handler, up to its grace period
        mailbox_limit: how many messages sent by reference may wait; None for no limit
        when_full: `"refuse"`: a tell raises, and an ask fails with, `MailboxFull`; `"drop"`: a
            tell is a dead letter (an ask fails all the same)

    Attributes:
        cell: the actor's mailbox
        system: the system that it runs in
        trap_exit: exit signals come to `on_signal`, except those of its supervisor and kills

    Example:
        >>> class Counter(Actor):
        ...     def on_start(self):
        ...         self.n = 0
        ...     def on_receive(self, message):
        ...         self.n += message
        ...         return self.n
    """

    lane: ClassVar[Lane] = "hi"
    execution: ClassVar[Execution] = "pooled"
    isolated: ClassVar[bool] = True
    interruptible: ClassVar[bool] = False
    mailbox_limit: ClassVar[int | None] = None
    when_full: ClassVar[Literal["refuse", "drop"]] = "refuse"
    child_type: ClassVar[Literal["worker", "supervisor"]] = "worker"
    trap_exit: bool = False
    _acknowledges: bool = False  # it says itself when it has started, after `on_start`
    cell: Cell
    system: ActorSystem

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        """Take the arguments of `ActorSystem.start`. Overriding methods need not call this one."""

    @classmethod
    def start(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise: an actor needs a system to run in (pykka's own actors have a thread each)."""
        del args, kwargs
        raise TypeError(f"start it in a system: system.start({cls.__name__}, ...)")

    # What pykka knows an actor by; here it is all the cell.

    @property
    def ref(self) -> ActorRef[Any]:
        """The reference to this actor."""
        return self.cell.ref

    @property
    def actor_ref(self) -> ActorRef[Any]:
        """The reference to this actor, by pykka's name."""
        return self.cell.ref

    @property
    def actor_urn(self) -> str:  # type: ignore[override]  # made on demand, never assigned
        """The name of this actor in pykka's registry."""
        return self.cell.ref.actor_urn

    @property
    def actor_inbox(self) -> Cell:  # type: ignore[override]  # the cell is all of these
        """The mailbox, by pykka's name."""
        return self.cell

    @property
    def actor_stopped(self) -> Cell:  # type: ignore[override]
        """The stopped flag, by pykka's name."""
        return self.cell

    @staticmethod
    def _create_actor_inbox() -> NoReturn:
        raise TypeError("the system makes the mailbox: use system.start()")

    @staticmethod
    def _create_future() -> Future[Any]:
        return Future()

    def _start_actor_loop(self) -> NoReturn:
        raise TypeError("a scheduler runs this actor: use system.start()")

    def __str__(self) -> str:
        return repr(self.cell).strip("<>")

    # Hooks

    def on_start(self) -> None:
        """Prepare, as the first thing; who starts the actor waits for it. May raise `Ignore`."""

    def on_continue(self, term: Any) -> None:
        """Carry on with `term`, which `handle_continue` left, ahead of every message."""

    def on_receive(self, message: Any) -> Any:
        """Handle `message`; what is returned answers an ask."""
        self.system.emit(
            Event("unhandled_message", repr(self.cell), detail={"type": type(message).__name__})
        )

    def on_signal(self, signal: Exit | Down) -> None:
        """Handle a trapped `Exit`, or the `Down` of a monitored actor. By default reports it."""
        self.system.emit(
            Event("unhandled_signal", repr(self.cell), signal.reason, {"signal": repr(signal)})
        )

    def on_stop(self, reason: ExitReason = NORMAL) -> None:
        """Release what the actor holds; runs at every end but a kill and a failed start.

        `reason` is always given; its default is there for type checkers, as pykka gives none.
        """

    # What an actor may do

    def handle_continue(self, term: object = None) -> None:
        """Have `on_continue(term)` run right after the present handler, ahead of every message.

        The place for a slow start that its supervisor need not wait for (OTP's `handle_continue`).
        """
        self._afterwards().append(Continue(term))

    def exit(self, reason: ExitReason = NORMAL) -> None:
        """End this actor, for `reason`, after the present handler; its reply still goes out."""
        self._afterwards().append(StopRequest(reason_of(reason)))

    def _afterwards(self) -> deque[Any]:
        if self.cell.after is None:
            self.cell.after = deque()
        return self.cell.after

    def stop(self) -> None:
        """End this actor normally after the present handler (pykka's name for `exit()`)."""
        self.exit()

    def defer(self) -> Reply:
        """Answer the present ask later: keep the handle; the handler's return value is ignored.

        Returns:
            the handle; if the actor ends first, the asker gets `ActorExit`
        """
        future, self.cell.reply = self.cell.reply, None
        if future is not None:
            death.promise(self.cell, future)
        return Reply(self.cell, future)

    def link(self, other: ActorRef[Any] | Cell) -> None:
        """Tie this actor's life to `other`'s; idempotent. A dead one signals `NO_PROC`."""
        death.link(self.cell, cell_of(other))

    def unlink(self, other: ActorRef[Any] | Cell) -> None:
        """Untie; afterwards no exit signal of that link is seen."""
        death.unlink(self.cell, cell_of(other))

    def monitor(self, other: ActorRef[Any] | Cell, token: object = None) -> MonitorRef:
        """Be told of the end of `other` by one `Down(token, reason)` in `on_signal`.

        Args:
            other: whom to watch; if it has ended, `Down(token, NO_PROC)` comes
            token: what `Down` carries; None: the returned object itself
        """
        return MonitorRef(cell_of(other), self.cell, token)

    # What the cell calls

    def _system(self, message: Any) -> bool:
        del message
        return False

    def _end(self, reason: ExitReason) -> None:
        death.die(self.cell, reason)
