"""The mailbox, stopped flag and run flag of an actor, in one slotted object.

`Inbox` is what pykka calls `actor_inbox` and `actor_stopped`, both at once. `mailbox.Cell` completes
it: only that class is instantiated.

The wake-up rule: a sender appends and then tries the run flag (`busy`); a worker frees the flag and
then reads the queue again. Whoever takes the flag makes the cell runnable, so no message is ever
left in a mailbox that nobody looks at, without a lock for each message.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from supervisors.cancel import CancelToken
from supervisors.kill import shield
from supervisors.scheduler import here

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from contextvars import Context

    from supervisors.clock import Clock
    from supervisors.events import Event
    from supervisors.exits import ExitReason
    from supervisors.future import Future
    from supervisors.kill import Job
    from supervisors.scheduler import Lane, Scheduler, Worker
    from supervisors.signals import Down, Exit
    from supervisors.timers import TimerRef

__all__ = [
    "CLOSING",
    "ENDED",
    "RUNNING",
    "STARTING",
    "SUSPENDED",
    "WAITS",
    "Book",
    "Hooks",
    "Inbox",
    "Kid",
    "Name",
    "Services",
]

STARTING, RUNNING, CLOSING, ENDED = range(4)
"""The phases of an actor's life."""

WAITS, SUSPENDED = 1, 2
"""Why ordinary messages are held: the actor waits for something of its own; `control.suspend`."""


class Hooks(Protocol):
    """What a cell calls on its actor (`supervisors.Actor` implements it)."""

    trap_exit: bool
    _acknowledges: bool

    def on_start(self) -> None: ...  # noqa: D102 - described by Actor
    def on_continue(self, term: Any, /) -> None: ...  # noqa: D102
    def on_receive(self, message: Any, /) -> Any: ...  # noqa: D102
    def on_signal(self, signal: Exit | Down, /) -> None: ...  # noqa: D102
    def on_stop(self, reason: ExitReason, /) -> None: ...  # noqa: D102
    def _system(self, message: Any, /) -> bool: ...
    def _end(self, reason: ExitReason, /) -> None: ...


class Services(Protocol):
    """What a cell needs of its system (`supervisors.ActorSystem` implements it)."""

    scheduler: Scheduler
    clock: Clock
    lock: threading.Lock
    watched: bool
    lost: bool  # this process is a fork, and the workers are in its parent

    def dead_letter(self, cell: Inbox, message: object, reason: ExitReason, /) -> None: ...  # noqa: D102
    def emit(self, event: Event, /) -> None: ...  # noqa: D102
    def forget(self, cell: Inbox, /) -> None: ...  # noqa: D102


class Kid(Protocol):
    """Something that ends with its parent: an actor's cell, or a task."""

    def parent_ended(self, reason: ExitReason, /) -> None:
        """End: the parent did, for `reason`."""
        ...


class Name(Protocol):
    """A name elsewhere than in the system's own table: `supervisors.Via`."""

    def claim(self, cell: Inbox, /) -> None:
        """Give the name to `cell`, or raise `AlreadyStarted`."""
        ...


class _Nothing(dict[Any, Any]):
    """The table of all that have no entries: most actors, for whom an own one is too much memory."""

    def __setitem__(self, key: object, value: object) -> None:
        raise TypeError("make a table first: nobody owns this one")


NOTHING: dict[Any, Any] = _Nothing()
"""What `Book`'s tables are until they are needed; whoever adds to one makes it, under the system's lock."""


class Book(msgspec.Struct, eq=False):
    """What only some actors need.

    Attributes:
        links: linked cells, each with what identifies the link
        monitors: who is told of the end
        kids: what ends with this actor
        timers: messages to it that are pending
        deferred: callers that were promised an answer
        joiners: who waits for the end, and for which; None: for any
        names: what frees each name, given the cell
        run: by what its supervisor knows it, and hears of its end; None without one
        ack: who waits for the start
        ties: links and monitors to be made when the start has succeeded
        token: what its handlers may look at, to know that it is to end
    """

    links: dict[Inbox, object] = NOTHING
    monitors: dict[object, tuple[Inbox | None, Any]] = NOTHING
    kids: dict[Kid, None] = NOTHING
    timers: set[TimerRef] | None = None
    deferred: set[Future[Any]] | None = None
    joiners: tuple[tuple[Future[Any], ExitReason | None], ...] = ()
    names: tuple[Callable[[Inbox], object], ...] = ()
    run: object = None
    ack: Future[Any] | tuple[Inbox, object] | None = None
    ties: tuple[Callable[[], object], ...] = ()
    token: CancelToken | None = None

    __repr__ = object.__repr__  # it refers to those who refer to it


