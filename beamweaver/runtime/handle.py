"""Handles: a thread as its user holds it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from beamweaver.errors import BeamWeaverError, CallRefused
from beamweaver.runtime.answers import await_outcome, check_on_disconnect
from beamweaver.runtime.blocking import refuse_blocking
from beamweaver.runtime.editing import amake_edit, make_edit
from beamweaver.runtime.lookup import read_state
from beamweaver.runtime.options import waiting_time
from beamweaver.runtime.rejections import read_rejected
from beamweaver.runtime.requests import Release, Update
from beamweaver.types import Cancel, Continue, Receipt, StateUpdate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.runtime.core import Core
    from beamweaver.runtime.requests import Message
    from beamweaver.runtime.waiters import Waiting
    from beamweaver.types import Outcome, Rejected, ThreadState

__all__ = ["ThreadHandle"]


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

    def tell(self, message: Message, *, idempotency_key: str | None = None) -> Receipt:
        """Send a message and go on; when this returns it is durable.

        Args:
            message: `Invoke`, `Resume`, `Continue` or `Cancel`.
            idempotency_key: Names the message, such as the id of the event that it comes from; not for
                `Cancel`. The thread takes the message once, however often it comes with this key, also
                after a restart and when its run is long over. The key is kept with the message for
                `limits.message_key_seconds` (7 days), the last `limits.message_keys` of a thread (10,000).

        Returns:
            A receipt with the message's id and the run that it starts, joins or continues; for a key that
            came before, the first receipt.

        Raises:
            CallRefused: The thread cannot take it (`NothingToResume`, `WrongGraph`, …). Its key is free.
            IdempotencyKeyReused: The key came before, with a message that asked something else.
            InboxFull: Too many messages wait for the thread.
            StoreError: It could not be made durable.

        Example:
            >>> first = thread.tell(Invoke({"n": 1}), idempotency_key="evt-17")      # doctest: +SKIP
            >>> thread.tell(Invoke({"n": 1}), idempotency_key="evt-17") == first     # doctest: +SKIP
            True
        """
        refuse_blocking(self._core, "tell", "atell")
        waiting = self._submit(message, waits=False, key=idempotency_key)
        assert waiting.receipt is not None, "a tell has a receipt"
        run_id = waiting.receipt.get()
        return Receipt(waiting.call.first_id or waiting.call.id, run_id)

    async def atell(self, message: Message, *, idempotency_key: str | None = None) -> Receipt:
        """`tell`, awaitable."""
        from beamweaver.runtime.aio import result_of  # noqa: PLC0415 - asyncio is loaded here

        waiting = self._submit(message, waits=False, key=idempotency_key)
        assert waiting.receipt is not None, "a tell has a receipt"
        run_id = await result_of(waiting.receipt)
        return Receipt(waiting.call.first_id or waiting.call.id, run_id)

    def _submit(self, message: Message, *, waits: bool, key: str | None) -> Waiting:
        return self._core.submit(self._graph, self.thread_id, message, waits=waits, key=key)

    def ask(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        raises: bool = True,
        idempotency_key: str | None = None,
    ) -> Outcome:
        """Send a message and wait until the run that it starts, joins or continues stops.

        Args:
            message: `Invoke`, `Resume`, `Continue` or `Cancel`.
            timeout: Seconds to wait; None waits for ever. The run goes on when they are over.
            raises: Whether a failed run raises its error; else `Failed` is returned.
            idempotency_key: As in `tell`. A key that came before starts and continues nothing: the outcome
                is that of the first message's run, as it stands when nothing executes any more.

        Returns:
            `Completed`, `Interrupted`, `Drained`, `Cancelled` or `Failed`.

        Raises:
            AskTimeout: The time is over; carries the receipt.
            RunFailed: The run failed (with `raises`).
            CallRefused: The thread cannot take the message.
            IdempotencyKeyReused: See `tell`.
            UnknownRun: The key came before, and the run of its message is not recorded any more.
            RuntimeStopped: The runtime ended meanwhile.
        """
        refuse_blocking(self._core, "ask", "aask")
        timeout = waiting_time(timeout)
        waiting = self._submit(message, waits=True, key=idempotency_key)
        return await_outcome(
            self._core.hub.waiters, waiting, self.thread_id, timeout=timeout, raises=raises
        )

    async def aask(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        raises: bool = True,
        on_disconnect: str = "cancel",
        idempotency_key: str | None = None,
    ) -> Outcome:
        """`ask`, awaitable.

        Args:
            message: See `ask`.
            timeout: See `ask`.
            raises: See `ask`.
            on_disconnect: When the awaiting task is cancelled: `"cancel"` the run, which stays resumable
                (unless others wait for it), or let it `"continue"`.
            idempotency_key: See `ask`.
        """
        from beamweaver.runtime.aio import outcome_of  # noqa: PLC0415 - asyncio is loaded here

        check_on_disconnect(on_disconnect)
        timeout = waiting_time(timeout)
        waiting = self._submit(message, waits=True, key=idempotency_key)
        return await outcome_of(
            self._core,
            self._graph,
            self.thread_id,
            waiting,
            timeout=timeout,
            raises=raises,
            on_disconnect=on_disconnect,
        )

    def cancel(self, *, timeout: float | None = None) -> Outcome:
        """Cancel the running run; returns when the bodies of its nodes have ended or were abandoned.

        The run can be continued. On a thread that does not run this returns how it stands; a client needs no
        owner for that, unless messages wait for the thread.

        Args:
            timeout: Seconds to wait; None waits for ever. The run is cancelled all the same.

        Raises:
            AskTimeout: The time is over; it says what is waited for.
        """
        refuse_blocking(self._core, "cancel", "acancel")
        return self.ask(Cancel(), timeout=timeout, raises=False)

    async def acancel(self, *, timeout: float | None = None) -> Outcome:
        """`cancel`, awaitable; the run is cancelled also when the awaiting task is."""
        return await self.aask(Cancel(), timeout=timeout, raises=False, on_disconnect="continue")

    def rejected(self) -> tuple[Rejected, ...]:
        """The told messages that were durable and that the thread could not take when their turn came.

        `tell` raises at once what can be told at once. What only the thread can judge, behind a run, is
        consumed and kept here: the last `limits.rejected`, the oldest first.

        Example:
            >>> thread.tell(Resume({"int_17": "yes"}))                     # doctest: +SKIP
            >>> [(each.code, each.message) for each in thread.rejected()]  # doctest: +SKIP
        """
        return read_rejected(self._core.store, self.thread_id, self._core.hub.limits)

    def release(self) -> None:
        """Let a quarantined thread go on from its last commit; when this returns that is durable.

        Raises:
            CallRefused: The thread is not quarantined.
        """
        refuse_blocking(self._core, "release", "arelease")
        hub = self._core.hub
        marking = hub.marking.get(self.thread_id)
        if marking is not None:
            with suppress(BeamWeaverError):
                marking.get()  # else the store would hear of the quarantine after its end
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
            self.tell(Release())
            self.tell(Continue())

    async def arelease(self) -> None:
        """`release`, awaitable: it is waited for on another worker."""
        from beamweaver.runtime.aio import on_a_worker  # noqa: PLC0415 - asyncio is loaded here

        await on_a_worker(self.release)

    def update_state(
        self,
        values: Any,
        as_node: str | None = None,
        checkpoint_id: str | None = None,
        *,
        on_busy: str = "queue",
    ) -> str:
        """Edit the thread's state; see `App.update_state`. Returns the new checkpoint's id."""
        return self.bulk_update_state(
            [[StateUpdate(values, as_node)]], checkpoint_id, on_busy=on_busy
        )

    def bulk_update_state(
        self,
        supersteps: Sequence[Sequence[StateUpdate]],
        checkpoint_id: str | None = None,
        *,
        on_busy: str = "queue",
    ) -> str:
        """Edit it in several supersteps; see `App.bulk_update_state`."""
        update = Update(supersteps, checkpoint_id, on_busy)
        return make_edit(self._core, self._graph, self.thread_id, update)

    async def aupdate_state(
        self,
        values: Any,
        as_node: str | None = None,
        checkpoint_id: str | None = None,
        *,
        on_busy: str = "queue",
    ) -> str:
        """`update_state`, awaitable."""
        update = Update([[StateUpdate(values, as_node)]], checkpoint_id, on_busy)
        return await amake_edit(self._core, self._graph, self.thread_id, update)

    async def abulk_update_state(
        self,
        supersteps: Sequence[Sequence[StateUpdate]],
        checkpoint_id: str | None = None,
        *,
        on_busy: str = "queue",
    ) -> str:
        """`bulk_update_state`, awaitable."""
        update = Update(supersteps, checkpoint_id, on_busy)
        return await amake_edit(self._core, self._graph, self.thread_id, update)

    def get_state(self, checkpoint_id: str | None = None) -> ThreadState | None:
        """The thread as the store has it, with what is finished of an open step; None if there is none."""
        core = self._core
        return read_state(core.store, core.hub.codec, self._graph, self.thread_id, checkpoint_id)

    async def aget_state(self, checkpoint_id: str | None = None) -> ThreadState | None:
        """`get_state`, awaitable: the store is read on another worker."""
        from beamweaver.runtime.aio import on_a_worker  # noqa: PLC0415 - asyncio is loaded here

        return await on_a_worker(self.get_state, checkpoint_id)
