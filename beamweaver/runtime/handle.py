"""Handles: a thread as its user holds it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from beamweaver.errors import AskTimeout, BeamWeaverError, CallRefused, InvalidCall, RunFailed
from beamweaver.runtime.aio import refuse_blocking, result_of
from beamweaver.runtime.reading import read_state
from beamweaver.runtime.requests import Release
from beamweaver.types import Cancel, Continue, Failed, Receipt
from supervisors import CallTimeout

if TYPE_CHECKING:
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.runtime.core import Core
    from beamweaver.runtime.requests import Message
    from beamweaver.runtime.waiters import Answer, Waiting
    from beamweaver.types import Outcome, ThreadState

__all__ = ["ThreadHandle", "await_outcome", "awaited_outcome", "check_on_disconnect"]


class ThreadHandle:
    """A thread of a runtime. Making one starts nothing; the actor wakes on the first message.

    Example:
        >>> with Runtime("state.lmdb", graphs=[app]) as runtime:       # doctest: +SKIP
        ...     thread = runtime.thread("order-17", graph=app)
        ...     receipt = thread.tell(Invoke({"url": "https://example.com"}))
        ...     outcome = thread.ask(Continue(), timeout=30)
    """

    __slots__ = ("_core", "_graph", "thread_id")

    def __init__(self, core: Core, graph: CompiledGraph, thread_id: str) -> None:
        self._core = core
        self._graph = graph
        self.thread_id = thread_id

    def __repr__(self) -> str:
        return f"<thread {self.thread_id!r} of graph {self._graph.name!r}>"

    def tell(self, message: Message) -> Receipt:
        """Send a message and go on; when this returns it is durable.

        Args:
            message: `Invoke`, `Resume`, `Continue` or `Cancel`.

        Returns:
            A receipt with the message's id and the run that it starts, joins or continues.

        Raises:
            CallRefused: The thread cannot take it (`NothingToResume`, `WrongGraph`, …).
            StoreError: It could not be made durable.
        """
        refuse_blocking(self._core, "tell", "atell")
        waiting = self._core.submit(self._graph, self.thread_id, message, waits=False)
        assert waiting.receipt is not None, "a tell has a receipt"
        run_id = waiting.receipt.get()
        return Receipt(waiting.call.id, run_id)

    async def atell(self, message: Message) -> Receipt:
        """`tell`, awaitable."""
        waiting = self._core.submit(self._graph, self.thread_id, message, waits=False)
        assert waiting.receipt is not None, "a tell has a receipt"
        run_id = await result_of(waiting.receipt)
        return Receipt(waiting.call.id, run_id)

    def ask(
        self, message: Message, *, timeout: float | None = None, raises: bool = True
    ) -> Outcome:
        """Send a message and wait until the run that it starts, joins or continues stops.

        Args:
            message: `Invoke`, `Resume`, `Continue` or `Cancel`.
            timeout: Seconds to wait; None waits for ever. The run goes on when they are over.
            raises: Whether a failed run raises its error; else `Failed` is returned.

        Returns:
            `Completed`, `Interrupted`, `Drained`, `Cancelled` or `Failed`.

        Raises:
            AskTimeout: The time is over; carries the receipt.
            RunFailed: The run failed (with `raises`).
            CallRefused: The thread cannot take the message.
            RuntimeStopped: The runtime ended meanwhile.
        """
        refuse_blocking(self._core, "ask", "aask")
        waiting = self._core.submit(self._graph, self.thread_id, message, waits=True)
        try:
            return await_outcome(waiting, self.thread_id, timeout=timeout, raises=raises)
        finally:
            self._core.hub.waiters.let_go(waiting)

    async def aask(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        raises: bool = True,
        on_disconnect: str = "cancel",
    ) -> Outcome:
        """`ask`, awaitable.

        Args:
            message: See `ask`.
            timeout: See `ask`.
            raises: See `ask`.
            on_disconnect: When the awaiting task is cancelled: `"cancel"` the run, which stays resumable
                (unless others wait for it), or let it `"continue"`.
        """
        check_on_disconnect(on_disconnect)
        waiting = self._core.submit(self._graph, self.thread_id, message, waits=True)
        return await awaited_outcome(
            self._core,
            self._graph,
            self.thread_id,
            waiting,
            timeout=timeout,
            raises=raises,
            on_disconnect=on_disconnect,
        )

    def cancel(self) -> Outcome:
        """Cancel the running run; returns when the bodies of its nodes have ended or were abandoned.

        The run can be continued. On a thread that does not run this returns how it stands.
        """
        return self.ask(Cancel(), raises=False)

    def release(self) -> None:
        """Let a quarantined thread go on from its last commit; when this returns that is durable.

        Raises:
            CallRefused: The thread is not quarantined.
        """
        hub = self._core.hub
        state = self.get_state()
        if self.thread_id not in hub.quarantined and (
            state is None or state.status != "quarantined"
        ):
            raise CallRefused(
                f"thread {self.thread_id!r} is not quarantined, so there is nothing to release",
                thread_id=self.thread_id,
            )
        hub.quarantined.pop(self.thread_id, None)
        if state is not None:
            self.ask(Release(), raises=False)
            self.tell(Continue())

    def get_state(self, checkpoint_id: str | None = None) -> ThreadState | None:
        """The thread as the store has it, with what is finished of an open step; None if there is none."""
        core = self._core
        return read_state(core.store, core.hub.codec, self._graph, self.thread_id, checkpoint_id)

    async def aget_state(self, checkpoint_id: str | None = None) -> ThreadState | None:
        """`get_state`, awaitable: the store is read on another worker."""
        return await asyncio.to_thread(self.get_state, checkpoint_id)


def await_outcome(
    waiting: Waiting, thread_id: str, *, timeout: float | None, raises: bool
) -> Outcome:
    """Wait for a call's answer and give it out as users expect it."""
    try:
        answer = waiting.done.get(timeout=timeout)
    except CallTimeout:
        raise _ask_timeout(waiting, thread_id, timeout) from None
    return _given(answer, raises=raises)


