"""What a function gave that was not written as a coroutine function, and that nobody will await."""

from __future__ import annotations

__all__ = ["unawaited"]


def unawaited(value: object) -> bool:
    """Whether it could be awaited; a coroutine is closed: Python would warn at a later, unrelated place."""
    if not hasattr(value, "__await__"):
        return False
    close = getattr(value, "close", None)
    if close is not None:
        close()
    return True
