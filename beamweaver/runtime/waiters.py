"""Who waits for what: the calls of a runtime, outside of its supervision tree.

A caller puts its call here and then wakes the thread's actor; the actor takes its calls from here. So no
call is lost with a mailbox, and no actor's restart is visible to a caller: the next incarnation takes up
all calls of its thread that have no answer yet.
"""

from __future__ import annotations

import threading
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from beamweaver.errors import RuntimeStopped
from supervisors.scheduler import here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextvars import Context

    from beamweaver.engine.calls import Call
    from beamweaver.engine.effects import Updated
    from beamweaver.types import Outcome
    from supervisors import Future
    from supervisors.kill import Job

__all__ = ["Answer", "Waiters", "Waiting"]


class Answer:
    """What a caller gets: an outcome, an error, or both (a failed run has a state)."""

    __slots__ = ("error", "outcome")

    def __init__(self, outcome: Outcome | Updated | None, error: Exception | None) -> None:
        self.outcome = outcome
        self.error = error


class Waiting:
    """One call and its caller's futures."""

    __slots__ = (
        "by",
        "call",
        "context",
        "done",
        "durable",
        "given",
        "incarnation",
        "left",
        "nested",
        "receipt",
    )

    def __init__(
        self,
        call: Call,
        done: Future[Any],
        receipt: Future[Any] | None,
        by: str | None = None,
        *,
        nested: bool = False,
    ) -> None:
        self.call = call
        self.by = by
        """The thread whose node waits, if one does."""
        self.nested = nested
        """Whether a node of this runtime made the call; it may wait for no more than its durability."""
        self.durable = False
        self.left = False
        """Whether its caller has stopped waiting."""
        self.given: Any = UNSET
        """The `context=` that the call brings, if it does."""
        self.context = copy_context()
        """The caller's context variables, for the nodes of the run."""
        self.done = done
        """Resolved with an `Answer` when the run stops or the call is refused."""
        self.receipt = receipt
        """Resolved with the run id when the call is durable; for tells."""
        self.incarnation = -1
        """Of the actor that took it last."""


