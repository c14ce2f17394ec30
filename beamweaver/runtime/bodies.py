"""The bodies that run for one thread: sync ones on workers of the pool, async ones on the node loop."""

from __future__ import annotations

from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

from beamweaver.engine.effects import Attempt
from beamweaver.runtime.node import NodeActor
from beamweaver.runtime.routing import RouterActor, Routing
from supervisors import TaskActor

if TYPE_CHECKING:
    from beamweaver.engine.effects import Transition
    from beamweaver.runtime.frames import Frame
    from beamweaver.runtime.hub import Hub
    from beamweaver.runtime.loop import LoopTask
    from supervisors.mailbox import Cell

__all__ = ["Bodies"]

KILL_GRACE = 1.0
"""Seconds from a kill until a body that does not end is abandoned."""


class Bodies:
    """Starts and kills the bodies of a thread's attempts, and knows which run.

    The owner gets one of `TaskDone`, `TaskFailed`, `Down` for each, with the attempt (or transition) as
    the token, and after a kill one `TaskEnded`.
    """

    def __init__(self, hub: Hub, owner: Cell) -> None:
        self._hub = hub
        self._owner = owner
        self.running: dict[Attempt | Transition, TaskActor | LoopTask] = {}
        """The owner takes out who ended by itself."""
        self._killed: dict[Attempt | Transition, TaskActor | LoopTask] = {}
        """Bodies that were killed and have not ended."""
        self.context: Context | None = None
        """The context variables of the caller who stands behind the run; each body gets a copy."""
        self.given: dict[str, Any] = {}
        """The `context=` of calls, by the name that each gave to its run."""
        self.heirs: list[Cell] = []
        """Successors of the owner that took over: what the owner still does in its slice is void."""

    def __len__(self) -> int:
        return len(self.running)

    def start(self, frame: Frame, attempt: Attempt) -> None:
        """Run a node.

        Raises:
            WorkersExhausted: Too many workers are held by abandoned bodies.
        """
        if self.heirs:
            return
        if attempt.node.is_async:
            self.running[attempt] = self._hub.node_loop().start_node(
                frame, attempt, owner=self._owner, context=self._context()
            )
        else:
            self.running[attempt] = self._hub.system.spawn_task(
                NodeActor,
                frame,
                attempt,
                owner=self._owner,
                token=attempt,
                context=None if self.context is None else self.context.copy(),
            )
        if self.heirs:  # meanwhile: the successor may have looked before the body was there
            self.kill(attempt)

    def route(self, frame: Frame, transition: Transition) -> None:
        """Ask the routers of a step.

        Raises:
            WorkersExhausted: Too many workers are held by abandoned bodies.
        """
        if self.heirs:
            return
        routing = Routing(frame, transition)
        if routing.is_async:
            self.running[transition] = self._hub.node_loop().start_routers(
                routing, owner=self._owner, token=transition, context=self._context()
            )
            return
        self.running[transition] = self._hub.system.spawn_task(
            RouterActor,
            routing,
            owner=self._owner,
            token=transition,
            context=None if self.context is None else self.context.copy(),
        )

    def _context(self) -> Context:
        return copy_context() if self.context is None else self.context.copy()

    def ended(self, token: Any) -> bool:
        """Whether the body of `token` ran until now; it does not any more."""
        return self.running.pop(token, None) is not None

    def kill(self, token: Attempt | Transition, *, hear: bool = False) -> bool:
        """Kill a body that runs.

        Args:
            token: Its token.
            hear: Whether the outcome of one that ended by itself in this moment counts: it goes on to run
                until its owner hears of it. Else whatever comes of it is nobody's.

        Returns:
            Whether it was killed, so that a `TaskEnded` comes.
        """
        task = self.running.get(token)
        if task is None:
            return False
        killed = task.kill(KILL_GRACE) or task.killed
        if killed:
            self._killed[token] = task
        if killed or not hear:
            del self.running[token]
        return killed

    def gone(self, token: Attempt | Transition) -> None:
        """A killed body has ended, or was given up."""
        self._killed.pop(token, None)

    def adopt(self, before: Bodies) -> list[Attempt]:
        """Kill what an earlier incarnation of the owner left running; from now on this owner hears of it.

        Returns:
            The attempts whose bodies have not ended: the next ones wait for that.
        """
        left = []
        before.heirs.append(
            self._owner
        )  # its slice may go on for a while, on a worker that was held up
        self.given.update(before.given)
        for token, task in (*list(before.running.items()), *list(before._killed.items())):
            if _hand_over(task, self._owner):
                self._killed[token] = task
                if isinstance(token, Attempt):
                    left.append(token)
        return left

    def kill_all(self) -> None:
        """Kill every body."""
        for token in list(self.running):
            self.kill(token)


def _hand_over(task: TaskActor | LoopTask, owner: Cell) -> bool:
    """Kill a body for its new owner; whether it still has to end."""
    if not isinstance(task, TaskActor):
        return task.hand_over(owner, KILL_GRACE)
    task.owner = owner  # first, so that no end falls between
    task.kill(KILL_GRACE)
    return task.killed and not task._ended  # noqa: SLF001 - no other name for it
