"""The two actors of a client: one leaves messages for the owner of the store, one reads what they did."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from beamweaver.engine.calls import CallKind
from beamweaver.engine.effects import Reply
from beamweaver.engine.machine import Machine
from beamweaver.engine.refusals import quarantined, wrong_graph
from beamweaver.errors import (
    BeamWeaverError,
    IdempotencyKeyReused,
    UnknownRun,
    refusal_of_code,
)
from beamweaver.runtime.letters import NoLetter, open_letter, open_refusal
from beamweaver.runtime.reading import ReadEnv, folded, recorded_outcome
from beamweaver.runtime.waiters import Answer
from supervisors import Actor

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from beamweaver.checkpoint.records import MessageKey, ThreadImage, ThreadRow
    from beamweaver.engine.calls import Call
    from beamweaver.runtime.hub import Hub
    from beamweaver.runtime.spool import Spool
    from beamweaver.runtime.waiters import Waiting

__all__ = ["Reader", "Sender", "Sent", "head_row", "of_head"]

_LOOK: Final = object()
_LOOK_SECONDS: Final = 0.05
_STOPPED: Final = frozenset({"complete", "waiting", "failed", "cancelled"})
_MISSED: Final = 3
"""How often in a row a message may be found nowhere before it is taken for gone."""


class Sent:
    """A call on its way: its bytes until they are durable, then what is awaited of it.

    Calls of one key are one message, of that name; each has its own answer.
    """

    __slots__ = ("data", "durable", "missed", "name", "thread_id", "waiting")

    def __init__(self, thread_id: str, waiting: Waiting, name: str, data: bytes) -> None:
        self.thread_id = thread_id
        self.waiting = waiting
        self.name = name
        self.data = data
        self.durable = False
        self.missed = 0

    @property
    def call(self) -> Call:
        """The call."""
        return self.waiting.call


class Sender(Actor):
    """Leaves messages in the folder, one after the other; after a crash, those that it had not left."""

    lane: ClassVar[Literal["hi"]] = "hi"
    isolated: ClassVar[bool] = False

    def __init__(self, hub: Hub, spool: Spool, sent: dict[str, Sent]) -> None:
        self._hub = hub
        self._spool = spool
        self._sent = sent

    def on_start(self) -> None:
        """Be known, and go on with what a predecessor had not sent."""
        self._hub.writer = self.cell
        for sent in list(self._sent.values()):
            if not sent.durable:
                self.cell.put(sent)

    def on_receive(self, message: Any) -> None:
        """Send one."""
        if type(message) is Sent and not message.durable:
            try:
                self._send(message)
            except BeamWeaverError as error:
                self._hub.waiters.answer(message.thread_id, message.call, Answer(None, error))

    def _send(self, sent: Sent) -> None:
        hub, call = self._hub, sent.call
        first = self._first(sent) if call.key else None
        run_id = call.run_id
        if first is None:
            with self._syncing():
                self._spool.forget_refusal(sent.name)
                there = self._spool.send(sent.name, sent.data, once=bool(call.key))
            if there is not None:
                self._check_same(sent, there)
        else:
            run_id, call.first_id = first.run_id, first.id
        sent.durable, sent.data = True, b""
        hub.waiters.admitted(sent.thread_id, call, run_id)
        if call.waits and hub.recovery is not None:
            hub.recovery.put(_LOOK)

    def _first(self, sent: Sent) -> MessageKey | None:
        """What the thread has of the message's key; another message is refused here."""
        hub, call = self._hub, sent.call
        first = hub.store.message_key(sent.thread_id, call.key)
        oldest = self.system.clock.time() - hub.limits.message_key_seconds
        if first is None or first.at_us < oldest * 1_000_000:
            return None
        if first.digest != call.key_digest:
            raise _reused(sent, first.id)
        return first

    def _check_same(self, sent: Sent, there: bytes) -> None:
        """A message of the same key waits; it must ask the same."""
        call = sent.call
        try:
            letter = open_letter(there, sent.name)
        except NoLetter:
            return  # the owner took it, or sets it aside
        if letter.digest != call.key_digest:
            raise _reused(sent, letter.id)

    def _syncing(self) -> AbstractContextManager[None]:
        return self.system.blocking() if self._hub.store.blocks else nullcontext()


