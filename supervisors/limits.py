"""What bounds an actor system, and what it owns."""

from __future__ import annotations

from typing import Protocol

import msgspec

__all__ = ["Closable", "Limits"]


class Limits(msgspec.Struct, frozen=True):
    """What bounds an actor system.

    Attributes:
        max_abandoned: workers that may be lost in code that hangs; then no more tasks start
        kill_grace: seconds from a kill until the worker is given up, unless the kill says
        start_timeout: seconds that a start may take, unless the start says
        slow_handler: seconds for which a handler may hold a worker; then the event `slow_handler`
            tells where it is (tasks may take what they take)
    """

    max_abandoned: int = 64
    kill_grace: float = 0.5
    start_timeout: float = 5.0
    slow_handler: float = 10.0


class Closable(Protocol):
    """Something that a system owns."""

    def close(self) -> bool:
        """End it; return whether that succeeded."""
        ...
