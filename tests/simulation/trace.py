"""A history as text, one line an event, and its hash: two histories of one seed are the same history."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.world import Process

__all__ = ["Trace"]


class Trace:
    """Collects lines, or only their hash.

    Args:
        keep: Whether to keep the lines.
    """

    def __init__(self, *, keep: bool = False) -> None:
        self.lines: list[str] | None = [] if keep else None
        self._hash = hashlib.blake2b(digest_size=8)

    def note(self, process: Process | None, what: Any) -> None:
        """One more line: when, in which process, what."""
        if process is None:
            line = f"           -- {what}"
        else:
            steps, seconds = process.scheduler.steps, process.clock.monotonic()
            line = f"p{process.ends.number:<2} {steps:>6} {seconds:>9.3f}s {what}"
        self._hash.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        """The hash of all lines so far."""
        return self._hash.hexdigest()