async def awaited_outcome(
    core: Core,
    graph: CompiledGraph,
    thread_id: str,
    waiting: Waiting,
    *,
    timeout: float | None,
    raises: bool,
    on_disconnect: str,
) -> Outcome:
    """The same on an event loop; a caller that goes away may take the run with it."""
    try:
        answer = await result_of(waiting.done, timeout)
    except TimeoutError:
        raise _ask_timeout(waiting, thread_id, timeout) from None
    except asyncio.CancelledError:
        core.disconnect(graph, thread_id, waiting, cancel=on_disconnect == "cancel")
        raise
    finally:
        core.hub.waiters.let_go(waiting)
    return _given(answer, raises=raises)


def check_on_disconnect(value: object) -> None:
    """Judge the option `on_disconnect`."""
    if value not in ("cancel", "continue"):
        raise InvalidCall(f"on_disconnect is {value!r}; give 'cancel' or 'continue'")


def _ask_timeout(waiting: Waiting, thread_id: str, timeout: float | None) -> AskTimeout:
    call = waiting.call
    return AskTimeout(
        f"thread {thread_id!r} gave no outcome within {timeout:g} s; run {call.run_id!r} goes on, "
        "ask again with Continue()",
        thread_id=thread_id,
        receipt=Receipt(call.id, call.run_id),
    )


def _given(answer: Answer, *, raises: bool) -> Outcome:
    error = answer.error
    if error is None:
        assert answer.outcome is not None, "an answer has an outcome or an error"
        return answer.outcome
    if not raises and isinstance(answer.outcome, Failed):
        return answer.outcome
    raise _fresh(error)


def _fresh(error: Exception) -> Exception:
    """The error for one caller: several may wait for one run, and a traceback belongs to one raise."""
    if not isinstance(error, BeamWeaverError):
        return error
    copy = type(error).rebuilt(error.message, error.ids)
    copy.__cause__ = error.__cause__
    if isinstance(error, RunFailed):
        for name, value in error.__dict__.items():
            copy.__dict__.setdefault(name, value)
    return copy
