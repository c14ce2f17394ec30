"""Whose value is encoded, for those who are told of it while it is."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

__all__ = ["WHOSE"]

WHOSE: Final[ContextVar[tuple[str, str] | None]] = ContextVar("beamweaver_whose", default=None)
"""Graph and node, where these are not of a node that runs here and returned the value."""
