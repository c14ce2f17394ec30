"""How an actor ends, and who is told: links, monitors, exit signals, the one death procedure.

The order at an actor's end (OTP, and what goes wrong without it in other actor libraries): it takes
no more messages; `on_stop` runs; timers are cancelled; its names are free; waiting callers get
the reason and the rest are dead letters; its children and tasks are ended; links and monitors
are told; who waits for the end goes on. So whoever hears of an end may at once start the successor
under the same name.
"""

from __future__ import annotations

from _thread import allocate_lock
from typing import TYPE_CHECKING, Any

import msgspec
from pykka._envelope import Envelope
from pykka.messages import _ActorStop

from supervisors.errors import ActorExit, StartError, WorkersExhausted
from supervisors.events import Event
from supervisors.exits import KILLED, NO_PROC, NORMAL, Crashed, ExitReason, is_quiet
from supervisors.future import Future
from supervisors.inbox import CLOSING, ENDED, NOTHING, RUNNING, STARTING, WAITS, Book, Inbox
from supervisors.scheduler import here
from supervisors.signals import Down

if TYPE_CHECKING:
    from collections.abc import Callable

    from supervisors.scheduler import Lane, Worker

__all__ = [
    "Ended",
    "ExitSignal",
    "StartFailed",
    "StartIgnored",
    "Started",
    "Watch",
    "acknowledge",
    "demonitor",
    "die",
    "drain",
    "finish",
    "kill",
    "kill_waits",
    "link",
    "miscarry",
    "monitor",
    "unlink",
]


class ExitSignal(msgspec.Struct, frozen=True):
    """A system message: end for `reason`, or hear of it. `bond` names the link it came by."""

    sender: Inbox | None
    reason: ExitReason
    bond: object = None
    kill: bool = False


class Watch:
    """A monitor that can be taken back: while it is not `live`, its `Down` is dropped on arrival."""

    __slots__ = ("live", "token")

    def __init__(self, token: object) -> None:
        """Carry `token`."""
        self.token = token
        self.live = True


class Ended(msgspec.Struct, frozen=True):
    """A system message: the actor of a monitor has ended for `reason`."""

    watch: Watch
    reason: ExitReason


class Started(msgspec.Struct, frozen=True):
    """A system message to a supervisor: the child with `token` has started."""

    token: object


class StartFailed(msgspec.Struct, frozen=True):
    """A system message to a supervisor: the child with `token` is dead, its start failed."""

    token: object
    reason: ExitReason


class StartIgnored(msgspec.Struct, frozen=True):
    """A system message to a supervisor: the child with `token` wants not to run."""

    token: object


def link(cell: Inbox, other: Inbox) -> None:
    """Tie the lives of two actors: when one ends, the other gets an exit signal. Idempotent."""
    if cell is other:
        return
    mine, theirs = cell.pages(), other.pages()
    bond = object()
    with cell.system.lock:
        if other in mine.links:
            return
        _link_half(mine, other, bond)
        dead = other.phase == ENDED
        if not dead:
            _link_half(theirs, cell, bond)
    if dead:
        cell.put_system(ExitSignal(other, NO_PROC, bond))


def _link_half(book: Book, other: Inbox, bond: object) -> None:
    if book.links is NOTHING:
        book.links = {}
    book.links[other] = bond


def unlink(cell: Inbox, other: Inbox) -> None:
    """Untie two actors. Afterwards `cell` sees no exit signal of that link, queued ones included."""
    mine, theirs = cell.pages(), other.pages()
    with cell.system.lock:
        mine.links.pop(other, None)
        theirs.links.pop(cell, None)


def monitor(cell: Inbox, observer: Inbox | Future[ExitReason], token: object) -> object:
    """Have `observer` told once of the end of `cell`: by `Down(token, reason)`, or as its result.

    A `Watch` in the place of the token can be taken back until the moment when `Down` is handled.

    Returns:
        the key for `demonitor`
    """
    key = object()
    book = cell.pages()
    with cell.system.lock:
        alive = cell.phase != ENDED
        if alive:
            entry = (None, observer) if isinstance(observer, Future) else (observer, token)
            if book.monitors is NOTHING:
                book.monitors = {}
            book.monitors[key] = entry
    if not alive:
        _tell(observer, token, NO_PROC)
    return key


def demonitor(cell: Inbox, key: object) -> bool:
    """Take a monitor back; return whether it still stood (False: the end has been told)."""
    with cell.system.lock:
        return cell.book is not None and cell.book.monitors.pop(key, None) is not None


