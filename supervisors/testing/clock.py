"""A clock that stands still until it is moved."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["VirtualClock"]


class VirtualClock:
    """Time that a test moves, or that a simulation moves to the next timer when nothing can run.

    Args:
        start: seconds since the epoch at its beginning
        autojump: whether a simulation may move it

    Example:
        >>> clock = VirtualClock()
        >>> clock.advance(1.5)
        >>> clock.monotonic()
        1.5
    """

    def __init__(self, start: float = 1_700_000_000.0, *, autojump: bool = True) -> None:
        """Make a clock whose monotonic time is 0."""
        self.autojump = autojump
        self._start = start
        self._now = 0.0
        self._lock = threading.Lock()
        self._subscribers: list[Callable[[], object]] = []

    def monotonic(self) -> float:
        """Return the seconds by which the clock was moved."""
        return self._now

    def time(self) -> float:
        """Return seconds since the epoch."""
        return self._start + self._now

    def shift_time(self, seconds: float) -> None:
        """Set the time of day forward, or back; the monotonic clock does not notice.

        So somebody sets the clock, and so (forward) does a machine that stood still.
        """
        self._start += seconds

    def advance(self, seconds: float) -> None:
        """Move the clock on; pools that use it send what is due now."""
        self.move_to(self._now + seconds)

    def move_to(self, monotonic: float) -> None:
        """Move the clock to `monotonic`, never back."""
        with self._lock:
            self._now = max(self._now, monotonic)
        for changed in self._subscribers:
            changed()

    def subscribe(self, changed: Callable[[], object]) -> None:
        """Have `changed` called whenever the clock was moved."""
        self._subscribers.append(changed)