class Waiters:
    """The calls of a runtime that have no answer yet, by thread, in order of arrival."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: dict[str, dict[str, Waiting]] = {}
        self._nodes: dict[str, dict[str, tuple[str, Job | None]]] = {}
        """By thread, what its nodes wait for: call id -> thread, and the body that waits."""
        self._stopped: RuntimeStopped | None = None
        self.stands: Callable[[Waiting], str] | None = None
        """Tells a caller that has waited long enough how its message stands, where others run the threads."""

    def add(self, thread_id: str, waiting: Waiting) -> bool:
        """Keep a call until it is answered.

        Returns:
            False if the node that would wait is waited for by the thread, at once or by way of others.

        Raises:
            RuntimeStopped: The runtime has ended.
        """
        with self._lock:
            if self._stopped is not None:
                raise RuntimeStopped(self._stopped.message) from self._stopped.__cause__
            if waiting.by is not None:
                if self._waits_for(thread_id, waiting.by):
                    return False
                body = here.worker.job if here.worker is not None else None
                self._nodes.setdefault(waiting.by, {})[waiting.call.id] = (thread_id, body)
            self._threads.setdefault(thread_id, {})[waiting.call.id] = waiting
            return True

    def _waits_for(self, thread_id: str, goal: str) -> bool:
        seen, stack = {thread_id}, [thread_id]
        while stack:
            waits = stack.pop()
            if waits == goal:
                return True
            for_ = self._nodes.get(waits, {}).values()
            # A body that was killed waits for nobody any more, even while it unwinds.
            new = {other for other, body in for_ if body is None or not body.killed} - seen
            seen |= new
            stack.extend(new)
        return False

    def forget(self, thread_id: str, call: Call) -> None:
        """Its caller went away: nobody wants its answer."""
        with self._lock:
            self._forget(thread_id, call.id)

    def let_go(self, waiting: Waiting) -> None:
        """Its caller has its answer, or went away: no node waits for it any more."""
        with self._lock:
            self._unwait(waiting)

    def leave(self, thread_id: str, waiting: Waiting) -> None:
        """Its caller waits no longer: it is kept until it is durable, and its answer is nobody's."""
        with self._lock:
            waiting.left = True
            if waiting.durable:
                self._forget(thread_id, waiting.call.id)

    def _unwait(self, waiting: Waiting) -> None:
        if waiting.by is None:
            return
        waits = self._nodes.get(waiting.by)
        if waits is not None:
            waits.pop(waiting.call.id, None)
            if not waits:
                del self._nodes[waiting.by]

    def take(self, thread_id: str, incarnation: int) -> list[Call]:
        """The thread's calls that this incarnation of its actor has not taken yet, oldest first.

        A call that an earlier incarnation took is marked `again`: it may have been admitted.
        """
        calls = []
        with self._lock:
            for waiting in self._threads.get(thread_id, {}).values():
                if waiting.incarnation >= incarnation:
                    continue  # taken already, perhaps by the successor of an actor that still runs
                waiting.call.again = waiting.incarnation >= 0
                waiting.incarnation = incarnation
                calls.append(waiting.call)
        return calls

    def given_of(self, thread_id: str, call: Call) -> Any:
        """The `context=` that the call brings; UNSET if it brings none."""
        with self._lock:
            waiting = self._threads.get(thread_id, {}).get(call.id)
        return UNSET if waiting is None else waiting.given

    def context_of(self, thread_id: str, call: Call) -> Context | None:
        """The context variables of the call's caller."""
        with self._lock:
            waiting = self._threads.get(thread_id, {}).get(call.id)
        return None if waiting is None else waiting.context

    def admitted(self, thread_id: str, call: Call, run_id: str) -> None:
        """The call is durable; one that nobody waits for is answered with that."""
        with self._lock:
            waiting = self._threads.get(thread_id, {}).get(call.id)
            if waiting is not None:
                waiting.durable = True
                if waiting.left or not call.waits:
                    self._forget(thread_id, call.id)
        if waiting is not None and waiting.receipt is not None:
            waiting.receipt.offer(run_id)

    def answer(self, thread_id: str, call: Call, answer: Answer) -> None:
        """The call is answered: its caller goes on."""
        with self._lock:
            waiting = self._threads.get(thread_id, {}).get(call.id)
            self._forget(thread_id, call.id)
        if waiting is None:
            return
        if waiting.receipt is not None:
            if answer.error is not None:
                waiting.receipt.offer_error(answer.error)
            else:
                waiting.receipt.offer(call.run_id)
        waiting.done.offer(answer)

    def fail_thread(self, thread_id: str, error: Exception) -> None:
        """All calls of a thread get this error."""
        for call in self._calls(thread_id):
            self.answer(thread_id, call, Answer(None, error))

    def stop(self, error: RuntimeStopped) -> int:
        """The runtime ends: every caller that still waits gets an error that names its run."""
        with self._lock:
            self._stopped = error
            threads = list(self._threads)
        stopped = 0
        for thread_id in threads:
            for call in self._calls(thread_id):
                own = RuntimeStopped(
                    f"{error.message}; run {call.run_id!r} of thread {thread_id!r} is kept where it "
                    "was committed: the same call in the next runtime goes on",
                    thread_id=thread_id,
                    run_id=call.run_id,
                )
                own.__cause__ = error.__cause__
                self.answer(thread_id, call, Answer(None, own))
                stopped += 1
        return stopped

    def has(self, thread_id: str) -> bool:
        """Whether any call of the thread waits."""
        with self._lock:
            return bool(self._threads.get(thread_id))

    def has_nested(self, thread_id: str) -> bool:
        """Whether a node of this runtime made a call of the thread that waits."""
        with self._lock:
            return any(waiting.nested for waiting in self._threads.get(thread_id, {}).values())

    def knows(self, thread_id: str, call: Call) -> bool:
        """Whether the call has no answer yet, and somebody wants one."""
        with self._lock:
            return call.id in self._threads.get(thread_id, {})

    def threads(self) -> list[str]:
        """The threads with calls that wait."""
        with self._lock:
            return list(self._threads)

    def __len__(self) -> int:
        with self._lock:
            return sum(len(waiting) for waiting in self._threads.values())

    def _calls(self, thread_id: str) -> Iterator[Call]:
        with self._lock:
            calls = [waiting.call for waiting in self._threads.get(thread_id, {}).values()]
        return iter(calls)

    def _forget(self, thread_id: str, call_id: str) -> None:
        waiting = self._threads.get(thread_id)
        if waiting is None:
            return
        gone = waiting.pop(call_id, None)
        if gone is not None:
            self._unwait(gone)
        if not waiting:
            del self._threads[thread_id]
