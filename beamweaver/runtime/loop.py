"""The event loop on which the async nodes of a runtime run. Imported when the first of them starts."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from beamweaver.runtime.bodies import KILL_GRACE
from beamweaver.runtime.node import run_async
from supervisors import KILLED, CallTimeout, TaskDone, TaskEnded, TaskFailed
from supervisors.signals import Down

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterator
    from contextvars import Context

    from beamweaver.engine.effects import Attempt
    from beamweaver.runtime.frames import Frame
    from beamweaver.runtime.hub import Hub
    from beamweaver.runtime.routing import Routing
    from supervisors import Future
    from supervisors.mailbox import Cell
    from supervisors.timers import TimerRef

__all__ = ["LoopTask", "LoopWorker"]

_BLOCKS_SECONDS = 0.1
_REST_SECONDS = 0.25
_JOIN_SECONDS = KILL_GRACE + 4 * _REST_SECONDS


class LoopTask:
    """One coroutine on the loop, with the surface of a `TaskActor`.

    Its owner gets exactly one of `TaskDone`, `TaskFailed` and `Down(token, KILLED)`; after a kill one
    `TaskEnded` follows, when the coroutine has ended or its grace period is over.
    """

    __slots__ = (
        "_body",
        "_claims",
        "_context",
        "_covers",
        "_ended",
        "_grace",
        "_hub",
        "_late",
        "_name",
        "_owner",
        "_task",
        "_token",
        "_worker",
    )

    def __init__(
        self,
        hub: Hub,
        worker: LoopWorker,
        name: str,
        body: Callable[[LoopTask], Coroutine[Any, Any, Any]],
        *,
        owner: Cell,
        token: object,
        context: Context,
    ) -> None:
        self._hub = hub
        self._worker = worker
        self._name = name
        self._body = body
        self._owner = owner
        self._token = token
        self._context: Context | None = context
        self._claims: list[tuple[bool, object]] = []
        """Whether it was killed, by each who would decide its outcome: the first one does."""
        self._ended = [True]
        self._task: asyncio.Task[Any] | None = None
        self._grace: TimerRef | None = None
        """The timer that runs since it was killed."""
        self._covers = 0
        self._late = False
        """Whether a cancellation came while the coroutine was covered."""

    @property
    def live(self) -> bool:
        """Whether its outcome is still open: what a killed body still does must be refused."""
        return not self._claims

    @property
    def killed(self) -> bool:
        """Whether it was killed before it ended by itself."""
        return bool(self._claims) and self._claims[0][0]

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the coroutine; on the loop's own thread."""
        if self._claims:
            self._tell_ended(abandoned=False)
            return
        context, self._context = self._context, None
        assert context is not None, "a coroutine begins once"
        watched = _Watched(self._body, self, self._name, self._hub)
        self._task = context.run(loop.create_task, watched.run())
        self._worker.bodies[self] = None
        self._task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._worker.bodies.pop(self, None)
        self._task = None  # the two, and the context above, would keep each other alive
        if not self._take(killed=False):
            if not task.cancelled():
                task.exception()  # seen: a killed body's error is nobody's
            self._tell_ended(abandoned=False)
        elif task.cancelled():
            # Nobody of ours cancelled it: its code did, or the loop ends under it.
            self._ended.clear()
            self._owner.put(TaskFailed(self._token, asyncio.CancelledError()))
        else:
            self._ended.clear()
            error = task.exception()
            if error is not None:
                self._owner.put(TaskFailed(self._token, error))
            else:
                self._owner.put(TaskDone(self._token, task.result()))

    def _take(self, *, killed: bool) -> bool:
        mine = (killed, object())
        self._claims.append(mine)
        return self._claims[0] is mine

    def _tell_ended(self, *, abandoned: bool) -> None:
        try:
            self._ended.pop()
        except IndexError:
            return
        if self._grace is not None:
            self._grace.cancel()
        self._owner.put(TaskEnded(self._token, abandoned))

    def kill(self, grace: float) -> bool:
        """Cancel the coroutine, unless its outcome is decided; from any thread.

        Args:
            grace: Seconds after which it is given up, should it swallow the cancellation.
        """
        if not self._take(killed=True):
            return False
        self._owner.put_system(Down(self._token, KILLED))
        self._worker.post(self._cancel)
        self._grace = self._hub.system.scheduler.timers.add(grace, _Abandon(self), None)
        if not self._ended:  # by now it has ended, and may have found no timer
            self._grace.cancel()
        return True

    def hand_over(self, owner: Cell, grace: float) -> bool:
        """Kill it for a new owner, who hears of its end; False if it has ended."""
        self._owner = owner
        self.kill(grace)
        return self.killed and bool(self._ended)

    def tell(self, message: object) -> None:
        """Send a message to the actor of the thread, from the coroutine."""
        self._owner.put(message)

    def _cancel(self, _loop: asyncio.AbstractEventLoop) -> None:
        if self._covers:
            self._late = True
        elif self._task is not None:
            self._task.cancel()

    def stop(self, loop: asyncio.AbstractEventLoop) -> asyncio.Task[Any] | None:
        """End it with its loop; one that was killed ends already."""
        if self.live:
            self._cancel(loop)
        return self._task

    @contextlib.contextmanager
    def shield(self) -> Iterator[None]:
        """Keep a kill away from a block of the coroutine; it arrives at the first `await` after it."""
        self._covers += 1
        try:
            yield
        finally:
            self._covers -= 1
            if self._late and not self._covers and self._task is not None:
                self._late = False
                self._task.cancel()


