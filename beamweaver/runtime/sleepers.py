"""The sleeping threads that are due soon and have no actor."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from beamweaver.checkpoint.records import RunRow
    from beamweaver.runtime.offsets import Offsets
    from supervisors.clock import Clock

__all__ = ["Sleepers"]

_SOON = 600.0
"""Seconds in which a thread must be due to be held; the others are looked for again after this."""
_NEAR = 2 * _SOON
"""Seconds in which a thread must be due to be read. The time that a store keeps of the last sleep that began
may be up to 5 minutes behind it, so by that time and the clock a thread may be due later than it is."""


class Sleepers:
    """Which threads are to be waked next; what is not due soon, or beyond `most`, is left to the store.

    Within a process a sleep runs on the monotonic clock (`Offsets`). Of a sleep that a dead process left, the
    rest is worked out once, by the clock as it stood when this was made: `min(max(due - now, 0), delay)`.

    Args:
        clock: Tells both times.
        offsets: How they stood to each other when sleeps of this process began.
        most: How many are held at the most.
        asleep_us: When a thread last fell asleep, as the store knows it. If the clock stands before that, it
            was set back, and no due time tells by itself how far away it is; so it is if this is None.
    """

    def __init__(self, clock: Clock, offsets: Offsets, most: int, asleep_us: int | None) -> None:
        self._clock = clock
        self._offsets = offsets
        offsets.note()
        self._most = max(most, 1)
        self._began = clock.monotonic()
        self._began_us = int(clock.time() * 1_000_000)
        self._set_back = asleep_us is None or self._began_us < asleep_us
        self._heap: list[tuple[float, str]] = []
        self._held: dict[str, float] = {}
        self._look: float | None = None
        """When to look for those that were not held, if there were any."""

    def __len__(self) -> int:
        return len(self._held)

    def rest_of(self, run: RunRow, *, ours: bool) -> float:
        """Seconds until a thread that the store lists is due.

        Args:
            run: Its run.
            ours: Whether it fell asleep in this process.
        """
        rest = self._offsets.rest_of(run.due_us, run.delay) if ours else None
        if rest is None:
            passed = self._clock.monotonic() - self._began
            rest = min(max((run.due_us - self._began_us) / 1_000_000, 0.0), run.delay) - passed
        return rest

    def is_far(self, run: RunRow) -> bool:
        """Whether a thread, and all that the store lists after it, need not be looked at for now."""
        if self._set_back:
            return False
        if self._offsets.least_rest(run.due_us) <= _NEAR:
            return False
        self._look_at(self._clock.monotonic() + _SOON)
        return True

    def hold(self, thread_id: str, rest: float) -> None:
        """Wake a thread in `rest` seconds, if it is to be held until then."""
        now = self._clock.monotonic()
        due = now + max(rest, 0.0)
        if rest > _SOON:
            self._look_at(now + _SOON)
        elif self._held.get(thread_id) != due:
            self._held[thread_id] = due
            heapq.heappush(self._heap, (due, thread_id))
            if len(self._heap) > 2 * self._most:
                self._thin_out()

    def _look_at(self, when: float) -> None:
        self._look = when if self._look is None else min(self._look, when)

    def _thin_out(self) -> None:
        """Hold those that are due first, and look for the others when the last of these is due."""
        kept = heapq.nsmallest(self._most, ((due, name) for name, due in self._held.items()))
        if len(kept) < len(self._held):
            self._look_at(kept[-1][0])
        self._heap = kept  # sorted, so a heap
        self._held = {name: due for due, name in kept}

    def pop(self) -> str | None:
        """A thread that is due, which is not held any more; None if none is."""
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            due, thread_id = heapq.heappop(self._heap)
            if self._held.get(thread_id) == due:
                del self._held[thread_id]
                return thread_id
        return None

    def look_again(self) -> bool:
        """Whether it is time to look for those that were not held; said once."""
        if self._look is None or self._look > self._clock.monotonic():
            return False
        self._look = None
        return True

    @property
    def next(self) -> float | None:
        """When there is something to do, on the monotonic clock; None if never."""
        first = self._heap[0][0] if self._heap else None
        if first is None or self._look is None:
            return self._look if first is None else first
        return min(first, self._look)
