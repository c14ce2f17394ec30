"""Pykka's own actors in a supervision tree, as they are."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pykka
from pykka._envelope import Envelope

from supervisors import death
from supervisors.elsewhere import Begun, Deputy, Gone
from supervisors.errors import ActorExit
from supervisors.events import Event
from supervisors.exits import KILLED, NORMAL, Crashed, ExitReason

if TYPE_CHECKING:
    from pykka._ref import ActorRef as PykkaRef

    from supervisors.future import Future

__all__ = ["Hosted"]


class _Interrupted(Exception):
    """Carries a `SystemExit` or the like past pykka, which would stop every actor for it."""


class _Answer:
    """A future in pykka's hands. An answer may come too late: the deputy was killed meanwhile."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def set(self, value: Any = None) -> None:
        self._future.offer(value)

    def set_exception(self, exc_info: Any = None) -> None:
        error = (exc_info or sys.exc_info())[1]
        if error is not None:
            self._future.offer_error(error)


class Hosted(Deputy):
    """Stands in a tree for an actor of pykka's: `ChildSpec("a", MyThreadingActor, args)` suffices.

    Messages, asks and proxies of its reference reach the pykka actor. It has started when its `on_start`
    has returned. Its end is normal after `stop()`, and a crash after an error in `on_start`, `on_stop` or
    the handler of a tell; the handler of an ask may fail and it lives on, as pykka has it. It is not in
    pykka's registry: register the root of the tree instead (`system.start(..., register=True)`), and
    `stop_all()` takes the tree down in order. A kill gives up on it, as it cannot be interrupted: its
    thread goes on until its handler returns.

    Args:
        actor_class: a subclass of `pykka.ThreadingActor`, or of another of pykka's own
        *args: for its `__init__`
        **kwargs: for its `__init__`

    Example:
        >>> import pykka
        >>> from supervisors import ActorSystem, ChildSpec, Supervisor, which_children
        >>> class Old(pykka.ThreadingActor):
        ...     def double(self, n):
        ...         return 2 * n
        >>> with ActorSystem() as system:
        ...     root = system.start(Supervisor, [ChildSpec("old", Old)])
        ...     which_children(root)[0].ref.proxy().double(21).get(timeout=5)
        ...     system.start(Hosted, Old).proxy().double(4).get(timeout=5)
        42
        8
    """

    hosted: Any = None

    def __init__(self, actor_class: type[pykka.Actor], *args: Any, **kwargs: Any) -> None:
        """Keep what is needed for its start."""
        self._fresh = (actor_class, args, kwargs)
        self._failure: BaseException | None = None

    def begin(self) -> None:
        """Start the pykka actor."""
        actor_class, args, kwargs = self._fresh
        watched = _watched(actor_class, self)
        try:
            ref = watched.start(*args, **kwargs)
        finally:
            for left in pykka.ActorRegistry.get_by_class(watched):
                pykka.ActorRegistry.unregister(left)
        self._inner: PykkaRef[Any] = ref

    def on_receive(self, message: Any) -> None:
        """Pass a message on, with its caller."""
        cell = self.cell
        future, cell.reply = cell.reply, None
        if future is not None:
            death.promise(cell, future)
            future.add_done_callback(self._answered)
        reply: Any = None if future is None else _Answer(future)
        self._inner.actor_inbox.put(Envelope(message, reply))

    _forward = on_receive

    def _answered(self, future: Future[Any]) -> None:
        book = self.cell.book
        if book is not None and book.deferred is not None:
            book.deferred.discard(future)

    def wind_up(self, reason: ExitReason) -> None:
        """Stop the pykka actor, after the messages that it has."""
        del reason
        self._inner.stop(block=False)

    def let_go(self) -> None:
        """Give it up if it still runs."""
        inner = getattr(self, "_inner", None)
        if inner is not None and inner.is_alive():
            inner.stop(block=False)
            self.system.emit(Event("abandoned", repr(self.cell), KILLED))

    # On the pykka actor's own thread

    def began(self, actor: pykka.Actor) -> None:
        """Hear that `on_start` has returned."""
        self.hosted = actor
        if not actor.actor_stopped.is_set():
            self.post(Begun())

    def failed(self, error: BaseException) -> None:
        """Hear of the error that ends it."""
        self._failure = error.__cause__ if isinstance(error, _Interrupted) else error

    def ended(self, actor: pykka.Actor) -> None:
        """Hear that its loop is over; answer what came too late for it."""
        failure = self._failure
        reason = self._wanted or NORMAL if failure is None else Crashed(failure)
        self.post(Gone(reason))
        while not actor.actor_inbox.empty():
            envelope = actor.actor_inbox.get()
            if envelope.reply_to is not None:
                error = ActorExit(repr(self.cell), reason)
                envelope.reply_to.set_exception((type(error), error, None))


def _watched(actor_class: type[pykka.Actor], deputy: Hosted) -> type[Any]:
    """Return a subclass of `actor_class` that tells `deputy` of its start and end."""
    base: Any = actor_class

    class Watched(base):  # type: ignore[misc]  # its base is known when it is made
        def _actor_loop(self) -> None:
            try:
                super()._actor_loop()
            except BaseException as error:  # noqa: BLE001 - pykka would leave an immortal actor
                self.actor_stopped.set()
                deputy.failed(error)
            finally:
                deputy.ended(self)

        def _actor_loop_setup(self) -> None:
            super()._actor_loop_setup()
            deputy.began(self)

        def _handle_receive(self, message: Any) -> Any:
            try:
                return super()._handle_receive(message)
            except Exception:  # pykka deals with it as it always does
                raise
            except BaseException as error:  # this would stop every pykka actor of the process
                raise _Interrupted(repr(error)) from error

        def _handle_failure(self, *info: Any) -> None:
            deputy.failed(info[1])
            super()._handle_failure(*info)

    Watched.__name__ = Watched.__qualname__ = actor_class.__name__
    Watched.__module__ = actor_class.__module__
    return Watched
