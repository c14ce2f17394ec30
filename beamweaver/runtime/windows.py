"""The windows of all threads together: commits on their way that nothing waits for."""

from __future__ import annotations

import threading

__all__ = ["Windows"]


class Windows:
    """How many bytes are on their way to the store in the windows of all threads.

    Args:
        most: How many there may be.
    """

    __slots__ = ("_lock", "_most", "_of", "total")

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: dict[str, int] = {}
        self._lock = threading.Lock()
        self.total = 0

    def note(self, thread_id: str, size: int) -> bool:
        """From now on a thread has so many bytes on their way; whether there is room for more."""
        with self._lock:
            self.total += size - self._of.pop(thread_id, 0)
            if size:
                self._of[thread_id] = size
            return self.total < self._most