class Inbox:
    """The mailbox of an actor; see the module.

    Attributes:
        actor: the actor, or None before it is made and after it has ended
        actor_class: its class
        q: messages; `sysq` holds the system's messages, which go first
        busy: the run flag
        stopped: it takes no more messages
        phase: STARTING, RUNNING, CLOSING or ENDED
        reason: why it ends, once that is known
        parent: the cell that supervises it, or None
        name: its name, or None
        holder: the worker that runs its slice now, or None
        held: why ordinary messages wait while only the system's are served; 0: they do not
        number: its place in the order of starts
    """

    __slots__ = ("__weakref__", "_ref", "actor", "actor_class", "after", "book", "busy", "context",
                 "fresh", "held", "holder", "job", "lane", "name", "number", "parent", "phase", "q", "reason",
                 "reply", "scheduler", "stopped", "sysq", "system")  # fmt: skip

    def __init__(self, system: Services, actor_class: type, lane: Lane, number: int) -> None:
        """Make the mailbox of an actor of `actor_class` that is not running yet."""
        self.system = system
        self.scheduler = system.scheduler
        self.actor_class: Any = actor_class  # a subclass of Actor, which this cannot name
        self.lane: Lane = lane
        self.number = number
        self.q: deque[Any] = deque()
        self.busy = allocate_lock()
        self.sysq: deque[Any] | None = None
        self.actor: Hooks | None = None
        self.fresh: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self.stopped = False
        self.phase = STARTING
        self.reason: ExitReason | None = None
        self.parent: Inbox | None = None
        self.name: str | Name | None = None
        self.book: Book | None = None
        self.reply: Future[Any] | None = None
        self.after: deque[Any] | None = None
        self.held = 0
        self.holder: Worker | None = None
        self.job: Job | None = None
        self.context: Context | None = None
        self._ref: Any = None

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name is not None else ""
        return f"<{self.actor_class.__name__}{name} #{self.number}>"

    def turn(self, worker: Worker) -> None:
        """Run one slice on `worker`."""
        raise NotImplementedError

    def put(self, message: object) -> None:
        """Send `message`, from anywhere. Never waits, never fails; the dead have dead letters."""
        worker = here.worker
        if worker is not None and worker.job is not None:
            with shield():
                self._put(message, worker)
            return
        self.q.append(message)
        if self.busy.acquire(False):
            self.scheduler.submit(self, worker)

    def _put(self, message: object, worker: Worker) -> None:
        self.q.append(message)
        if self.busy.acquire(False):
            self.scheduler.submit(self, worker)

    def put_lazy(self, message: object, worker: Worker) -> None:
        """Send `message` from framework code on `worker`; the receiver waits its turn."""
        self.q.append(message)
        if self.busy.acquire(False):
            self.scheduler.submit_lazy(self, worker)

    def put_system(self, message: object) -> None:
        """Send a message of the system's: it goes before all ordinary ones."""
        worker = here.worker
        if worker is not None and worker.job is not None:
            with shield():
                self._put_system(message, worker)
        else:
            self._put_system(message, worker)

    def _put_system(self, message: object, worker: Worker | None) -> None:
        queue = self.sysq
        if queue is None:
            with self.system.lock:
                queue = self.sysq
                if queue is None:
                    queue = self.sysq = deque()
        queue.append(message)
        book = self.book
        if book is not None and book.token is not None and self.ends_by(message):
            book.token.cancel()
        if self.busy.acquire(False):
            self.scheduler.submit(self, worker)

    def ends_by(self, message: object) -> bool:
        """Tell whether this actor will end by the system message `message`."""
        raise NotImplementedError

    def cancel_token(self) -> CancelToken:
        """Return the token that is cancelled when the actor is to end; made at first use."""
        book = self.pages()
        token = book.token
        if token is None:
            token = book.token = CancelToken(self.system)
            waiting = tuple(self.sysq or ())  # a copy, for others send meanwhile
            if self.phase > RUNNING or any(self.ends_by(message) for message in waiting):
                token.cancel()
        return token

    def pages(self) -> Book:
        """Return the book, made at first use."""
        book = self.book
        if book is None:
            with self.system.lock:
                book = self.book
                if book is None:
                    book = self.book = Book()
        return book

    def nursery(self) -> dict[Kid, None]:
        """Return what ends with this actor, to add to; made at first use."""
        book = self.pages()
        if book.kids is NOTHING:
            with self.system.lock:
                if book.kids is NOTHING:
                    book.kids = {}
        return book.kids

    def timer_set(self) -> set[TimerRef]:
        """Return the pending timers of this actor, to add to; made at first use."""
        book = self.pages()
        if book.timers is None:
            with self.system.lock:
                if book.timers is None:
                    book.timers = set()
        return book.timers

    # What pykka asks of an inbox and of a stopped event.

    def get(self) -> Any:
        """Take the oldest message (pykka's inbox protocol; the scheduler does not use it)."""
        return self.q.popleft()

    def empty(self) -> bool:
        """Tell whether no ordinary message waits."""
        return not self.q

    def is_set(self) -> bool:
        """Tell whether the actor takes no more messages (pykka's `actor_stopped`)."""
        return self.stopped

    def set(self) -> None:
        """Refuse messages from now on (pykka's `actor_stopped`)."""
        self.stopped = True
