"""The cell of an actor: its mailbox (`Inbox`) and the slices in which its handlers run."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

from pykka._envelope import Envelope
from pykka._introspection import get_attr_directly
from pykka.messages import ProxyCall, ProxyGetAttr, ProxySetAttr, _ActorStop

from supervisors.death import Ended, ExitSignal, acknowledge, die, drain, ignore, kill, kill_waits
from supervisors.exits import KILLED, NORMAL, Crashed, ExitReason
from supervisors.inbox import CLOSING, ENDED, RUNNING, WAITS, Hooks, Inbox
from supervisors.kill import Job
from supervisors.ref import ActorRef, StopRequest, ref_of
from supervisors.scheduler import here
from supervisors.signals import Down, Exit

if TYPE_CHECKING:
    from collections.abc import Callable

    from supervisors.future import Future
    from supervisors.scheduler import Worker

__all__ = ["Cell", "Continue", "Ignore", "Order", "Refuse"]


_PROXIED = {ProxyCall, ProxyGetAttr, ProxySetAttr}


class Ignore(Exception):
    """Raise in `on_start`: this actor wants not to run (OTP's `ignore`). Nothing has failed."""


class Refuse(Exception):
    """Raise in `on_receive` to answer an ask with `error`, and live on."""

    def __init__(self, error: BaseException) -> None:
        """Answer with `error`."""
        super().__init__(error)
        self.error = error


class _KilledInHandler(BaseException):
    """A handler was interrupted: its actor ends at once."""


class Order:
    """A system message: apply something to the cell, between two handlers, and answer with it."""

    __slots__ = ("apply", "done")

    def __init__(self, apply: Callable[[Cell], Any], done: Future[Any]) -> None:
        """Answer `done` with `apply(cell)`."""
        self.apply = apply
        self.done = done


_ITS_OWN = {Order, StopRequest, Ended}
"""The system messages besides `ExitSignal` that the cell itself understands."""


class Continue:
    """What `handle_continue` leaves for the end of the handler."""

    __slots__ = ("term",)

    def __init__(self, term: object) -> None:
        """Leave `term`."""
        self.term = term


def _start(actor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    actor.__init__(*args, **kwargs)
    actor.on_start()


class Cell(Inbox):
    """An actor's mailbox and life; it exists before its actor is made, and after it has ended.

    `put`, `put_system` and `run_inline` may be called from anywhere.
    """

    __slots__ = ()

    @property
    def ref(self) -> ActorRef[Any]:
        """The reference of the actor."""
        return ref_of(self)

    def parent_ended(self, reason: ExitReason) -> None:
        """Get the exit signal of the supervisor, which has ended for `reason`."""
        self.put_system(ExitSignal(self.parent, reason))

    def kill(self, grace: float) -> None:
        """End the actor without asking it; after `grace` seconds give its worker up."""
        kill(self, grace)

    def put_inline(self, message: object) -> None:
        """Send `message`, and handle it at once on the calling worker if nothing else could run."""
        worker = here.worker
        if worker is None or not self._seize(worker):
            self.q.append(message)
            if self.busy.acquire(False):
                self.scheduler.submit(self, worker)
        elif (
            self.phase != RUNNING
            or self.q
            or self.sysq
            or self.after
            or self.held
            or self.context is not None
            or worker.job is not None
            or type(message) is Envelope
            or self.actor_class.interruptible
        ):
            self.q.append(message)
            self._nest(worker)
        else:
            self._take(message, worker)

    def run_inline(self, *messages: object) -> bool:
        """Send `messages` and run a slice at once on the calling worker, if nothing else could run.

        Only if the actor is idle, or is itself all that waits for a worker. The calling
        actor's context and handler are suspended meanwhile; a kill of it waits. Otherwise the
        messages are sent as by `put`.

        Returns:
            whether a slice ran
        """
        worker = here.worker
        if worker is None or not self._seize(worker):
            for message in messages:
                self.put(message)
            return False
        self.q.extend(messages)
        self._nest(worker)
        return True

    def _nest(self, worker: Worker) -> None:
        """Run a slice on `worker` inside of the turn that it runs."""
        job = worker.job
        if job is not None:
            job.cover()
            worker.job = None
        worker.nest.append(worker.cell)
        try:
            self.turn(worker)
        finally:
            worker.nest.pop()
            if job is not None:
                worker.job = job
                job.uncover()

    def _take(self, message: object, worker: Worker) -> None:
        """Handle the one message that there is, as `_nest` would, without the calls of a slice."""
        busy, below, actor = self.busy, worker.cell, self.actor
        if actor is None:  # it was given up in this moment
            self.q.append(message)
            self._nest(worker)
            return
        worker.nest.append(below)
        worker.cell = self
        self.holder = worker
        error: BaseException | None = None
        try:
            actor.on_receive(message)
        except Refuse:
            pass  # a refusal of what nobody asked
        except BaseException as raised:  # noqa: BLE001 - whatever a handler raises ends this actor only
            die(self, Crashed(raised))
            error = raised
        if error is None and (self.q or self.sysq or self.after):
            error = self._slice(worker)
        worker.nest.pop()
        worker.cell = below  # from here on as the end of `turn`, without its calls
        self.holder = None
        if error is not None:
            traceback.clear_frames(error.__traceback__)
            message = actor = None  # this frame runs yet, so that it is not cleared
        if self.busy is not busy:
            return
        busy.release()
        if (self.sysq or (self.q and not self.held)) and busy.acquire(False):
            self.scheduler.submit_lazy(self, worker)

    def _seize(self, worker: Worker) -> bool:
        if self.scheduler.quiet(worker):
            return self.busy.acquire(False)
        return self.scheduler.take_back(self, worker)

    def turn(self, worker: Worker) -> None:
        """Run a slice: as many messages as the worker's quantum allows."""
        busy = self.busy
        below = worker.cell
        worker.cell = self
        self.holder = worker
        if self.phase == ENDED:
            drain(self, self.reason or NORMAL)
            error = None
        elif self.context is None:
            error = self._slice(worker)
        else:
            error = self.context.run(self._slice, worker)
        worker.cell = below
        self.holder = None
        if error is not None:
            # the error lives on with who hears of it; the dead actor's locals must not
            traceback.clear_frames(error.__traceback__)
        if self.busy is not busy:
            return  # this slice was abandoned: the cell is no longer its own
        busy.release()
        if (self.sysq or (self.q and not self.held)) and busy.acquire(False):
            self.scheduler.submit_lazy(self, worker)

    def _slice(self, worker: Worker) -> BaseException | None:
        try:
            if self.fresh is not None:
                self._begin(worker)
                if not (self.q or self.sysq or self.after):
                    return None
            while self.actor is not None:
                try:
                    self._serve(self.actor, worker)
                except Refuse:
                    continue  # a refusal of what nobody asked
                break
        except _KilledInHandler:
            die(self, KILLED, stop=False)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises ends this actor only
            die(self, Crashed(error))
            return error
        return None

    def _begin(self, worker: Worker) -> None:
        assert self.fresh is not None
        args, kwargs = self.fresh
        self.fresh = None
        if kill_waits(self):
            die(self, KILLED, stop=False)
            return
        cls = self.actor_class
        actor = cls.__new__(cls)
        actor.cell = self
        actor.system = self.system
        self.actor = actor
        try:
            self._call(worker, _start, actor, args, kwargs)
        except Ignore:
            ignore(self)
            return
        if not actor._acknowledges:  # noqa: SLF001 - the actor's side of its cell
            acknowledge(self)

    def _serve(self, actor: Hooks, worker: Worker) -> None:
        queue = self.q
        left = worker.quantum
        receive = actor.on_receive
        guarded: bool = self.actor_class.interruptible
        while self.phase < CLOSING:
            if self.after:
                self._run_after(actor, worker)
            elif self.sysq:
                self._run_system(actor, worker)
            elif left and queue and not self.held:
                left -= 1
                message = queue.popleft()
                if type(message) is Envelope:
                    self._answer(actor, message, worker)
                elif guarded:
                    self._call(worker, receive, message)
                else:
                    receive(message)
            else:
                return

    def _call(self, worker: Worker, handler: Any, *args: Any) -> Any:
        if not self.actor_class.interruptible:
            return handler(*args)
        job = self.job = Job()
        result = job.perform(worker, handler, *args)
        self.job = None
        outcome, job.outcome = job.outcome, None
        if result is None:
            raise _KilledInHandler
        if not result:
            raise outcome
        return outcome

    def _run_after(self, actor: Hooks, worker: Worker) -> None:
        assert self.after is not None
        item = self.after.popleft()
        if type(item) is Continue:
            self._call(worker, actor.on_continue, item.term)
        else:
            actor._end(item.reason)  # noqa: SLF001 - the actor's side of its cell

    def _answer(self, actor: Hooks, envelope: Envelope[Any], worker: Worker) -> None:
        future: Any = envelope.reply_to
        message = envelope.message
        if type(message) is _ActorStop:
            if future is not None:
                book = self.pages()
                with self.system.lock:
                    book.joiners = (*book.joiners, (future, None))
            actor._end(NORMAL)  # noqa: SLF001
            return
        if future is None:
            self._call(worker, self._dispatch, actor, message)
            return
        if future.given_up:
            return
        self.reply = future
        try:
            value = self._call(worker, self._dispatch, actor, message)
        except Refuse as refusal:
            reply, self.reply = self.reply, None
            if reply is not None:
                reply.offer_error(refusal.error)
            return
        reply, self.reply = self.reply, None
        if reply is not None:
            reply.offer(value)

    def _dispatch(self, actor: Hooks, message: Any) -> Any:
        kind = type(message)
        if kind in _PROXIED and (forward := getattr(actor, "_forward", None)) is not None:
            return forward(message)
        if kind is ProxyCall:
            return get_attr_directly(actor, message.attr_path)(*message.args, **message.kwargs)
        if kind is ProxyGetAttr:
            return get_attr_directly(actor, message.attr_path)
        if kind is ProxySetAttr:
            parent = get_attr_directly(actor, message.attr_path[:-1])
            return setattr(parent, message.attr_path[-1], message.value)
        return actor.on_receive(message)

    def _run_system(self, actor: Hooks, worker: Worker) -> None:
        queue = self.sysq
        assert queue is not None, "what is to be run was put there"
        while queue and self.phase < CLOSING and not self.after:
            try:
                message = queue.popleft()
            except IndexError:
                return
            kind = type(message)
            if kind is ExitSignal:
                self._signal(actor, message, worker)
            elif kind not in _ITS_OWN:
                if not actor._system(message):  # noqa: SLF001 - the actor's side of its cell
                    self._call(worker, actor.on_signal, message)
            elif kind is Order:
                message.done.offer(message.apply(self))
            elif kind is StopRequest:
                actor._end(message.reason)  # noqa: SLF001
            elif message.watch.live:
                self._call(worker, actor.on_signal, Down(message.watch.token, message.reason))

    def _signal(self, actor: Hooks, signal: ExitSignal, worker: Worker) -> None:
        if signal.kill:
            die(self, KILLED, stop=False)
            return
        sender = signal.sender
        if signal.bond is not None:
            with self.system.lock:
                links = {} if self.book is None else self.book.links
                if sender is None or links.get(sender) is not signal.bond:
                    return  # unlinked since
                del links[sender]
        if sender is not None and (sender is self.parent or sender is self):
            actor._end(signal.reason)  # noqa: SLF001
        elif actor.trap_exit:
            self._call(worker, actor.on_signal, Exit(sender, signal.reason))
        elif signal.reason != NORMAL:
            actor._end(signal.reason)  # noqa: SLF001

    def ends_by(self, message: object) -> bool:
        """Tell whether this actor will end by the system message `message`."""
        if type(message) is not ExitSignal:
            return type(message) is StopRequest
        if message.kill or message.sender in (self.parent, self):
            return message.kill or message.sender is not None
        actor = self.actor
        return actor is not None and not actor.trap_exit and message.reason != NORMAL

    def hold(self, why: int = WAITS) -> None:
        """Have ordinary messages wait until `resume(why)`; from the actor's own slice."""
        self.held |= why

    def resume(self, why: int = WAITS) -> None:
        """Serve ordinary messages again, unless they are held for another reason too."""
        self.held &= ~why

    @property
    def alive(self) -> bool:
        """Whether the actor runs: it has started and has not begun to end."""
        return self.phase == RUNNING
