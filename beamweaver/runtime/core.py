"""The core of a runtime: store, hub, actor system and tree; public and private runtimes are faces of it."""

from __future__ import annotations

import os
import threading
from _thread import start_new_thread
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from beamweaver.checkpoint.codec import Codec
from beamweaver.engine.calls import CallKind
from beamweaver.errors import (
    BeamWeaverError,
    CallingSelf,
    Draining,
    Forked,
    Quarantined,
    RuntimeFailed,
    RuntimeStopped,
)
from beamweaver.runtime.current import context_here
from beamweaver.runtime.given import context_of_call
from beamweaver.runtime.hub import Hub
from beamweaver.runtime.keys import give_key
from beamweaver.runtime.messages import AGAIN, CUT, DRAIN
from beamweaver.runtime.requests import CancelRun, Release, make_call
from beamweaver.runtime.thread import ThreadActor
from beamweaver.runtime.tree import children, start_tree
from beamweaver.runtime.waiters import Waiting
from supervisors import (
    SHUTDOWN,
    ActorSystem,
    CallTimeout,
    PoolScheduler,
    RestartsExceeded,
    Shutdown,
    tree,
)
from supervisors import Limits as SystemLimits

if TYPE_CHECKING:
    from beamweaver.checkpoint.base import Checkpointer
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.limits import Limits
    from beamweaver.runtime.context import Context
    from beamweaver.runtime.requests import Message
    from supervisors import ActorRef, ChildSpec, ExitReason, Node

__all__ = ["CLOSE_SECONDS", "FORKED", "Core"]

FORKED = (
    "this process was forked from the one that opened the runtime, and has no part in it; open one in each "
    "worker, after the fork"
)

_STOP_SECONDS = 10.0
"""Seconds for the tree to stop: its writer may be in a sync."""
_CUT_GRACE = 2.0
"""Seconds beyond a drain's deadline in which killed bodies end or are abandoned."""
CLOSE_SECONDS = _STOP_SECONDS + 3 * _CUT_GRACE
"""Seconds after which a close that began has ended, with some to spare."""


