"""How much memory a process holds."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["resident"]


def resident(pid: int | None = None) -> int:
    """The resident set of a process in bytes; 0 where `/proc` is not to be had."""
    path = Path("/proc") / str(pid or "self") / "statm"
    try:
        pages = int(path.read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
