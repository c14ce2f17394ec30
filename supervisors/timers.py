"""Messages at a later time: one store of timers on the system's clock; firing only enqueues.

Timers of one duration form a queue of their own, trimmed at each addition, so that setting and
cancelling is O(1) however many are pending: the usual timer is a timeout that is cancelled.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from supervisors.clock import Clock

__all__ = ["Postable", "TimerRef", "Timers"]


class Postable(Protocol):
    """What a timer can send to."""

    def put(self, message: object, /) -> None:
        """Take `message`."""
        ...


class TimerRef:
    """A message that will be sent. Made by `ActorSystem.send_after` and `send_every`."""

    __slots__ = ("_live", "_owners", "deadline", "every", "message", "target")

    def __init__(
        self,
        deadline: float,
        every: float | None,
        target: Postable,
        message: object,
        owners: set[TimerRef] | None,
    ) -> None:
        """Make a timer for `deadline`, on the system's clock."""
        self.deadline = deadline
        self.every = every
        self.target = target
        self.message = message
        self._owners = owners
        self._live = [True]

    @property
    def pending(self) -> bool:
        """Whether the message is still to be sent."""
        return bool(self._live)

    def cancel(self) -> bool:
        """Take the timer back.

        Returns:
            True if the message will not be sent (again); False if it was sent, or cancelled before.
        """
        try:
            self._live.pop()
        except IndexError:
            return False
        if self._owners is not None:
            self._owners.discard(self)
        return True


class Timers:
    """Every pending timer of a scheduler.

    `wake` is called, without a lock, when a new timer is due before all others.
    """

    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        """Make an empty store on `clock`."""
        self._clock = clock
        self._wake = wake
        self._lock = threading.Lock()
        self._queues: dict[float, deque[TimerRef]] = {}
        self._heads: list[tuple[float, int, float]] = []
        self._number = 0

    def add(
        self,
        delay: float,
        target: Postable,
        message: object,
        *,
        every: float | None = None,
        owners: set[TimerRef] | None = None,
    ) -> TimerRef:
        """Send `message` to `target` in `delay` seconds, then each `every` seconds."""
        timer = TimerRef(self._clock.monotonic() + delay, every, target, message, owners)
        if owners is not None:
            owners.add(timer)
        if self._insert(delay, timer):
            self._wake()
        return timer

    def _insert(self, duration: float, timer: TimerRef) -> bool:
        with self._lock:
            line = self._queues.get(duration)
            if line is None:
                line = self._queues[duration] = deque()
            else:
                while line and not line[0].pending:
                    line.popleft()
            line.append(timer)
            if len(line) > 1:
                return False
            first = not self._heads or timer.deadline < self._heads[0][0]
            self._number += 1
            heapq.heappush(self._heads, (timer.deadline, self._number, duration))
            return first

    def next_deadline(self) -> float | None:
        """Return when the next live timer is due, or None if there is none."""
        with self._lock:
            while self._heads:
                deadline, _, duration = self._heads[0]
                line = self._queues.get(duration)
                while line and not line[0].pending:
                    line.popleft()
                if line and line[0].deadline <= deadline:
                    return deadline
                self._replace_head(duration, line)
        return None

    def _replace_head(self, duration: float, line: deque[TimerRef] | None) -> None:
        heapq.heappop(self._heads)
        if line:
            self._number += 1
            heapq.heappush(self._heads, (line[0].deadline, self._number, duration))
        else:
            self._queues.pop(duration, None)

    def fire_due(self) -> int:
        """Send the messages that are due, in the order of their deadlines; return how many."""
        fired = 0
        while True:
            now = self._clock.monotonic()
            deadline = self.next_deadline()
            if deadline is None or deadline > now:
                return fired
            timer = self._pop()
            if timer is not None and self._fire(timer, now):
                fired += 1

    def _pop(self) -> TimerRef | None:
        with self._lock:
            if not self._heads:
                return None
            duration = self._heads[0][2]
            line = self._queues.get(duration)
            timer = line.popleft() if line else None
            self._replace_head(duration, line)
            return timer

    def _fire(self, timer: TimerRef, now: float) -> bool:
        if timer.every is not None and timer.pending:
            after = timer.deadline + timer.every
            timer.deadline = after if after > now else now + timer.every
            self._insert(timer.every, timer)
        elif not timer.cancel():
            return False
        timer.target.put(timer.message)
        return True

    def __len__(self) -> int:
        """Return how many timers are pending."""
        with self._lock:
            return sum(timer.pending for line in self._queues.values() for timer in line)
