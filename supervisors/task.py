"""Tasks: one body each, run once on any worker, killable; the owner gets exactly one result."""

from __future__ import annotations

from contextvars import Context
from time import sleep
from typing import TYPE_CHECKING, Any, ClassVar

from supervisors.actor import Actor
from supervisors.cancel import CancelToken
from supervisors.errors import WorkersExhausted
from supervisors.events import Event
from supervisors.exits import KILLED, ExitReason
from supervisors.inbox import ENDED, NOTHING
from supervisors.kill import Job, shield
from supervisors.scheduler import here
from supervisors.signals import Down, TaskDone, TaskEnded, TaskFailed

if TYPE_CHECKING:
    from supervisors.mailbox import Cell
    from supervisors.scheduler import Lane, Releasable, Worker
    from supervisors.system import ActorSystem
    from supervisors.timers import TimerRef

__all__ = ["TaskActor"]


class TaskActor(Actor, Job):
    """A task. Subclass it, write `run()`, start it by `ActorSystem.spawn_task`.

    It is a one-shot actor without a mailbox: the object is cell, actor and kill protocol in one,
    because a graph makes one for each node that it runs. Its owner gets exactly one of

    - `TaskDone(token, value)`: `run()` returned `value`;
    - `TaskFailed(token, error)`: it raised `error`, of any class;
    - `Down(token, KILLED)` (to `on_signal`): it was killed before. Then one
      `TaskEnded(token, abandoned)` follows when the body has left its worker or was abandoned.

    Attributes:
        owner: the cell that gets the result
        token: what identifies it to the owner
    """

    lane: ClassVar[Lane] = "lo"
    # What `Job.prepare` would set: a task has values of its own only where they differ.
    inject = True
    injected = False
    killed = False
    covers = 0
    worker: Worker | None = None
    wake: Releasable | None = None
    outcome: Any = None
    owner: Cell
    token: object
    _context: Context | None = None
    _ended = False
    _told = False
    _deadline: TimerRef | None = None
    _cancel: CancelToken | None = None

    def run(self) -> Any:
        """Do the work, and return its result. Runs once, on any worker."""
        raise NotImplementedError

    @property
    def live(self) -> bool:
        """Whether its outcome is still open: what a killed body still does must be refused."""
        return bool(self.claim)

    def enter(
        self, system: ActorSystem, owner: Cell, token: object, context: Context | None, inject: bool
    ) -> None:
        """Become the task `token` of `owner`: for `spawn_task`."""
        self.claim = [True]
        self.window = []
        if not inject:
            self.inject = False
        self.system = system
        self.owner = owner
        self.token = token
        self._context = context
        book = owner.book
        kids = NOTHING if book is None else book.kids
        if kids is NOTHING:
            kids = owner.nursery()
        kids[self] = None
        if owner.phase == ENDED:
            self.kill()

    def leave(self) -> None:
        """Be the owner's no more: the task has ended, or no worker could be had for it."""
        book = self.owner.book
        if book is not None:
            book.kids.pop(self, None)

    def turn(self, worker: Worker) -> None:
        """Run the body on `worker` and send its outcome to the owner."""
        below = worker.cell
        worker.cell = self
        context = self._context
        if context is None:
            context = Context()
        else:
            self._context = None  # a variable may refer to the task: no cycle outlives the body
        returned = self.perform(worker, context.run, self.run)
        worker.cell = below
        outcome, self.outcome = self.outcome, None
        owner = self.owner
        book = owner.book
        if book is not None:
            book.kids.pop(self, None)
        if returned:  # as `put_lazy`, without its call
            owner.q.append(TaskDone(self.token, outcome))
            if owner.busy.acquire(False):
                owner.scheduler.follow(owner, worker)
        elif returned is None:
            self._end(worker)
        else:
            owner.put_lazy(TaskFailed(self.token, outcome), worker)

    def _end(self, worker: Worker) -> None:  # type: ignore[override]  # a task ends by its turn
        with self.system.lock:
            if self._ended:
                return
            self._ended = True
        if self._deadline is not None:
            self._deadline.cancel()
        while not self._told:  # the killer is between its claim and its word, which goes first
            sleep(0)
        self.owner.put_lazy(TaskEnded(self.token, abandoned=False), worker)

    def kill(self, grace: float | None = None) -> bool:
        """End the task, unless its outcome is decided. From any thread.

        The owner gets `Down(token, KILLED)` at once; `Killed` is raised in the body if it
        runs; after the grace period its worker is given up.

        Args:
            grace: seconds; the system's `limits.kill_grace` by default

        Returns:
            False if its result, or another kill, came first
        """
        with shield():
            if not self.claim_kill():
                return False
            if self._cancel is not None:
                self._cancel.cancel()
            self.owner.put_system(Down(self.token, KILLED))
            self._told = True
            self.interrupt()
            seconds = self.system.limits.kill_grace if grace is None else grace
            timers = self.system.scheduler.timers
            self._deadline = timers.add(seconds, _Abandon(self, seconds), None)
            if self._ended:
                self._deadline.cancel()
        return True

    def cancel_token(self) -> CancelToken:
        """Return the token that is cancelled when the task is killed; made at first use."""
        token = self._cancel
        if token is None:
            token = self._cancel = CancelToken(self.system)
            if self.killed:  # set before the killer looks for a token
                token.cancel()
        return token

    def parent_ended(self, reason: ExitReason) -> None:
        """End with the owner."""
        del reason
        self.kill()


class _Abandon:
    """Gives a killed task up that did not end in time. A timer's target, then a turn."""

    __slots__ = ("_grace", "_task")
    lane: Lane = "hi"

    def __init__(self, task: TaskActor, grace: float) -> None:
        self._task = task
        self._grace = grace

    def put(self, _message: object) -> None:
        """Come due: carry it out on a worker; on the timers' own thread only if no worker can be had."""
        try:
            self._task.system.scheduler.submit_lazy(self, here.worker)
        except WorkersExhausted:
            self.turn(here.worker)

    def turn(self, worker: Worker | None) -> None:
        """Give the task's worker up, unless the task has ended, or has not begun."""
        del worker
        task = self._task
        with task.system.lock:
            if task._ended or task.worker is None:  # noqa: SLF001 - one protocol, two objects
                return
            task._ended = True  # noqa: SLF001
            task.system.scheduler.abandon(task.worker)
        task.owner.put(TaskEnded(task.token, abandoned=True))
        task.system.emit(
            Event("abandoned", repr(task), KILLED, {"grace": self._grace, "token": task.token})
        )
