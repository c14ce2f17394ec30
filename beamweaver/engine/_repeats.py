"""Messages with an idempotency key: kept with the key in one commit, and told from those that repeat it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beamweaver.checkpoint.records import KeyPut, MessageKey
from beamweaver.engine._ownership import Ownership
from beamweaver.engine.calls import CallKind
from beamweaver.engine.effects import Admitted
from beamweaver.errors import IdempotencyKeyReused, UnknownRun, refusal_of_code

if TYPE_CHECKING:
    from beamweaver.engine.calls import Call

__all__ = ["Repeats"]


class Repeats(Ownership):
    """The side of a machine that takes a message once, however often its key comes."""

    def repeats(self, call: Call) -> bool:
        """Judge a call with a key, at its turn: whether it repeats a message and is answered.

        A message that waits for an outcome gets that of the first one: it becomes a call of its run.

        Raises:
            IdempotencyKeyReused: The first message asked something else.
            CallRefused: The first message was rejected, or its run is not recorded any more.
        """
        first = self._first(call)
        if first is None:
            return False
        if first.digest != call.key_digest:
            raise IdempotencyKeyReused(
                f"idempotency key {call.key!r} came to thread {self.state.thread_id!r} before, with message "
                f"{first.id!r}, which asked something else; give each message a key of its own, and the same "
                "one only to the same message",
                thread_id=self.state.thread_id,
                key=call.key,
                message_id=first.id,
            )
        call.first_id = first.id
        if not call.waits:
            self._effects.append(Admitted(call, first.run_id))
            return True
        if any(other.id == first.id != call.id for other in (*self.calls, *self.queue)):
            self._wait_behind(call)
            return True
        self._stand_in(call, first)
        return False

    def _first(self, call: Call) -> MessageKey | None:
        first = self.env.message_key(call.key)
        oldest = self.env.now_us() - int(self.env.limits.message_key_seconds * 1_000_000)
        if first is None or (first.at_us < oldest and first.id != call.id):
            return None
        return first

    def _wait_behind(self, call: Call) -> None:
        """The first message waits itself: this one has its turn after it."""
        if self.active:
            self.queue.append(call)
        else:
            self.report(call)

    def _stand_in(self, call: Call, first: MessageKey) -> None:
        """Make a call one that is owed the outcome of the first message's run, and asks nothing anew."""
        row = self.state.row
        for rejected in () if row is None else row.rejected:
            if rejected.id == first.id:
                raise refusal_of_code(rejected.code, rejected.message)
        call.kind, call.input, call.rerun = CallKind.CONTINUE, None, ()
        call.checkpoint, call.fork, call.place = None, False, b""
        call.run_id, call.named, call.again = first.run_id, True, True
        call.known_run = self.env.run_number(first.run_id)
        if call.known_run is None and (row is None or first.run_id not in row.run.names):
            raise UnknownRun(
                f"idempotency key {call.key!r} came to thread {self.state.thread_id!r} before, and its run "
                f"{first.run_id!r} is not recorded any more",
                thread_id=self.state.thread_id,
                run_id=first.run_id,
            )

    def about(self, call: Call, run_id: str = "") -> dict[str, Any]:
        """What the commit of a call does for its message: out of the inbox, and its key kept.

        Args:
            call: The call.
            run_id: The run of its receipt; by default the one that it joins.
        """
        kept: dict[str, Any] = {} if call.message is None else {"inbox_drop": (call.message,)}
        if call.key and call.message is None and not call.first_id:
            kept["key"] = self.key_of(call, run_id or self.state.run.names[0])
        return kept

    def key_of(self, call: Call, run_id: str) -> KeyPut:
        """The key of a call as it is kept."""
        now, limits = self.env.now_us(), self.env.limits
        row = MessageKey(call.key, call.id, run_id, call.key_digest, now)
        before = now - int(limits.message_key_seconds * 1_000_000)
        return KeyPut(row, before, limits.message_keys)