def _tell(observer: Inbox | Future[ExitReason], token: object, reason: ExitReason) -> None:
    if isinstance(observer, Future):
        observer.offer(reason)
    elif type(token) is Watch:
        observer.put_system(Ended(token, reason))
    else:
        observer.put_system(Down(token, reason))


def kill_waits(cell: Inbox) -> bool:
    """Tell whether `cell` was killed and has not come to it yet."""
    if not cell.sysq:
        return False
    messages = tuple(cell.sysq)  # a copy, for others send meanwhile
    return any(type(message) is ExitSignal and message.kill for message in messages)


def acknowledge(cell: Inbox) -> None:
    """Let `cell` run: its start has succeeded, and who started it is told."""
    with cell.system.lock:
        if cell.phase != STARTING or kill_waits(cell):
            return  # a kill that came meanwhile, as of a start that took too long, ends it in its start
        cell.phase = RUNNING
        cell.held &= ~WAITS
    book = cell.book
    if book is None:
        return
    if book.ties:
        for tie in book.ties:
            tie()
        book.ties = ()
    ack, book.ack = book.ack, None
    if isinstance(ack, tuple):
        ack[0].put_system(Started(ack[1]))
    elif ack is not None:
        ack.offer(True)


def die(cell: Inbox, reason: ExitReason, *, stop: bool = True) -> None:
    """End the actor of `cell` for `reason`, from its own slice. The first reason wins.

    Args:
        cell: whose actor
        reason: why; if `on_stop` raises, its error becomes the reason
        stop: whether `on_stop` runs (not for a kill)
    """
    with cell.system.lock:
        if cell.phase >= CLOSING:
            return
        begun = cell.phase == RUNNING
        cell.phase = CLOSING
        cell.stopped = True
        cell.reason = reason
    actor = cell.actor
    if stop and begun and actor is not None:
        try:
            actor.on_stop(reason)
        except BaseException as error:  # noqa: BLE001 - user code; the end goes on whatever it does
            cell.system.emit(Event("stop_failed", repr(cell), Crashed(error)))
            reason = Crashed(error)
    finish(cell, reason)


def finish(cell: Inbox, reason: ExitReason, *, ignored: bool = False) -> bool:
    """Do all that follows on `on_stop`; see the module. Return False if it was done before."""
    with cell.system.lock:
        if cell.phase == ENDED:
            return False
        cell.phase = ENDED
        cell.stopped = True
        cell.held = 0  # what comes from now on is drained, whatever it waited for
        cell.reason = reason
        book, cell.book = cell.book, None
        reply, cell.reply = cell.reply, None
    cell.system.forget(cell)
    if book is not None and (book.timers or book.names):
        _give_back(cell, book)
    if reply is not None:
        reply.offer_error(ActorExit(repr(cell), reason))
    if cell.q or cell.sysq:
        drain(cell, reason)
    if book is not None:
        _spread(cell, book, reason)
    _report(cell, reason)
    if book is not None and (book.ack is not None or book.joiners):
        _answer_starter(cell, book, reason, ignored=ignored)
        for joiner, wanted in book.joiners:
            if wanted is None or wanted == reason or is_quiet(reason):
                joiner.offer(True)
            else:
                joiner.offer_error(ActorExit(repr(cell), reason))
    cell.actor = None
    cell.context = None
    cell._ref = None  # noqa: SLF001 - breaks the cycle of cell and reference
    return True


def _give_back(cell: Inbox, book: Book) -> None:
    for timer in list(book.timers or ()):
        timer.cancel()
    for release in book.names:
        _release(cell, release)


def _release(cell: Inbox, release: Callable[[Inbox], object]) -> None:
    try:
        release(cell)
    except BaseException as error:  # noqa: BLE001 - everybody must be told of the end all the same
        cell.system.emit(Event("stop_failed", repr(cell), Crashed(error)))


def _spread(cell: Inbox, book: Book, reason: ExitReason) -> None:
    if book.deferred:
        for caller in list(book.deferred):
            caller.offer_error(ActorExit(repr(cell), reason))
    if book.kids:
        for kid in list(book.kids):
            kid.parent_ended(reason)
    if book.links:
        _signal_links(cell, book, reason)
    parent = cell.parent
    if parent is not None and book.run is not None:
        parent.put_system(Down(book.run, reason))
    if book.monitors:
        for observer, token in book.monitors.values():
            _tell(token if observer is None else observer, token, reason)
    if parent is not None and parent.book is not None:
        parent.book.kids.pop(cell, None)  # type: ignore[call-overload]  # a Cell is a Kid


