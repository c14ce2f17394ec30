"""Time, as it is injected: seconds on a monotonic clock, and seconds since the epoch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Clock", "RealClock"]


class Clock(Protocol):
    """What tells the time. `supervisors.testing.VirtualClock` is the other implementation."""

    def monotonic(self) -> float:
        """Return seconds that never go back; only differences mean something."""
        ...

    def time(self) -> float:
        """Return seconds since the epoch."""
        ...

    def subscribe(self, changed: Callable[[], object]) -> None:
        """Have `changed` called whenever the time is moved by hand."""
        ...


class RealClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)

    def subscribe(self, changed: Callable[[], object]) -> None:
        """Do nothing: nobody moves this clock by hand."""
