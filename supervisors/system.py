"""Actor systems: what actors run in, with their clock, timers, names and hooks."""

from __future__ import annotations

import itertools
import threading
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pykka

from supervisors import death
from supervisors.errors import (
    AlreadyStarted,
    CallTimeout,
    Forked,
    StartError,
    SupervisorsError,
    SystemStopped,
    WorkersExhausted,
)
from supervisors.events import Event, OnDeadLetter, OnEvent, log_event
from supervisors.exits import KILLED, SHUTDOWN, Abnormal, Crashed, ExitReason
from supervisors.fork import refuse, watch
from supervisors.future import Future
from supervisors.given import cell_of, delay_of, lane_of, name_of, reason_of
from supervisors.inbox import ENDED, Book, Inbox, Name
from supervisors.kill import shield
from supervisors.limits import Closable, Limits
from supervisors.mailbox import Cell, Ignore
from supervisors.pool import PoolScheduler
from supervisors.ref import ActorRef, ListedRef, StopRequest, join
from supervisors.scheduler import Scheduler, Statistics, here

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType

    from supervisors.actor import Execution
    from supervisors.clock import Clock
    from supervisors.task import TaskActor
    from supervisors.timers import TimerRef

__all__ = ["ActorSystem", "Limits"]

A = TypeVar("A", bound=pykka.Actor)
T = TypeVar("T", bound="TaskActor")
R = TypeVar("R", bound=Closable)