class Core:
    """Everything of a runtime that runs.

    Args:
        store: Where threads are kept; its ownership is taken.
        limits: The runtime's bounds.
        recover: `"all"`, `"called"` or `"none"`.
        keeps: Whether threads outlive their calls.
        max_workers: Most OS threads of the pool.
        max_restarts: How many restarts in `max_seconds` the tree's root allows.
        max_seconds: The window of `max_restarts`, in seconds.
        system: An actor system to run in (for tests: a simulated one); by default one of its own.
        seed: For ids and jitter in tests.
        takeover: `"force"` takes the store from a living owner.
        strict: Whether changes inside of values are looked for, in graphs that do not say.

    Raises:
        StoreOwned: Another process or runtime owns the store.
    """

    owns: ClassVar[bool] = True
    """Whether it owns its store."""

    def __init__(
        self,
        store: Checkpointer,
        *,
        limits: Limits,
        recover: str,
        keeps: bool,
        max_workers: int,
        system: ActorSystem | None = None,
        max_restarts: int = 3,
        max_seconds: float = 5.0,
        seed: int | None = None,
        fault: Any = None,
        takeover: Literal["force"] | None = None,
        strict: bool = False,
    ) -> None:
        self.store = store
        self._max_restarts = max_restarts
        self._max_seconds = max_seconds
        epoch = self._take(store, takeover)
        try:
            self.system = system or ActorSystem(
                PoolScheduler(max_workers=max_workers),
                limits=SystemLimits(max_abandoned=limits.abandoned),
            )
            self.hub = Hub(
                self.system,
                store,
                Codec(limits=limits),
                epoch=epoch,
                limits=limits,
                recover=recover,
                keeps=keeps,
                thread_class=ThreadActor,
                seed=seed,
            )
            self.hub.fault = fault
            self.hub.strict = strict
            self._lock = threading.Lock()
            self._pid = os.getpid()
            self._closed = False
            self._failure: RuntimeFailed | None = None
            self._root: ActorRef[Any] | None = None
        except BaseException:  # whatever it is: give back what was taken, and let it pass
            store.release()
            raise

    def _take(self, store: Checkpointer, takeover: Literal["force"] | None) -> int:
        """Take the store; its epoch."""
        return store.acquire(takeover=takeover)

    def _children(self) -> list[ChildSpec]:
        """The parts of the tree."""
        return children(self.hub)

    def start(self) -> None:
        """Start the tree: from now on calls are taken, and recovery runs."""
        try:
            self._root = start_tree(
                self.hub,
                self._children(),
                max_restarts=self._max_restarts,
                max_seconds=self._max_seconds,
                on_end=self._ended,
            )
        except BaseException:  # whatever it is: give back what was taken, and let it pass
            self.close()
            raise

    # Calls --------------------------------------------------------------------------------------

    def submit(
        self,
        graph: CompiledGraph,
        thread_id: str,
        message: Message,
        *,
        waits: bool,
        key: str | None = None,
    ) -> Waiting:
        """Judge a call and see that its thread gets it.

        Args:
            graph: The caller's graph.
            thread_id: The thread.
            message: What is asked.
            waits: Whether the caller waits for the run's end.
            key: The message's idempotency key.

        Raises:
            CallRefused and others: What is wrong with it.
        """
        hub = self.hub
        self.check_process()
        given = self._judge(graph, thread_id, message, waits=waits)
        call = make_call(hub, graph, message, waits=waits)
        if key is not None:
            give_key(call, key, hub.codec, hub.limits)
        receipt = None if waits else self.system.future()
        waiting = Waiting(call, self.system.future(), receipt)
        waiting.given = given
        self._enter(graph, thread_id, waiting)
        return waiting

    def _judge(self, graph: CompiledGraph, thread_id: str, message: Message, *, waits: bool) -> Any:
        """Refuse what is not to be taken now; the context that the call brings, UNSET if it brings none."""
        hub = self.hub
        if waits and hub.draining and not self._closed:
            raise Draining("the runtime drains and takes no new calls; tell() is still kept")
        reason = hub.quarantined.get(thread_id)
        if reason is not None and not isinstance(message, Release):
            raise Quarantined(
                f"thread {thread_id!r} is quarantined: {reason}", thread_id=thread_id, reason=reason
            )
        return context_of_call(hub, graph, message)

    def _enter(self, _graph: CompiledGraph, thread_id: str, waiting: Waiting) -> None:
        """Keep a call, and wake its thread."""
        node = self.calling_node()
        if node is not None:
            waiting.nested = True
            waiting.by = node.thread_id if waiting.call.waits else None
        if not self.hub.waiters.add(thread_id, waiting):
            assert node is not None, "only a node can wait for itself"
            raise _calling_self(node, thread_id)
        self.hub.ensure(thread_id)

    @property
    def forked(self) -> bool:
        """Whether this process is a child of the one in which it runs."""
        return self._pid != os.getpid()

    def check_process(self) -> None:
        """See that it runs in this process.

        Raises:
            Forked: It runs in the one that this process was forked from.
        """
        if self.forked:
            raise Forked(FORKED)

    def check_owner(self, _call: str) -> None:
        """See that this core may change the store itself.

        Raises:
            NotOwner: It is a client's.
        """

    def reasons(self) -> list[str]:
        """What else there is for which it is not ready, each a sentence."""
        return []

    def calling_node(self) -> Context | None:
        """The node of this runtime that makes the call, if one does."""
        context = context_here()
        return context if context is not None and context.belongs_to(self.hub) else None

    def recover_again(self) -> None:
        """Look again at what the store has unfinished: there is another graph, or another owner."""
        if self.hub.recovery is not None:
            self.hub.recovery.put(AGAIN)

    def take_over(self, recover: str, limits: Limits, *, strict: bool) -> None:
        """A public runtime takes a private one's place: its rules hold from now on."""
        self.hub.recover = recover
        self.hub.strict = strict
        self.hub.limits = self.hub.table.limits = limits
        self.recover_again()

    def disconnect(
        self, graph: CompiledGraph, thread_id: str, waiting: Waiting, *, cancel: bool
    ) -> None:
        """A caller went away: its call is not taken any more, and the run it waited for may be cancelled.

        A cancel is done all the same.
        """
        waiters, call = self.hub.waiters, waiting.call
        waiters.let_go(waiting)
        if call.kind is CallKind.CANCEL:
            waiters.leave(thread_id, waiting)
            return
        call.withdrawn = True
        waiters.forget(thread_id, call)
        if cancel and not waiters.has(thread_id):
            # Where nobody can be told, nothing runs that could be cancelled.
            with suppress(BeamWeaverError):
                self.submit(graph, thread_id, CancelRun(call.run_id), waits=False)

    def tree(self) -> Node:
        """The supervision tree as it stands."""
        assert self._root is not None, "a runtime that was started has a root"
        number = self._root.cell.number
        return next(node for node in tree(self.system).children if node.number == number)

    # End ----------------------------------------------------------------------------------------

    def drain(self, timeout: float) -> bool:
        """Refuse new calls, let what runs end, cut what still runs after `timeout` seconds.

        Returns:
            Whether everything ended in time.
        """
        hub = self.hub
        hub.draining = True
        drained = self.system.future()
        for cell in hub.table.drain(drained):
            cell.put(DRAIN)
        if hub.recovery is not None:
            hub.recovery.put(DRAIN)
        if _within(drained, timeout):
            return True
        for cell in hub.table.undrained():
            cell.put(CUT)
        _within(drained, _CUT_GRACE)
        return False

    def close(self) -> None:
        """Cut what runs, stop the tree and the workers, release the store. Idempotent."""
        if self._pid != os.getpid():
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        error = RuntimeStopped("the runtime was closed")
        if self._failure is not None:
            error = RuntimeStopped(f"the runtime failed: {self._failure.message}")
            error.__cause__ = self._failure
        # The last one first; a Ctrl-C ends the one that waits, not the others.
        with ExitStack() as steps:
            steps.callback(self.store.release)
            steps.callback(self.hub.edits.stop, error)
            steps.callback(self.hub.waiters.stop, error)
            steps.callback(self.system.shutdown, _CUT_GRACE)
            steps.callback(self.hub.kill_bodies)
            steps.callback(self._stop_tree)
            if self._failure is None and self._root is not None:
                self.drain(0.0)

    def close_soon(self) -> None:
        """Close on a worker of its own: the garbage collector may call, in the middle of anything."""
        if self._pid == os.getpid():
            worker = threading.Thread(target=self.close, name="beamweaver-close", daemon=True)
            start_new_thread(worker.start, ())  # which takes a lock, and waits for the worker

    def _stop_tree(self) -> None:
        """End the actors; a body that hangs has had its grace then, and its worker is left to it."""
        if self._root is not None:
            _within(self._root.stop(block=False, reason=SHUTDOWN), _STOP_SECONDS)

    @property
    def closed(self) -> bool:
        """Whether it takes no calls any more; in a forked child, which has no workers, it never did."""
        return self._closed or self._failure is not None or self._pid != os.getpid()

    @property
    def failure(self) -> RuntimeFailed | None:
        """Why the tree gave up, if it did."""
        return self._failure

    def _ended(self, reason: ExitReason) -> None:
        """The root supervisor ended. If nobody closed the runtime, its restart budget is spent."""
        if self._closed:
            return
        account = reason.term if isinstance(reason, Shutdown) else None
        cause: BaseException | None = self.hub.fatal
        if cause is None and isinstance(account, RestartsExceeded):
            cause = account.last_crash
        failure = RuntimeFailed(
            f"the supervision tree gave up: {cause if cause is not None else account or reason}",
            reason=str(account or cause or reason),
            tree=[spec.id for spec in self._children()],
        )
        failure.__cause__ = cause
        self._failure = failure
        stopped = RuntimeStopped(f"the runtime failed: {failure.message}")
        stopped.__cause__ = failure
        self.hub.kill_bodies()
        self.hub.waiters.stop(stopped)
        self.hub.edits.stop(stopped)


def _calling_self(node: Context, thread_id: str) -> CallingSelf:
    through = "" if node.thread_id == thread_id else f" through thread {thread_id!r}"
    return CallingSelf(
        f"node {node.node!r} of thread {node.thread_id!r} waits for its own thread{through}, which waits "
        "for the node; use tell(), or another thread",
        thread_id=thread_id,
        node=node.node,
    )


def _within(done: Any, timeout: float) -> bool:
    try:
        done.get(timeout=max(timeout, 0.0))
    except CallTimeout:
        return False
    return True
