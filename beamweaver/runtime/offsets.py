"""How the time of day stood to the monotonic clock, whenever a sleep of this process began."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from supervisors.clock import Clock

__all__ = ["Offsets"]

_WIDTH: Final = 1.0
"""Seconds by which the offsets of a span differ at most. A sleep may be so much too long, never too short."""
_MOST: Final = 64
"""How many spans are kept; beyond that the two oldest count as one."""


class _Span:
    """From one time of day to another, the clocks stood to each other by offsets from `low` to `high`."""

    __slots__ = ("first", "high", "last", "low")

    def __init__(self, wall: float, offset: float) -> None:
        self.first = self.last = wall
        self.low = self.high = offset

    def takes(self, offset: float) -> bool:
        return self.high - _WIDTH <= offset <= self.low + _WIDTH

    def add(self, other: _Span) -> None:
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)

    def has(self, wall: float) -> bool:
        return self.first - _WIDTH <= wall <= self.last + _WIDTH


class Offsets:
    """Tells how far away a due time is, though the clock was set or the machine stood still meanwhile.

    A due time is kept as a time of day, but within a process a sleep runs on the monotonic clock. The time of
    day at which a sleep began tells which of the offsets it goes by. Safe from several OS threads.

    Args:
        clock: Tells both times.

    Example:
        >>> from supervisors.testing import VirtualClock
        >>> clock = VirtualClock(start=0.0)
        >>> offsets = Offsets(clock)
        >>> clock.advance(30.0)
        >>> offsets.rest_of(100_000_000, 100.0)  # it began at 0 and lasts 100 seconds
        70.0
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._spans: list[_Span] = []
        self.note()

    def note(self) -> None:
        """A sleep may begin now."""
        wall = self._clock.time()
        span = _Span(wall, wall - self._clock.monotonic())
        with self._lock:
            if self._spans and self._spans[-1].takes(span.low):
                self._spans[-1].add(span)
                return
            self._spans.append(span)
            if len(self._spans) > _MOST:
                self._spans[1].add(self._spans.pop(0))

    def rest_of(self, due_us: int, delay: float) -> float | None:
        """Seconds until a sleep is over, or since; None if it did not begin in this process.

        Args:
            due_us: When it is over, in UTC microseconds.
            delay: How long it is in all, in seconds.
        """
        due = due_us / 1_000_000
        with self._lock:
            for span in reversed(self._spans):
                if span.has(due - delay):
                    return min(due - span.low - self._clock.monotonic(), delay)
        return None

    def least_rest(self, due_us: int) -> float:
        """Seconds for which a sleep lasts at least, whenever it began in this process."""
        with self._lock:
            high = max(span.high for span in self._spans)
        return due_us / 1_000_000 - high - self._clock.monotonic()