class _Abandon:
    """A timer's target: gives a cancelled coroutine up that did not end."""

    __slots__ = ("_task",)

    def __init__(self, task: LoopTask) -> None:
        self._task = task

    def put(self, _message: object) -> None:
        self._task._tell_ended(abandoned=True)  # noqa: SLF001 - a part of it


class _Watched:
    """Drives a coroutine and names it once if a step of it holds the loop for too long.

    It is made with its first step: Python warns of one that a kill in the same turn of the loop never starts.
    """

    __slots__ = ("_body", "_hub", "_name", "_task")

    def __init__(
        self,
        body: Callable[[LoopTask], Coroutine[Any, Any, Any]],
        task: LoopTask,
        name: str,
        hub: Hub,
    ) -> None:
        self._body = body
        self._task = task
        self._name = name
        self._hub = hub

    async def run(self) -> Any:
        return await self

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine, clock = self._body(self._task), self._hub.system.clock
        value: Any = None
        error: BaseException | None = None
        while True:
            began = clock.monotonic()
            try:
                pending = coroutine.send(value) if error is None else coroutine.throw(error)
            except StopIteration as stop:
                return stop.value
            finally:
                held = clock.monotonic() - began
                if held > _BLOCKS_SECONDS:
                    self._hub.blocked_loop(self._name, held)
            value, error = None, None
            try:
                value = yield pending
            except GeneratorExit:  # the loop ended under it
                coroutine.close()
                raise
            except BaseException as raised:  # noqa: BLE001 - it is thrown on into the coroutine
                error = raised


class LoopWorker:
    """A running event loop, its own in a worker or the user's, and what is to be done on it.

    Args:
        hub: The runtime's hub; it is told when the loop ends by itself.
        loop: The user's loop; None for one of its own.
    """

    def __init__(self, hub: Hub, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._hub = hub
        self.owned = loop is None
        self.loop = asyncio.new_event_loop() if loop is None else loop
        self._queue: deque[Callable[[asyncio.AbstractEventLoop], None]] = deque()
        self._busy = threading.Lock()
        self._stopping = False
        self.bodies: dict[LoopTask, None] = {}
        """Those that have begun and not ended, in that order; the loop's own thread changes them."""
        self._winding: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None
        if self.owned:
            self._thread = threading.Thread(
                target=self._serve, name="beamweaver-node-loop", daemon=True
            )
            self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()
            if not self._stopping:
                self._hub.loop_ended(self)

    def start_node(
        self, frame: Frame, attempt: Attempt, *, owner: Cell, context: Context
    ) -> LoopTask:
        """Run an attempt of an async node."""
        return self._start(
            attempt.node.name,
            lambda body: run_async(frame, attempt, body, _gives_up),
            owner=owner,
            token=attempt,
            context=context,
        )

    def start_routers(
        self, routing: Routing, *, owner: Cell, token: object, context: Context
    ) -> LoopTask:
        """Ask routers of which some are async."""
        return self._start(
            "router",
            lambda _body: routing.ask_async(_gives_up),
            owner=owner,
            token=token,
            context=context,
        )

    def _start(
        self,
        name: str,
        body: Callable[[LoopTask], Coroutine[Any, Any, Any]],
        *,
        owner: Cell,
        token: object,
        context: Context,
    ) -> LoopTask:
        task = LoopTask(self._hub, self, name, body, owner=owner, token=token, context=context)
        self.post(task.begin)
        return task

    def post(self, job: Callable[[asyncio.AbstractEventLoop], None]) -> None:
        """Have `job(loop)` run on the loop; one wake-up serves all that come before it."""
        self._queue.append(job)
        if self._busy.acquire(blocking=False):
            try:
                self.loop.call_soon_threadsafe(self._run)
            except RuntimeError:  # the loop is closed: what was posted is lost with it
                self._busy.release()
                if not self._stopping:
                    self._hub.loop_ended(self)

    def _run(self) -> None:
        self._busy.release()
        queue = self._queue
        while queue:
            queue.popleft()(self.loop)

    @property
    def runs_here(self) -> bool:
        """Whether the caller is on this loop's thread."""
        try:
            return asyncio.get_running_loop() is self.loop
        except RuntimeError:
            return False

    def stop(self) -> None:
        """Let what was killed come to its end, within its grace; then end an owned loop and what is on it."""
        self._stopping = True
        thread, self._thread = self._thread, None
        if thread is None if self.owned else not self.bodies:
            return
        ended = self._hub.system.future()
        try:
            self.loop.call_soon_threadsafe(self._wind_up, ended)
        except RuntimeError:
            return
        if thread is None:
            with contextlib.suppress(CallTimeout):
                ended.get(timeout=_JOIN_SECONDS)
        else:
            thread.join(_JOIN_SECONDS)

    def _wind_up(self, ended: Future[None]) -> None:
        self._winding = self.loop.create_task(self._end(ended))

    async def _end(self, ended: Future[None]) -> None:
        try:
            bodies = [task for body in self.bodies if (task := body.stop(self.loop)) is not None]
            if bodies:
                await asyncio.wait(bodies, timeout=KILL_GRACE)
            if self.owned:
                await self._clean_up()
        finally:
            ended.offer(None)
            if self.owned:
                self.loop.stop()

    async def _clean_up(self) -> None:
        """End what nodes have left on the loop, as `asyncio.run` does."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_REST_SECONDS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.loop.shutdown_asyncgens(), _REST_SECONDS)


def _gives_up(error: BaseException) -> bool:
    """Whether the framework cancelled the task, or its loop ended under it.

    A `CancelledError` that user code raises is a failure.
    """
    if not isinstance(error, asyncio.CancelledError):
        return isinstance(error, GeneratorExit)
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
