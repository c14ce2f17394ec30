"""Recovery: takes up the threads that a dead process, or a dead thread supervisor, left."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from beamweaver.engine.fold import progress_of
from beamweaver.runtime.messages import AGAIN, DRAIN, ROOM, Sleeps
from beamweaver.runtime.sleepers import Sleepers
from supervisors import Actor

if TYPE_CHECKING:
    from beamweaver.checkpoint.records import StatusName, ThreadSummary
    from beamweaver.runtime.hub import Hub

__all__ = ["Recovery"]

_LEFT: tuple[StatusName, ...] = ("accepted", "running", "sleeping", "drained")
_NEXT = object()
_WATCH = object()
_DUE = object()
_WATCH_EVERY = 0.25
_SUSPECT_SECONDS = 30.0


class Recovery(Actor):
    """Claims unfinished threads in bounded batches, at its start and whenever it is started again.

    - Threads whose last take-up bears the present store epoch and that have no actor were lost with
      their supervisor: they are taken up whatever `recover=` says. So are threads that callers wait for.
    - `recover="all"`: also what dead processes left. Threads whose owner died twice over them without a
      commit in between are suspects: they come last, one at a time; the next follows when the one
      before has committed, parked, ended, or run 30 s.
    - Threads that sleep and are not in memory are taken up when they are due; those that are not due soon are
      looked for again later.
    - Beyond `limits.threads_running` threads wait in the store; Recovery goes on when there is a place.

    An error while it reads ends it with that reason; its supervisor starts it again, and escalates.
    """

    lane: ClassVar[Literal["hi"]] = "hi"
    isolated: ClassVar[bool] = False

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._status = 0
        self._after = ""
        self._suspects: deque[ThreadSummary] = deque()
        self._watched: tuple[str, int, float] | None = None
        self._walking = False
        self._wanted = ""
        """The thread for which there is no place yet."""
        self._place: tuple[int, str] | None = None
        """The sleeping thread after which to go on."""
        self._sleepers = Sleepers(
            hub.system.clock, hub.offsets, hub.limits.sleepers_held, hub.store.asleep_us()
        )
        self._alarm: tuple[float, Any] | None = None
        self.taken_up = 0

    def on_start(self) -> None:
        """Callers come first; then the store is walked, a batch a message."""
        self._hub.recovery = self.cell
        self._hub.table.unreserve()
        for thread_id in self._hub.waiters.threads():
            self._hub.ensure(thread_id)
        self._begin()

    def _begin(self) -> None:
        """Walk the store from its beginning."""
        self._status, self._after, self._place = 0, "", None
        if not self._walking:
            self._walking = True
            self.cell.put(_NEXT)

    def on_receive(self, message: Any) -> None:
        """The next batch, or a look at the suspect."""
        self._hub.reached("recovery.batch")
        if message is _NEXT and not self._wanted:
            self._batch()
        elif message is _WATCH:
            self._watch()
        elif message is AGAIN:
            self._begin()
        elif message is ROOM and self._wanted:  # else a drain came first
            self._go_on()
        elif message is DRAIN:
            self._drain()
        elif message is _DUE:
            self._alarm = None
            self._wake_sleepers()
        elif type(message) is Sleeps:
            self._sleepers.hold(message.thread_id, message.seconds)
        self._set_alarm()

    def _wake_sleepers(self) -> None:
        """Take up the threads whose sleep is over, and look for others now and then."""
        hub = self._hub
        while not self._wanted and not hub.draining:
            thread_id = self._sleepers.pop()
            if thread_id is None:
                break
            if thread_id not in hub.actors and thread_id not in hub.quarantined:
                self._wake(thread_id)
        if self._sleepers.look_again():
            self._begin()

    def _set_alarm(self) -> None:
        due = None if self._wanted or self._hub.draining else self._sleepers.next
        if due is None or (self._alarm is not None and self._alarm[0] <= due):
            return
        if self._alarm is not None:
            self._alarm[1].cancel()
        delay = max(due - self.system.clock.monotonic(), 0.0)
        self._alarm = (due, self.system.send_after(delay, self.cell, _DUE))

    def _go_on(self) -> None:
        """There is a place for the thread that was to be taken up."""
        thread_id, self._wanted = self._wanted, ""
        self._take_up(thread_id)
        if self._walking:
            self.cell.put(_NEXT)
        elif self._watched is None:
            self._next_suspect()
        self._wake_sleepers()

    def _drain(self) -> None:
        """Take up no more of what dead processes left."""
        self._suspects.clear()
        if self._wanted:
            self._wanted = ""
            if self._walking:
                self.cell.put(_NEXT)

    def _batch(self) -> None:
        """A batch of one status after the other, then of the threads with messages that wait."""
        last = self._unread_batch() if self._status == len(_LEFT) else self._left_batch()
        if last is not None:
            self._after = last
        else:
            self._status, self._after = self._status + 1, ""
        if self._wanted:
            return  # until there is a place
        if self._status <= len(_LEFT):
            self.cell.put(_NEXT)
        else:
            self._walking = False
            self._hub.table.recovered()
            if self._watched is None:
                self._next_suspect()

    def _left_batch(self) -> str | None:
        """Consider unfinished threads; the last id if there may be more of this status."""
        store, limit = self._hub.store, self._hub.limits.recovery_batch
        status = _LEFT[self._status]
        if status == "sleeping":
            batch = list(store.sleepers(after=self._place, limit=limit))
        else:
            batch = list(store.threads(statuses=(status,), after=self._after, limit=limit))
        for thread in batch:
            if status == "sleeping":
                if self._sleepers.is_far(thread.run):
                    return None
                self._place = thread.run.due_us, thread.thread_id
            if not self._consider(thread):
                return thread.thread_id
        return batch[-1].thread_id if len(batch) == limit else None

    def _unread_batch(self) -> str | None:
        """Wake threads whose process died between a run's end and the next message's turn."""
        hub, limit = self._hub, self._hub.limits.recovery_batch
        if hub.recover != "all" or hub.draining:
            return None
        batch = list(hub.store.inbox_threads(after=self._after, limit=limit))
        for thread_id in batch:
            here = thread_id in hub.actors or thread_id in hub.quarantined
            if not here and not self._take_up(thread_id):
                return thread_id
        return batch[-1] if len(batch) == limit else None

    def _consider(self, thread: ThreadSummary) -> bool:
        """Take the thread up if it is to be; False if it has to wait for a place."""
        hub = self._hub
        run = thread.run
        ours = max(run.claimed_epoch, run.taken_up_epoch) == hub.epoch
        at_work = thread.thread_id in hub.actors and thread.thread_id not in hub.aside
        here = at_work and (ours or thread.status == "sleeping")
        if thread.thread_id in hub.quarantined or here:
            return True
        if not ours and (hub.recover != "all" or hub.draining):
            return True
        if thread.status == "sleeping":
            rest = self._sleepers.rest_of(run, ours=ours)
            if rest > 0:
                self._sleepers.hold(thread.thread_id, rest)
                return True
            return self._wake(thread.thread_id)
        if not ours and run.deaths >= hub.limits.owner_deaths - 1 and self._suspect(thread):
            if all(other.thread_id != thread.thread_id for other in self._suspects):
                self._suspects.append(thread)
            return True
        return self._take_up(thread.thread_id)

    def _suspect(self, thread: ThreadSummary) -> bool:
        """Whether one more death makes, or made, its owners' deaths without a commit too many."""
        image = self._hub.store.load(thread.thread_id)
        return image is not None and progress_of(image) <= thread.run.deaths_seq

    def _wake(self, thread_id: str) -> bool:
        """Take up a thread whose sleep is over."""
        self._hub.due.add(thread_id)
        return self._take_up(thread_id)

    def _take_up(self, thread_id: str) -> bool:
        if not self._hub.table.reserve(thread_id, self.cell):
            self._wanted = thread_id
            return False
        self.taken_up += 1
        self._hub.ensure(thread_id, recover=True)
        return True

    def _next_suspect(self) -> None:
        if not self._suspects or self._wanted:
            self._watched = None
            return
        thread = self._suspects[0]
        image = self._hub.store.load(thread.thread_id)
        if image is not None and not self._take_up(thread.thread_id):
            self._watched = None
            return  # until there is a place
        self._suspects.popleft()
        if image is None:
            self.cell.put(_WATCH)
            return
        until = self.system.clock.monotonic() + _SUSPECT_SECONDS
        self._watched = (thread.thread_id, progress_of(image), until)
        self.system.send_after(_WATCH_EVERY, self.cell, _WATCH)

    def _watch(self) -> None:
        """Go on to the next suspect once this one is none any more."""
        if self._watched is None:
            self._next_suspect()
            return
        thread_id, seq, until = self._watched
        image = self._hub.store.load(thread_id)
        cleared = (
            image is None
            or progress_of(image) > seq
            or image.row.status not in _LEFT
            or self.system.clock.monotonic() >= until
        )
        if cleared:
            self._next_suspect()
        else:
            self.system.send_after(_WATCH_EVERY, self.cell, _WATCH)