class ActorSystem:
    """Runs actors. A context manager: leaving it ends all actors and workers.

    Starts no OS thread before its first actor or timer.

    Args:
        scheduler: what runs the actors; a `PoolScheduler` of its own by default
        clock: the time; by default the scheduler's choice: the machine's, or a virtual one
        on_event: called with each `Event`, on the worker where it happens; by default they are
            logged to the logger `supervisors`
        on_dead_letter: called with the actor (as text), the message and the exit reason for
            each message that nobody will handle; without it `on_event` hears of them (`dead_letter`)
        limits: what bounds the system

    Example:
        >>> from supervisors import Actor, ActorSystem
        >>> class Echo(Actor):
        ...     def on_receive(self, message):
        ...         return message
        >>> with ActorSystem() as system:
        ...     system.start(Echo).ask("hello", timeout=5)
        'hello'
    """

    def __init__(
        self,
        scheduler: Scheduler | None = None,
        *,
        clock: Clock | None = None,
        on_event: OnEvent | None = None,
        on_dead_letter: OnDeadLetter | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Make a system without threads."""
        self.scheduler: Scheduler = PoolScheduler() if scheduler is None else scheduler
        self.clock: Clock = self.scheduler.start(clock)
        self.limits = Limits() if limits is None else limits
        self.lock = threading.Lock()
        self.watched = on_event is not None
        self._on_event: OnEvent = log_event if on_event is None else on_event
        self._on_dead_letter = on_dead_letter
        self._names: dict[str, Cell] = {}
        self._roots: dict[Cell, None] = {}
        self._numbers = itertools.count(1)
        self._making = threading.Lock()
        self._stopped = False
        self.lost = False
        self._resources: dict[object, Closable] = {}
        self.scheduler.watch(self.limits.slow_handler, self._report_slow)
        watch(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()

    # Starting

    def start(
        self,
        actor_class: type[A],
        *args: Any,
        name: str | Name | None = None,
        link: ActorRef[Any] | Cell | None = None,
        monitor: tuple[Cell, object] | None = None,
        timeout: float | None = None,
        register: bool = False,
        **kwargs: Any,
    ) -> ActorRef[A]:
        """Start an actor and wait until its `on_start` has succeeded.

        Args:
            actor_class: a subclass of `supervisors.Actor`
            *args: for its `__init__`, which runs in the actor's own first slice
            name: a name in this system, or a `Via`; free again when the actor has ended
            link: an actor to tie its life to, once it runs
            monitor: a cell and a token: told by `Down(token, reason)` of its end, once it runs
            timeout: seconds that the start may take; `limits.start_timeout` by default
            register: also enter it in pykka's process-wide `ActorRegistry`
            **kwargs: for its `__init__`

        Returns:
            the reference

        Raises:
            StartError: it failed or took too long; it is dead and its name free by then
            AlreadyStarted: the name belongs to a living actor
            Ignore: the actor wants not to run
            SystemStopped: the system was shut down
        """
        seconds = self.limits.start_timeout if timeout is None else timeout
        other = None if link is None else cell_of(link)
        cell = self.make(actor_class, args, kwargs, name=name)
        started: Future[bool] = Future(self.scheduler)
        book = cell.pages()
        book.ack = started
        if other is not None:
            book.ties += (partial(death.link, cell, other),)
        if monitor is not None:
            book.ties += (partial(death.monitor, cell, *monitor),)
        if register:
            book.ties += (partial(self._register, cell),)
        self.launch(cell)
        try:
            running = started.get(timeout=seconds)
        except CallTimeout:
            self._end_now(cell)
            reason = Abnormal(f"its start took more than {seconds} s")
            raise StartError(name or actor_class.__name__, reason) from None
        if not running:
            raise Ignore(f"{actor_class.__name__} wants not to run")
        return cell.ref

    def _end_now(self, cell: Inbox) -> None:
        ended: Future[bool] = Future(self.scheduler)
        if join(cell, ended):
            death.kill(cell, self.limits.kill_grace)
            ended.get()

    def _register(self, cell: Cell) -> None:
        listed = ListedRef(cell)
        pykka.ActorRegistry.register(listed)
        cell.pages().names += (lambda _: pykka.ActorRegistry.unregister(listed),)

    def spawn(
        self,
        actor_class: type[A],
        *args: Any,
        name: str | Name | None = None,
        link: ActorRef[Any] | Cell | None = None,
        monitor: tuple[Cell, object] | None = None,
        **kwargs: Any,
    ) -> Cell:
        """Start an actor and do not wait. Links and monitors stand before it can end.

        Args:
            actor_class: a subclass of `supervisors.Actor`
            *args: for its `__init__`
            name: a name in this system, or a `Via`
            link: an actor to tie its life to
            monitor: a cell and a token: it gets exactly one `Down(token, reason)`, also if
                `__init__` or `on_start` fails
            **kwargs: for its `__init__`

        Returns:
            the cell; `cell.ref` is the reference

        Raises:
            AlreadyStarted: the name belongs to a living actor
            SystemStopped: the system was shut down
        """
        other = None if link is None else cell_of(link)
        cell = self.make(actor_class, args, kwargs, name=name)
        if other is not None:
            death.link(cell, other)
        if monitor is not None:
            death.monitor(cell, *monitor)
        self.launch(cell)
        return cell

    def make(
        self,
        actor_class: type[pykka.Actor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        name: str | Name | None = None,
        parent: Cell | None = None,
    ) -> Cell:
        """Make the cell of an actor that is not runnable yet: for supervisors. See `launch`."""
        if self._stopped:
            raise self._refusal(actor_class)
        kind: Any = actor_class
        cell = Cell(self, actor_class, lane_of(kind), next(self._numbers))
        cell.busy.acquire()  # so that messages to its name do not run it before it is launched
        cell.fresh = (args, kwargs)
        if parent is not None:  # it will need a book, and now nobody else can make one
            cell.parent, cell.book = parent, Book()
        if kind.isolated:
            cell.context = Context()
        if kind.execution != "pooled":
            self.place(cell, kind.execution)
        if name is not None or parent is None:
            with shield():
                self._enter(cell, name)
        return cell

    def _enter(self, cell: Cell, name: str | Name | None) -> None:
        if name is not None:
            cell.name = name
            if not isinstance(name, str):
                name_of(name).claim(cell)
            elif (holder := self._names.setdefault(name, cell)) is not cell:
                raise AlreadyStarted(holder.ref, name)
        if cell.parent is None:
            self._roots[cell] = None

    def _refusal(self, kind: type) -> SupervisorsError:
        if self.lost:
            return Forked(
                f"cannot start {kind.__name__} in a forked process: make a new ActorSystem"
            )
        return SystemStopped(f"cannot start {kind.__name__}: the system was shut down")

    def place(self, cell: Cell, execution: Execution) -> None:
        """Say what runs a made actor that is not launched yet: for supervisors."""
        home = self.scheduler
        cell.scheduler = home if execution == "pooled" else home.dedicated()

    def launch(self, cell: Cell) -> None:
        """Make a made actor runnable: its first slice runs `__init__` and `on_start`.

        Raises:
            WorkersExhausted: it was to have a thread of its own, and there is none; it has ended by then
        """
        worker = here.worker
        try:
            if worker is not None and worker.job is not None:
                with shield():
                    cell.scheduler.submit(cell, worker)
            else:
                cell.scheduler.submit(cell, worker)
        except SupervisorsError as error:
            death.miscarry(cell, Crashed(error))
            raise

    def spawn_task(
        self,
        task_class: type[T],
        *args: Any,
        owner: Cell,
        token: object,
        context: Context | None = None,
        inject: bool = True,
        **kwargs: Any,
    ) -> T:
        """Start a task: `run()` of a `TaskActor`, on any worker, under the kill protocol.

        Args:
            task_class: a subclass of `TaskActor`
            *args: for its `__init__`, which runs here and now
            owner: gets exactly one of `TaskDone`, `TaskFailed` and `Down`, each with `token`;
                when it ends, the task is killed
            token: identifies the task to its owner
            context: the context in which `run()` runs; an empty one by default
            inject: whether a kill may interrupt `run()` by an asynchronous exception
            **kwargs: for its `__init__`

        Returns:
            the task, to `kill()`

        Raises:
            WorkersExhausted: too many workers hang in tasks that were killed
            SystemStopped: the system was shut down
        """
        if self._stopped:
            raise self._refusal(task_class)
        if self.scheduler.abandoned >= self.limits.max_abandoned:
            raise WorkersExhausted(
                f"{self.scheduler.abandoned} workers hang in killed tasks, as many as "
                "limits.max_abandoned allows: restart the process, or find what they hang in"
            )
        task = task_class(*args, **kwargs)
        worker = here.worker
        try:
            if worker is not None and worker.job is not None:
                with shield():
                    task.enter(self, owner, token, context, inject)
                    self.scheduler.submit(task, worker)  # pyright: ignore[reportArgumentType]
            else:
                task.enter(self, owner, token, context, inject)
                # pyright wants no class variable where a protocol has a property
                self.scheduler.submit(task, worker)  # pyright: ignore[reportArgumentType]
        except SupervisorsError:
            task.leave()
            raise
        return task

    # Signals and monitors

    def exit(self, actor: ActorRef[Any] | Cell, reason: ExitReason) -> None:
        """Send an exit signal, as OTP's `exit/2`.

        `KILLED` ends the actor at once, without `on_stop`. Another reason comes to `on_signal` if
        the actor traps exits; otherwise it ends for that reason, except that `NORMAL` from another
        does nothing. To stop a supervisor, or to wait for the end, use `ActorRef.stop`.
        """
        cell = cell_of(actor)
        with shield():
            if reason_of(reason) == KILLED:
                death.kill(cell, self.limits.kill_grace)
                return
            worker = here.worker
            sender = worker.cell if worker is not None else None
            cell.put_system(death.ExitSignal(sender if isinstance(sender, Inbox) else None, reason))

    def monitor_from_outside(self, actor: ActorRef[Any] | Cell) -> Future[ExitReason]:
        """Return a future of the reason for which the actor ends."""
        future: Future[ExitReason] = self.future()
        cell = cell_of(actor)
        with shield():
            death.monitor(cell, future, None)
        return future

    def whereis(self, name: str) -> ActorRef[Any] | None:
        """Return the actor that has `name`, or None."""
        cell = self._names.get(name)
        return None if cell is None or cell.phase == ENDED else cell.ref

    # Time, waiting

    def send_after(self, delay: float, target: ActorRef[Any] | Cell, message: object) -> TimerRef:
        """Send `message` in `delay` seconds. The timer ends with its target.

        Returns:
            the timer; `cancel()` takes it back
        """
        return self._add_timer(delay, target, message, None)

    def send_every(
        self, interval: float, target: ActorRef[Any] | Cell, message: object
    ) -> TimerRef:
        """Send `message` each `interval` seconds; ticks that were missed are not made up."""
        return self._add_timer(interval, target, message, interval)

    def _add_timer(
        self,
        delay: float,
        target: ActorRef[Any] | Cell,
        message: object,
        every: float | None,
    ) -> TimerRef:
        cell = cell_of(target)
        with shield():
            timer = self.scheduler.timers.add(
                delay_of(delay), cell, message, every=every, owners=cell.timer_set()
            )
            if cell.phase == ENDED:
                timer.cancel()
        return timer

    def future(self) -> Future[Any]:
        """Return a pending future for whoever will set it."""
        return Future(self.scheduler)

    def blocking(self) -> AbstractContextManager[None]:
        """Declare that the calling worker blocks inside (I/O, a disk sync): another takes over."""
        return self.scheduler.blocking()

    # Hooks

    def emit(self, event: Event) -> None:
        """Report `event` to the hook; what the hook raises is logged."""
        try:
            self._on_event(event)
        except Exception as error:  # noqa: BLE001 - the program's hook must not end an actor
            log_event(Event("hook_failed", event.actor, detail={"error": repr(error)}))

    def dead_letter(self, cell: Inbox, message: object, reason: ExitReason) -> None:
        """Report a message that nobody will handle: to its own hook, else as an event."""
        if self._on_dead_letter is None:
            if self.watched:
                kind = type(message).__name__
                self.emit(Event("dead_letter", repr(cell), reason, {"message": kind}))
            return
        try:
            self._on_dead_letter(repr(cell), message, reason)
        except Exception as error:  # noqa: BLE001 - the program's hook must not end an actor
            log_event(Event("hook_failed", repr(cell), detail={"error": repr(error)}))

    def forget(self, cell: Inbox) -> None:
        """Free the name of an actor that ends."""
        if isinstance(cell.name, str) and self._names.get(cell.name) is cell:
            del self._names[cell.name]
        if cell.parent is None:
            self._roots.pop(cell, None)  # type: ignore[call-overload]  # only cells are made here

    def _report_slow(self, item: object, seconds: float, stack: str) -> None:
        if isinstance(item, Inbox):
            self.emit(
                Event("slow_handler", repr(item), detail={"seconds": seconds, "stack": stack})
            )

    # The whole

    def resource(self, make: Callable[[ActorSystem], R]) -> R:
        """Return what `make(self)` gave at its first use; `shutdown` calls its `close()`."""
        with self._making:
            found = self._resources.get(make)
            if found is None:
                if self._stopped:
                    raise SystemStopped("the system was shut down")
                found = self._resources[make] = make(self)
        made: Any = found
        return made  # type: ignore[no-any-return]  # it is what `make` gave

    def forked(self) -> None:
        """Refuse everything: this process is a fork, and the workers stayed in its parent."""
        if self.scheduler.forked():
            self._stopped = self.lost = True
            refuse([ref.cell for ref in self.roots()])
            self.lock = threading.Lock()
            here.worker = None

    def statistics(self) -> Statistics:
        """Return what the scheduler is doing now."""
        return self.scheduler.statistics()

    def roots(self) -> list[ActorRef[Any]]:
        """Return the living actors without a supervisor, in the order of their starts."""
        return [cell.ref for cell in list(self._roots)]

    def names(self) -> list[str]:
        """Return the names that are taken."""
        return list(self._names)

    def shutdown(self, timeout: float = 10.0) -> bool:
        """End all actors in the reverse order of their starts, then all workers. Idempotent.

        Args:
            timeout: seconds for all of it; then actors are killed, and their workers abandoned

        Returns:
            whether every worker ended
        """
        if self.lost:
            return True
        deadline = self.clock.monotonic() + timeout
        for ref in reversed(self.roots()):
            ended: Future[bool] = Future(self.scheduler)
            if join(ref.cell, ended):
                ref.cell.put_system(StopRequest(SHUTDOWN))
            try:
                ended.get(timeout=max(deadline - self.clock.monotonic(), 0))
            except CallTimeout:
                self._end_now(ref.cell)
        self._stopped = True
        for ref in reversed(self.roots()):  # started meanwhile
            self._end_now(ref.cell)
        closed = [resource.close() for resource in self._resources.values()]
        self._resources.clear()
        return self.scheduler.shutdown(max(deadline - self.clock.monotonic(), 1.0)) and all(closed)
