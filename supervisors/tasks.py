"""Task supervisors: functions that run on the side, awaited, watched, or shut down.

Elixir's `Task.Supervisor`: `run_linked` is its `async`, `run` its `async_nolink`, `start` its
`start_child`. The idiom for a call with a time limit is

    result = task.yield_(timeout) or task.shutdown()

which gives the value also if it came in the very moment of the shutdown, and otherwise ends the task.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from contextvars import Context, copy_context
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

from supervisors.actor import Actor
from supervisors.death import ExitSignal
from supervisors.errors import ActorExit, CallTimeout, InvalidSpec, MaxChildren, NoProc
from supervisors.events import Event
from supervisors.exits import KILLED, Crashed, ExitReason
from supervisors.inbox import ENDED, Inbox
from supervisors.kill import shield
from supervisors.scheduler import here
from supervisors.signals import Down, TaskDone, TaskEnded, TaskFailed
from supervisors.task import TaskActor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from supervisors.future import Future
    from supervisors.mailbox import Cell
    from supervisors.ref import ActorRef
    from supervisors.signals import Exit
    from supervisors.system import ActorSystem

__all__ = ["Failed", "Ok", "Task", "TaskSupervisor", "Tasks"]

T = TypeVar("T")


class Ok(msgspec.Struct, frozen=True):
    """A task returned `value`."""

    value: Any


class Failed(msgspec.Struct, frozen=True):
    """A task ended without a value, for `reason`."""

    reason: ExitReason


Outcome: TypeAlias = Ok | Failed


class _Call(TaskActor):
    """A function with its arguments, as a task."""

    def __init__(
        self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._call = call
        self._args = args
        self._kwargs = kwargs

    def run(self) -> Any:
        return self._call(*self._args, **self._kwargs)


class Task(Generic[T]):
    """A function that runs on the side. Made by a `Tasks`."""

    def __init__(self, tasks: Tasks, caller: Inbox | None) -> None:
        """Make the handle of a task of `tasks`; `caller` is tied to it if it is given."""
        self._tasks = tasks
        self._caller = caller
        self._outcome: Future[Outcome] = tasks.system.future()
        self._body: _Call | None = None

    def await_(self, timeout: float | None = 5.0) -> T:
        """Wait for the value and return it.

        Args:
            timeout: seconds; None waits for ever. A linked task ends when it passes

        Raises:
            CallTimeout: no value in time
            ActorExit: the task was killed
            BaseException: what the function raised
        """
        try:
            outcome = self._outcome.get(timeout=timeout)
        except CallTimeout:
            if self._caller is not None:
                self.shutdown()
            raise
        if isinstance(outcome, Ok):
            value: T = outcome.value
            return value
        if isinstance(outcome.reason, Crashed):
            raise outcome.reason.error
        raise ActorExit(self, outcome.reason)

    def yield_(self, timeout: float | None = 5.0) -> Outcome | None:
        """Return `Ok(value)` or `Failed(reason)`, or None if it still runs after `timeout`."""
        try:
            return self._outcome.get(timeout=timeout)
        except CallTimeout:
            return None

    def shutdown(self, grace: float | Literal["brutal_kill"] | None = None) -> Outcome | None:
        """End the task; return its outcome if it had one first, else None.

        Args:
            grace: seconds until a body that hangs is given up; by default, and for
                `"brutal_kill"`, as the system's `limits.kill_grace` says
        """
        if not self._outcome.done() and self._body is not None:
            self._body.kill(grace if isinstance(grace, int | float) else None)
        outcome = self._outcome.get()
        return None if outcome == Failed(KILLED) else outcome

    def done(self) -> bool:
        """Tell whether there is an outcome."""
        return self._outcome.done()

    def _settle(self, outcome: Outcome) -> None:
        self._outcome.offer(outcome)
        caller = self._caller
        if caller is not None and isinstance(outcome, Failed) and outcome.reason != KILLED:
            caller.put_system(ExitSignal(self._tasks.cell, outcome.reason))

    def _begin(self, body: _Call) -> None:
        self._body = body


class Tasks:
    """Runs functions as tasks of a `TaskSupervisor`, from actors and plain code alike.

    Args:
        supervisor: the reference of a started `TaskSupervisor`

    Example:
        >>> from supervisors import ActorSystem
        >>> with ActorSystem() as system:
        ...     tasks = Tasks(system.start(TaskSupervisor))
        ...     tasks.run(pow, 2, 10).await_()
        1024
    """

    def __init__(self, supervisor: ActorRef[Any]) -> None:
        """Run tasks under `supervisor`."""
        actor = supervisor.cell.actor
        if not isinstance(actor, TaskSupervisor):
            raise InvalidSpec("supervisor", supervisor, "give the reference of a TaskSupervisor")
        self._actor = actor
        self.cell: Cell = actor.cell
        self.system = actor.system

    def run(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> Task[T]:
        """Run `call(*args, **kwargs)`; its failure is the handle's to tell (`async_nolink`).

        Raises:
            MaxChildren: there are as many tasks as there may be
            NoProc: the supervisor has ended
        """
        task: Task[T] = Task(self, None)
        self._actor.launch(task, call, args, kwargs)
        return task

    def run_linked(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> Task[T]:
        """Run `call(*args, **kwargs)` tied to the calling actor: neither outlives a failure.

        From plain code, which cannot be ended, it is the same as `run`.
        """
        worker = here.worker
        caller = None if worker is None else worker.cell
        task: Task[T] = Task(self, caller if isinstance(caller, Inbox) else None)
        self._actor.launch(task, call, args, kwargs)
        return task

    def start(self, call: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        """Run `call(*args, **kwargs)` and forget it; a failure is reported as an event."""
        self._actor.launch(None, call, args, kwargs)

    def __len__(self) -> int:
        """Return how many tasks run."""
        return len(self._actor.running)

    def stream(
        self,
        call: Callable[[Any], T],
        items: Iterable[Any],
        *,
        max_concurrency: int = 8,
        ordered: bool = True,
        timeout: float | None = 5.0,
        on_timeout: Literal["exit", "kill_task"] = "exit",
    ) -> Iterator[Outcome]:
        """Run `call(item)` for each item, some at a time, and yield the outcomes.

        Args:
            call: the function
            items: read as tasks end, so it may be endless
            max_concurrency: how many run at a time
            ordered: yield in the order of the items; otherwise as they end
            timeout: seconds that each may take from its start
            on_timeout: `"exit"` raises `CallTimeout`, `"kill_task"` yields `Failed(KILLED)`

        Yields:
            `Ok(value)` or `Failed(reason)`

        What still runs when the reader stops reading is killed.
        """
        if max_concurrency < 1:
            raise InvalidSpec("max_concurrency", max_concurrency, "give 1 or more")
        waiting: deque[tuple[Task[T], float]] = deque()
        arrivals = None if ordered else _Arrivals(self.system)
        source = iter(items)
        try:
            while True:
                for item in itertools.islice(source, max_concurrency - len(waiting)):
                    task = self.run(call, item)
                    waiting.append((task, inf if timeout is None else self._now() + timeout))
                    if arrivals is not None:
                        arrivals.expect(task)
                if not waiting:
                    return
                if arrivals is not None:
                    self._bring_forward(waiting, arrivals)
                yield self._next_outcome(waiting, kill=on_timeout == "kill_task")
        finally:
            for task, _ in waiting:
                task.shutdown()

    def _now(self) -> float:
        return self.system.clock.monotonic()

    def _next_outcome(self, waiting: deque[tuple[Task[T], float]], *, kill: bool) -> Outcome:
        task, end = waiting.popleft()
        outcome = task.yield_(max(end - self._now(), 0))
        if outcome is not None:
            return outcome
        if not kill:
            waiting.append((task, end))
            raise CallTimeout("a task of the stream took too long")
        return task.shutdown() or Failed(KILLED)

    def _bring_forward(self, waiting: deque[tuple[Task[T], float]], arrivals: _Arrivals) -> None:
        """Move the task that ended first to the front, or the one whose time is over first."""
        soonest = min(end for _, end in waiting)
        arrived = arrivals.next(max(soonest - self._now(), 0))
        for number, (task, end) in enumerate(waiting):
            if task is arrived or (arrived is None and end == soonest):
                waiting.rotate(-number)
                return


class _Arrivals:
    """The tasks of a stream in the order of their ends."""

    def __init__(self, system: ActorSystem) -> None:
        self._system = system
        self._ended: deque[Task[Any]] = deque()
        self._news: Future[bool] = system.future()

    def expect(self, task: Task[Any]) -> None:
        task._outcome.add_done_callback(partial(self._arrive, task))  # noqa: SLF001 - its stream

    def _arrive(self, task: Task[Any], _outcome: object) -> None:
        self._ended.append(task)
        self._news.offer(True)

    def next(self, timeout: float) -> Task[Any] | None:
        """Return the next that has ended; None if none does within `timeout` seconds."""
        if not self._ended:
            self._news = self._system.future()
            if not self._ended:  # read again: one may have told the future before
                try:
                    self._news.get(timeout=timeout)
                except CallTimeout:
                    return None
        return self._ended.popleft()


class TaskSupervisor(Actor):
    """Owns tasks: when it ends, they are killed. Use it through `Tasks`.

    Args:
        max_children: how many tasks may run at a time; None for no limit
        copy_context: whether a task runs in a copy of its caller's context variables
    """

    isolated = False

    def __init__(self, max_children: int | None = None, *, copy_context: bool = True) -> None:
        """Check the limit."""
        if max_children is not None and max_children < 0:
            raise InvalidSpec("max_children", max_children, "give 0 or more, or None for no limit")
        self.max_children = max_children
        self.running: dict[object, Task[Any] | None] = {}
        self._copy_context = copy_context
        self._lock = threading.Lock()
        self._ends: dict[object, Callable[[], object]] = {}

    def on_start(self) -> None:
        """See to it that nobody waits for a supervisor that has ended."""
        self.cell.pages().names += (lambda _: self._lost(),)

    def launch(
        self,
        task: Task[Any] | None,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Start a task, from any thread: for `Tasks`."""
        if self.cell.phase == ENDED or self.cell.stopped:
            raise NoProc(self.cell.ref)
        token: object = object()
        with shield():
            with self._lock:
                if self.max_children is not None and len(self.running) >= self.max_children:
                    raise MaxChildren(self, self.max_children)
                self.running[token] = task
            context: Context | None = copy_context() if self._copy_context else None
            try:
                body = self.system.spawn_task(
                    _Call, call, args, kwargs, owner=self.cell, token=token, context=context
                )
            except BaseException:  # it never ran, so nothing will take it off the list
                with self._lock:
                    self.running.pop(token, None)
                raise
            if task is not None:
                task._begin(body)  # noqa: SLF001 - two halves of one thing
                caller = task._caller  # noqa: SLF001
                if caller is not None:
                    caller.nursery()[body] = None  # it ends with its caller, too
                    self._ends[token] = lambda: _drop(caller, body)
                    if caller.phase == ENDED:
                        body.kill()
            if self.cell.phase == ENDED:
                self._lost()

    def on_receive(self, message: Any) -> Any:
        """Hear of results."""
        if type(message) is TaskDone:
            self._settle(message.token, Ok(message.value))
        elif type(message) is TaskFailed:
            self._settle(message.token, Failed(Crashed(message.error)))
        elif type(message) is not TaskEnded:
            return super().on_receive(message)
        return None

    def on_signal(self, signal: Exit | Down) -> None:
        """Hear of kills."""
        if isinstance(signal, Down) and signal.token in self.running:
            self._settle(signal.token, Failed(signal.reason))
        else:
            super().on_signal(signal)

    def _lost(self) -> None:
        """Tell who waits that the supervisor has ended, in whatever way."""
        for token in list(self.running):
            self._settle(token, Failed(self.cell.reason or KILLED))

    def _settle(self, token: object, outcome: Outcome) -> None:
        with self._lock:
            task = self.running.pop(token, None)
        end = self._ends.pop(token, None)
        if end is not None:
            end()
        if task is not None:
            task._settle(outcome)  # noqa: SLF001 - two halves of one thing
        elif isinstance(outcome, Failed):
            self._report(outcome.reason)

    def _report(self, reason: ExitReason) -> None:
        self.system.emit(Event("task_failed", repr(self.cell), reason))


def _drop(caller: Inbox, body: _Call) -> None:
    book = caller.book
    if book is not None:
        book.kids.pop(body, None)