class Reader(Actor):
    """Reads the store for those who wait for an outcome, each 0.05 s as long as somebody does."""

    lane: ClassVar[Literal["lo"]] = "lo"
    isolated: ClassVar[bool] = False

    def __init__(self, hub: Hub, spool: Spool, sent: dict[str, Sent]) -> None:
        self._hub = hub
        self._spool = spool
        self._sent = sent
        self._armed = False

    def on_start(self) -> None:
        """Be known, and look for those who wait."""
        self._hub.recovery = self.cell
        self._arm()

    def on_receive(self, message: Any) -> None:
        """Look, or begin to look."""
        if message is _LOOK:
            self._arm()
            return
        self._armed = False
        for sent in list(self._sent.values()):
            if sent.durable:
                self._look(sent)
        self._arm()

    def _arm(self) -> None:
        if not self._armed and any(sent.durable for sent in list(self._sent.values())):
            self._armed = True
            self.system.send_after(_LOOK_SECONDS, self.cell, None)

    def _look(self, sent: Sent) -> None:
        hub, call = self._hub, sent.call
        if not hub.waiters.knows(sent.thread_id, call):
            self._sent.pop(call.id, None)  # nobody waits any more
            return
        try:
            answer = self._answer(sent)
        except BeamWeaverError as error:
            answer = Answer(None, error)
        if answer is not None:
            hub.waiters.answer(sent.thread_id, call, answer)

    def _answer(self, sent: Sent) -> Answer | None:
        """The answer to a message, or None as long as there is none.

        Raises:
            CallRefused: It was rejected, or cannot be followed any more.
            StoreError: The store cannot be read.
        """
        hub, call = self._hub, sent.call
        first = hub.store.message_key(sent.thread_id, call.key or call.id)
        if first is None:
            return self._unknown(sent)
        if first.digest != call.key_digest:
            raise _reused(sent, first.id)
        row = head_row(hub, sent.thread_id)
        if row is None:
            return self._unknown(sent)
        for rejected in row.rejected:
            if rejected.id == first.id:
                raise refusal_of_code(rejected.code, rejected.message)
        run_id = first.run_id
        number = row.run.number
        if run_id not in row.run.names:
            known = hub.store.run_number(sent.thread_id, run_id)
            if known is None:
                return None  # it waits behind the run
            number = known
        call.run_id, call.named = run_id, True
        if number == row.run.number:
            return of_head(hub, sent.thread_id, call, row)
        outcome = recorded_outcome(hub, sent.thread_id, call, number)
        if outcome is None:
            raise UnknownRun(
                f"run {run_id!r} of thread {sent.thread_id!r} ended without a recorded outcome: a later run "
                "took its place before it was complete, or its end was pruned",
                thread_id=sent.thread_id,
                run_id=run_id,
            )
        return Answer(outcome, None)

    def _unknown(self, sent: Sent) -> Answer | None:
        """The thread does not know the message: it waits, was rejected, or has left no trace."""
        hub, call = self._hub, sent.call
        refused = self._spool.refusal(sent.name)
        if refused is not None:
            try:
                row = open_refusal(refused).row
            except NoLetter as error:
                raise refusal_of_code(
                    "", f"message {sent.name!r} was rejected, and why {error}"
                ) from error
            raise refusal_of_code(row.code, row.message)
        if self._spool.has(sent.name):
            sent.missed = 0
            return None
        sent.missed += 1
        if sent.missed < _MISSED:
            return None
        row_now = head_row(hub, sent.thread_id)
        if call.kind is CallKind.CANCEL and row_now is not None:
            return of_head(hub, sent.thread_id, call, row_now)
        raise UnknownRun(
            f"message {sent.name!r} was taken and thread {sent.thread_id!r} knows nothing of it: the thread "
            "was deleted meanwhile, or a copy of the store was put in its place",
            thread_id=sent.thread_id,
            run_id=call.run_id,
        )


def head_row(hub: Hub, thread_id: str) -> ThreadRow | None:
    """A thread as the store has it."""
    image = next(hub.store.history(thread_id, limit=1, values=False), None)
    return None if image is None else image.row


def of_head(hub: Hub, thread_id: str, call: Call, row: ThreadRow) -> Answer | None:
    """How the thread's run stands, if it has stopped.

    Raises:
        CallRefused: The thread is quarantined, or another graph's.
    """
    if row.status == "quarantined":
        raise quarantined(thread_id, row.reason)
    if row.status not in _STOPPED:
        return None
    image = hub.store.load(thread_id)
    if image is None or image.row.status not in _STOPPED or image.row.run.number != row.run.number:
        return None  # it went on meanwhile: the next look sees how
    reply = _report(hub, thread_id, call, image)
    return Answer(reply.outcome, reply.error)


def _report(hub: Hub, thread_id: str, call: Call, image: ThreadImage) -> Reply:
    graph = hub.graph(image.row.graph)
    if graph.name != call.graph:
        raise wrong_graph(thread_id, graph.name, call.graph)
    plans = hub.codec_of(graph)
    state, _unreadable = folded(image, hub.codec, plans, raw=False)
    machine = Machine(graph, ReadEnv(hub.codec, plans), state)
    machine.report(call)
    (reply,) = machine.advance()
    assert type(reply) is Reply, "a call that waits is replied to"
    return reply


def _reused(sent: Sent, first: str) -> IdempotencyKeyReused:
    call = sent.call
    return IdempotencyKeyReused(
        f"idempotency key {call.key!r} came to thread {sent.thread_id!r} before, with message {first!r}, "
        "which asked something else; give each message a key of its own",
        thread_id=sent.thread_id,
        key=call.key,
        message_id=first,
    )
