"""The thread supervisor: one child a thread, each with a restart budget of its own, then quarantine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from beamweaver.checkpoint.records import Commit, Record
from beamweaver.engine.refusals import quarantined
from beamweaver.events import ThreadQuarantined, ThreadRestarted
from beamweaver.runtime.edits import Apply
from supervisors import ChildReply, Crashed, DynamicSupervisor, StartError

if TYPE_CHECKING:
    from beamweaver.checkpoint.base import Checkpointer
    from beamweaver.runtime.hub import Hub
    from supervisors import ExitReason

__all__ = ["CrashesWithoutCommit", "ThreadSupervisor"]


class CrashesWithoutCommit:
    """A restart budget: so many crashes of a thread's actor without a commit in between, however slow."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._crashes: dict[str, tuple[int, int]] = {}
        """Thread -> its next record's number at the last crash, and the crashes at that number."""

    def allows(self, child_id: Any, _now: float, /) -> bool:
        """Whether the thread's actor may start once more."""
        thread_id = child_id[0]
        hub = self._hub
        seq = self._next_seq(thread_id)
        before, crashes = self._crashes.get(thread_id, (seq, 0))
        crashes = crashes + 1 if before == seq else 1
        if crashes >= hub.limits.crashes_without_commit:
            self._crashes.pop(thread_id, None)
            return False
        self._crashes[thread_id] = (seq, crashes)
        if len(self._crashes) > hub.limits.threads_running:
            self._crashes.pop(next(iter(self._crashes)))
        if hub.listeners:
            reason = f"crash {crashes} without a commit"
            hub.publish(ThreadRestarted(thread_id=thread_id, reason=reason))
        return True

    def _next_seq(self, thread_id: str) -> int:
        try:
            image = self._hub.store.load(thread_id)
        except Exception:  # noqa: BLE001 - a thread that cannot be read has made no progress
            return -1
        return image.next_seq if image is not None else 0


class ThreadSupervisor(DynamicSupervisor):
    """Starts a thread's actor when a call or Recovery asks for it, and restarts it when it crashes.

    One poisoned thread never takes its siblings down: a thread that crashes again and again without a
    commit is quarantined alone. A dynamic supervisor restarts empty; Recovery, which starts after it, brings
    back what ran.
    """

    def __init__(self, hub: Hub) -> None:
        self._crashes = CrashesWithoutCommit(hub)
        super().__init__(budget=self._crashes)
        self._hub = hub

    def on_start(self) -> None:
        """Be known to the runtime; no actor of the supervisor before is left."""
        super().on_start()
        self._hub.table.begin(self.cell)

    def on_message(self, message: Any) -> None:
        """How the start of a thread's actor ended: a failed one is a crash, as one that was killed is."""
        if type(message) is not ChildReply or not isinstance(message.error, StartError):
            return  # it has started, or this supervisor ends
        child_id: Any = message.token
        hub, thread_id = self._hub, child_id[0]
        if not hub.table.failed_to_start(thread_id):
            return
        if self._crashes.allows(child_id, 0.0):
            hub.ensure(thread_id)
        else:
            self.on_give_up(child_id, Crashed(message.error))

    def on_give_up(self, child_id: Any, reason: ExitReason) -> None:
        """Set a thread aside, in the store too where that can be done."""
        hub, thread_id = self._hub, child_id[0]
        text = (
            f"its actor crashed {hub.limits.crashes_without_commit} times without a commit, "
            f"last with {reason!r}"
        )
        mark = Apply(
            lambda store, epoch: _mark(store, epoch, thread_id, text), self.system.future()
        )
        hub.quarantine(thread_id, text, mark)
        hub.gone(thread_id)
        hub.waiters.fail_thread(thread_id, quarantined(thread_id, text))
        hub.log.error("thread_quarantined", thread_id=thread_id, reason=text)
        if hub.listeners:
            hub.publish(ThreadQuarantined(thread_id=thread_id, reason=text))


def _mark(store: Checkpointer, epoch: int, thread_id: str, reason: str) -> bool:
    """Write the quarantine into the thread's row; False if the thread has none."""
    image = store.load(thread_id)
    if image is None:
        return False
    row = msgspec.structs.replace(image.row, status="quarantined", reason=reason)
    record = Record(image.next_seq, epoch, image.checkpoint.at_us)
    (error,) = store.commit(
        epoch, [Commit(thread_id=thread_id, incarnation=0, record=record, thread=row)]
    )
    if error is not None:
        raise error
    return True