def _signal_links(cell: Inbox, book: Book, reason: ExitReason) -> None:
    for other, bond in list(book.links.items()):  # who unlinks now may have the book still
        with cell.system.lock:
            # the other half stays until it handles the signal: unlinking meanwhile cancels it
            known = other.book is not None and other.book.links.get(cell) is bond
        if known:
            other.put_system(ExitSignal(cell, reason, bond))


def _answer_starter(cell: Inbox, book: Book, reason: ExitReason, *, ignored: bool) -> None:
    ack = book.ack
    if ack is None:
        return
    if isinstance(ack, Future):
        if ignored:
            ack.offer(False)
        else:
            ack.offer_error(StartError(cell.name or cell.actor_class.__name__, reason))
    else:
        ack[0].put_system(StartIgnored(ack[1]) if ignored else StartFailed(ack[1], reason))


def _report(cell: Inbox, reason: ExitReason) -> None:
    if isinstance(reason, Crashed):
        cell.system.emit(Event("actor_crashed", repr(cell), reason))
    elif cell.system.watched or not is_quiet(reason):
        cell.system.emit(Event("actor_ended", repr(cell), reason))


def drain(cell: Inbox, reason: ExitReason) -> None:
    """Empty the mailbox of a dead actor: calls get `ActorExit(reason)`, the rest dead letters."""
    queue = cell.q
    while queue:
        try:
            message = queue.popleft()
        except IndexError:
            break
        if type(message) is not Envelope:
            cell.system.dead_letter(cell, message, reason)
        elif message.reply_to is None:
            cell.system.dead_letter(cell, message.message, reason)
        elif isinstance(message.message, _ActorStop):
            message.reply_to.set(None)
        elif isinstance(message.reply_to, Future):
            message.reply_to.offer_error(ActorExit(repr(cell), reason))
        else:
            error = ActorExit(repr(cell), reason)
            message.reply_to.set_exception((type(error), error, None))
    while cell.sysq:
        try:
            order = cell.sysq.popleft()
        except IndexError:
            break
        done = getattr(order, "done", None)
        if isinstance(done, Future):
            done.offer_error(ActorExit(repr(cell), reason))


class _Abandon:
    """Gives an actor up that was killed and did not end in time. A timer's target, then a turn."""

    __slots__ = ("_cell", "_grace")
    lane: Lane = "hi"

    def __init__(self, cell: Inbox, grace: float) -> None:
        self._cell = cell
        self._grace = grace

    def put(self, _message: object) -> None:
        """Come due: carry it out on a worker; on the timers' own thread only if no worker can be had."""
        try:
            self._cell.system.scheduler.submit_lazy(self, here.worker)
        except WorkersExhausted:
            self.turn(here.worker)

    def turn(self, worker: Worker | None) -> None:
        """Give the actor up unless it has ended by now."""
        del worker
        cell = self._cell
        with cell.system.lock:
            holder = cell.holder
            if cell.phase == ENDED:
                return
            if holder is not None:
                cell.busy = allocate_lock()  # a lost slice keeps the old one, for ever
                cell.scheduler.abandon(holder)
            # else a slice is still to come: it finds the actor ended, and lets the lock go
        if finish(cell, KILLED) and holder is not None:
            cell.system.emit(Event("abandoned", repr(cell), KILLED, {"grace": self._grace}))


def kill(cell: Inbox, grace: float) -> None:
    """End the actor of `cell` without asking it; after `grace` seconds give its worker up."""
    cell.put_system(ExitSignal(None, KILLED, kill=True))
    job = cell.job
    if job is not None and job.claim_kill():
        job.interrupt()
    if cell.phase != ENDED:
        owners = cell.timer_set()
        timer = cell.scheduler.timers.add(grace, _Abandon(cell, grace), None, owners=owners)
        if cell.phase == ENDED:
            timer.cancel()


def ignore(cell: Inbox) -> None:
    """End an actor that wants not to run: nobody is told of a failure."""
    with cell.system.lock:
        cell.stopped = True
    finish(cell, NORMAL, ignored=True)


def miscarry(cell: Inbox, reason: ExitReason) -> None:
    """End an actor that no worker could be had for: it never ran."""
    cell.fresh = None
    finish(cell, reason)
    cell.busy.release()  # held since it was made: who sends from now on has dead letters
    drain(cell, reason)


def promise(cell: Inbox, caller: Future[Any]) -> None:
    """Note that `cell` owes `caller` an answer; at its end the caller gets the reason instead."""
    book = cell.pages()
    if book.deferred is None:
        book.deferred = set()
    book.deferred.add(caller)
